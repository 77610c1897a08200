"""Immutable view of a table's segments under one root: brokers prune by it, servers load it, the controller decides on
it.

A view is never torn: every bucket that a root names is immutable, so the view is exactly what one compare-and-set
published. Content ids are unique for ever (epoch and a random part). Buckets of one id in two roots hold the same
bytes, even after ZooKeeper was restored from an old snapshot and epochs went back. So all readers of a session share
the buckets that one of them has read or written: the roles of one process wake together, and decoding is the expensive
part.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from merlot.cluster import paths
from merlot.cluster.records import BucketRecord, LineageMark, RootRecord, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.visibility import is_visible
from merlot.errors import CorruptionError, NotFoundError, UnavailableError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore

MAX_ATTEMPTS = 100
"""Number of attempts to read a view; an attempt fails if the root changes meanwhile. Buckets stay for a while after
they retire, so even one retry is rare."""

_SHARED: weakref.WeakKeyDictionary[Metastore, weakref.WeakValueDictionary[str, Bucket]] = weakref.WeakKeyDictionary()
"""Buckets by session and path, as long as some view holds them."""
_SHARED_LOCK = threading.Lock()
_ReadRoot = Callable[[Metastore, TableName], tuple[RootRecord, int]]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Bucket:
    """Segments whose names hash to one number, and their servers."""

    content_id: str
    segments: Mapping[str, SegmentRecord]
    assignment: Mapping[str, tuple[InstanceId, ...]]

    @staticmethod
    def of(content_id: str, record: BucketRecord) -> Bucket:
        """Return the bucket of a record."""
        segments = {segment.name: segment for segment in (*record.segments, *record.stream_segments)}
        assignment = {name: tuple(map(InstanceId, instances)) for name, instances in record.assignment.items()}
        return Bucket(content_id, segments, assignment)

    def to_record(self) -> BucketRecord:
        """Return the record, in the order of names, so that equal contents are equal bytes."""
        names = sorted(self.segments)
        segments = [self.segments[name] for name in names]
        return BucketRecord(
            segments=tuple(segment for segment in segments if not isinstance(segment, StreamSegmentRecord)),
            stream_segments=tuple(segment for segment in segments if isinstance(segment, StreamSegmentRecord)),
            assignment={name: self.assignment[name] for name in names if name in self.assignment},
        )


@dataclass(frozen=True)
class TableView:
    """A table's segments and their assignment at one epoch. The next write builds on `root` and `version`."""

    table: TableName
    root: RootRecord = field(repr=False)
    version: int
    buckets: Mapping[int, Bucket] = field(repr=False)

    @property
    def epoch(self) -> int:
        """Number that grows by one with every change."""
        return self.root.epoch

    @cached_property
    def segments(self) -> Mapping[str, SegmentRecord]:
        """Records by segment name."""
        merged: dict[str, SegmentRecord] = {}
        for bucket in self.buckets.values():
            merged.update(bucket.segments)
        return MappingProxyType(merged)

    @cached_property
    def assignment(self) -> Mapping[str, tuple[InstanceId, ...]]:
        """Servers by segment name; a segment without servers yet is missing."""
        merged: dict[str, tuple[InstanceId, ...]] = {}
        for bucket in self.buckets.values():
            merged.update(bucket.assignment)
        return MappingProxyType(merged)

    @cached_property
    def stream_segments(self) -> tuple[StreamSegmentRecord, ...]:
        """Segments of streams, by partition and sequence."""
        segments = (segment for segment in self.segments.values() if isinstance(segment, StreamSegmentRecord))
        return tuple(sorted(segments, key=lambda segment: (segment.partition, segment.sequence)))

    @property
    def lineage(self) -> Mapping[str, LineageMark]:
        """Replacements that are not cleaned up yet, by entry id."""
        return self.root.lineage

    @cached_property
    def visible(self) -> Mapping[str, SegmentRecord]:
        """Records of the segments that make up the table: no outputs before, and no inputs after the end of their
        replacement."""
        lineage = self.root.lineage
        if not lineage:
            return self.segments
        return MappingProxyType(
            {name: segment for name, segment in self.segments.items() if is_visible(segment, lineage)}
        )

    @cached_property
    def visible_docs(self) -> int:
        """Number of docs of the visible segments, exactly."""
        return sum(segment.total_docs for segment in self.visible.values())

    @property
    def total_docs(self) -> int:
        """Number of docs of the table."""
        return self.visible_docs

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of the visible segments' files, one copy each."""
        return sum(segment.size_bytes for segment in self.visible.values())

    def segment(self, name: str) -> SegmentRecord | None:
        """Return one record, without merging the buckets; None if there is none."""
        bucket = self.buckets.get(bucket_of(name, self.root.num_buckets))
        return None if bucket is None else bucket.segments.get(name)

    def servers_of(self, name: str) -> tuple[InstanceId, ...]:
        """Return the servers that a segment is assigned to."""
        bucket = self.buckets.get(bucket_of(name, self.root.num_buckets))
        return () if bucket is None else bucket.assignment.get(name, ())


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """Names of the segments whose record or assignment differs between two views."""

    changed: frozenset[str]
    removed: frozenset[str]


def diff(old: TableView | None, new: TableView) -> ViewChanges:
    """Return what a reader of `old` has to look at again. The cost depends on the changed buckets, not on all buckets,
    unless the number of buckets changed."""
    if old is None or old.root.num_buckets != new.root.num_buckets:
        before = _entries(() if old is None else old.buckets.values())
        after = _entries(new.buckets.values())
    else:
        touched = [number for number in {*old.buckets, *new.buckets} if _differs(old, new, number)]
        before = _entries(old.buckets[number] for number in touched if number in old.buckets)
        after = _entries(new.buckets[number] for number in touched if number in new.buckets)
    changed = frozenset(name for name, entry in after.items() if before.get(name) != entry)
    return ViewChanges(changed, frozenset(before.keys() - after.keys()))


def load(metastore: Metastore, table: TableName, previous: TableView | None = None) -> TableView:
    """Return the table's current view; buckets of `previous` are not read again.

    Raise NotFoundError if the table does not exist, CorruptionError if a bucket that the current root names is
    missing, UnavailableError if the root changes during every attempt."""
    return _load(metastore, table, previous, load_root)


def load_retained(metastore: Metastore, table: TableName) -> TableView | None:
    """Return what a deleted table has left for the next table of its name; None if it has left nothing, or is not
    deleted."""
    try:
        return _load(metastore, table, None, _load_retained_root)
    except NotFoundError:
        return None


def _load(metastore: Metastore, table: TableName, previous: TableView | None, read_root: _ReadRoot) -> TableView:
    last_root: RootRecord | None = None
    for _ in range(MAX_ATTEMPTS):
        root, version = read_root(metastore, table)
        if previous is not None and previous.root == root and previous.version == version:
            return previous
        buckets = _load_buckets(metastore, table, root, {} if previous is None else previous.buckets)
        if buckets is not None:
            return TableView(table, root, version, buckets)
        if root == last_root:
            raise CorruptionError(f"segment bucket is missing table={table} epoch={root.epoch}")
        last_root = root
    raise UnavailableError(f"segments change faster than they can be read table={table}")


def load_root(metastore: Metastore, table: TableName) -> tuple[RootRecord, int]:
    """Return the root and its version; raise NotFoundError if the table has none."""
    root, version = _read_root(metastore, table)
    if root is None or root.is_deleted:
        raise NotFoundError(f"table does not exist table={table}")
    return root, version


def _load_retained_root(metastore: Metastore, table: TableName) -> tuple[RootRecord, int]:
    root, version = _read_root(metastore, table)
    if root is None or not root.is_deleted or root.retained is None:
        raise NotFoundError(f"table has left nothing table={table}")
    return root, version


def _read_root(metastore: Metastore, table: TableName) -> tuple[RootRecord | None, int]:
    path = paths.segments_root(table)
    node = metastore.get(path)
    return (None, -1) if node is None or not node.data else (RootRecord.from_bytes(node.data, path), node.version)


def bucket_of(name: str, num_buckets: int) -> int:
    """Return the bucket of a segment name; the same in every process and version."""
    return zlib.crc32(name.encode()) % num_buckets


def _load_buckets(
    metastore: Metastore, table: TableName, root: RootRecord, previous: Mapping[int, Bucket]
) -> Mapping[int, Bucket] | None:
    """Return all buckets that the root names; None if one is gone: the root has changed since, or the bucket
    is lost."""
    shared = _shared(metastore)
    buckets = {number: bucket for number, bucket in previous.items() if root.buckets.get(number) == bucket.content_id}
    wanted: dict[str, tuple[int, str]] = {}
    for number, content_id in root.buckets.items():
        path = paths.segment_bucket(table, number, content_id)
        if number not in buckets and (bucket := shared.get(path)) is not None:
            buckets[number] = bucket
        elif number not in buckets:
            wanted[path] = (number, content_id)
    for (path, (number, content_id)), node in zip(wanted.items(), metastore.get_many(list(wanted)), strict=True):
        if node is None:
            return None
        # Another reader that was woken by the same change may have decoded it meanwhile.
        bucket = shared.get(path) or Bucket.of(content_id, BucketRecord.from_bytes(node.data, path))
        buckets[number] = shared[path] = bucket
    return buckets


def share(metastore: Metastore, table: TableName, buckets: Mapping[int, Bucket]) -> Mapping[int, Bucket]:
    """Share buckets that were just written with the session's readers; return the shared object of each bucket."""
    shared = _shared(metastore)
    return {
        number: shared.setdefault(paths.segment_bucket(table, number, bucket.content_id), bucket)
        for number, bucket in buckets.items()
    }


def _shared(metastore: Metastore) -> weakref.WeakValueDictionary[str, Bucket]:
    with _SHARED_LOCK:
        return _SHARED.setdefault(metastore, weakref.WeakValueDictionary())


def _differs(old: TableView, new: TableView, number: int) -> bool:
    return old.root.buckets.get(number) != new.root.buckets.get(number)


def _entries(buckets: Iterable[Bucket]) -> dict[str, tuple[SegmentRecord, tuple[InstanceId, ...]]]:
    return {
        name: (segment, bucket.assignment.get(name, ()))
        for bucket in buckets
        for name, segment in bucket.segments.items()
    }
