"""Reports of what each server has loaded of a table, written by the server and read by brokers and the controller.

A report is a small root and buckets of keys, so that one more loaded segment of 20,000 rewrites some kilobytes. A
bucket may be newer than the root that led to it: keys are facts, each true by itself. Writers write the root last.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field

from merlot.cluster import paths
from merlot.cluster.record import PackedRecord, Record
from merlot.cluster.records import IndexingRecord
from merlot.cluster.segments.view import bucket_of
from merlot.errors import ConflictError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Check, Create, Metastore, Node, NodeDeleter, Op, Put, Watch

NUM_BUCKETS = 64
MAX_MULTI_BYTES = 512 * 1024
NOT_INDEXING: Final = IndexingRecord()


class ReportRoot(Record):
    """Root of a server's report. `buckets` has the sequence number at which each bucket last changed."""

    seq: int = 0
    token: str = ""
    """Id that is new for every process that writes the report: a reader keeps nothing of the report of another id."""
    life: int = 0
    """Number that grows with every process that takes the report over from another; the process with the greatest owns
    it."""
    revision: int = 0
    """Revision of the table that the server runs."""
    indexing: IndexingRecord = IndexingRecord()
    buckets: dict[int, int] = Field(default_factory=dict)


class ReportBucket(PackedRecord):
    """Keys (`name@crc`) that a server has loaded, and messages for those that it could not."""

    loaded: tuple[str, ...] = ()
    errors: dict[str, str] = Field(default_factory=dict)
    served: tuple[str, ...] = ()
    """Keys that it had loaded once and has not now: queries had their rows before, so a broker knows what is
    missing."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """Keys (`name@crc`) that the server answers queries for, and messages for those it could not load."""

    instance: InstanceId
    loaded: frozenset[str]
    errors: Mapping[str, str]
    revision: int = 0
    indexing: IndexingRecord = NOT_INDEXING
    served: frozenset[str] = frozenset()
    """Keys that it answered for once, before a restart or before it lost them, and that it still has to have."""


def _every(_key: str) -> bool:
    return True


class ReportWriter:
    """Writer of one server's report about one table, for one thread at a time.

    A new writer starts from an empty report, except for the keys that its predecessor had loaded: a broker that starts
    now has to know that queries had their rows (`served`). A report belongs to the process that took it over last: its
    `life` is the greatest. So the end of an instance's old process, however late, does not touch what the new one has
    written."""

    def __init__(
        self,
        metastore: Metastore,
        table: TableName,
        instance: InstanceId,
        *,
        token: str | None = None,
        max_multi_bytes: int = MAX_MULTI_BYTES,
    ) -> None:
        self._max_multi_bytes = max_multi_bytes
        self._metastore = metastore
        self._table = table
        self._instance = instance
        self._root_path = paths.report_root(table, instance)
        self._root = ReportRoot(token=token or secrets.token_hex(5))
        self._written: dict[int, ReportBucket] = {}
        self._former: set[str] | None = None
        """Keys that a report of this instance may have named; None until it has been read."""
        self._is_sure = False
        self.is_superseded = False
        """True if another process of this instance had taken the report over at the last look."""

    def recheck(self) -> None:
        """Read the report again with the next write: the metastore may hold a report other than the one
        that was written."""
        self._is_sure = False

    def write(
        self,
        loaded: Collection[str],
        errors: Mapping[str, str],
        *,
        revision: int = 0,
        indexing: IndexingRecord = NOT_INDEXING,
        is_missed: Callable[[str], bool] = _every,
    ) -> bool:
        """Make the report say exactly this; return whether it had to change. A report of a newer process stays.

        `is_missed`: returns True for a key that is no longer loaded if the server still has to have it."""
        if self._former is None:
            self._former = self._read_former()
        present = set(loaded)
        wanted = _bucketed(loaded, errors, {key for key in self._former - present if is_missed(key)})
        said = {"revision": revision, "indexing": indexing}
        is_same = wanted == self._written and said == {name: getattr(self._root, name) for name in said}
        if self._is_sure and is_same:
            return False
        node = self._metastore.get(self._root_path)
        stored = self._stored(node)
        self.is_superseded = bool(self._root.life) and stored is not None and stored.life > self._root.life
        if self.is_superseded:
            return False
        if stored == self._root and is_same:
            self._is_sure = True
            return False
        self._former |= present  # even if the write fails, a reader may have seen it
        try:
            self._write(wanted, said, node, stored)
        except BaseException:
            # It is unknown what the report holds: buckets may be newer than the root. The next write writes them all.
            self._written, self._root = {}, self._root.model_copy(update={"buckets": {}})
            raise
        self._former = present.union(*(bucket.served for bucket in wanted.values()))
        return True

    def _read_former(self) -> set[str]:
        stored = self._stored(self._metastore.get(self._root_path))
        numbers = () if stored is None else stored.buckets
        bucket_paths = [paths.report_bucket(self._table, self._instance, number) for number in numbers]
        nodes = zip(bucket_paths, self._metastore.get_many(bucket_paths), strict=True)
        buckets = [ReportBucket.from_bytes(node.data, path) for path, node in nodes if node is not None]
        return {key for bucket in buckets for key in (*bucket.loaded, *bucket.served)}

    def _stored(self, node: Node | None) -> ReportRoot | None:
        return ReportRoot.from_bytes(node.data, self._root_path) if node is not None and node.data else None

    def _write(
        self, wanted: dict[int, ReportBucket], said: dict[str, Any], node: Node | None, stored: ReportRoot | None
    ) -> None:
        if stored != self._root:
            # The report was cleaned up, or an answer was lost: write all of it, under a greater sequence number.
            before = stored or ReportRoot()
            is_mine = before.token == self._root.token or before.life < self._root.life
            life = self._root.life if is_mine else before.life + 1
            seq = max(self._root.seq, before.seq)
            self._written, self._root = {}, ReportRoot(token=self._root.token, life=max(1, life), seq=seq)
        changed = [number for number in {*wanted, *self._written} if wanted.get(number) != self._written.get(number)]
        seq = self._root.seq + 1
        unchanged = {number: self._root.buckets[number] for number in wanted if number not in changed}
        buckets = {**unchanged, **{number: seq for number in changed if number in wanted}}
        root = self._root.model_copy(update={**said, "seq": seq, "buckets": buckets})
        self._is_sure = False
        self._store({number: wanted[number] for number in changed if number in wanted}, root, node)
        self._root, self._written, self._is_sure = root, wanted, True

    def clear(self) -> None:
        """Remove the report: the table is gone or the server leaves for good."""
        remove_report(self._metastore, self._table, self._instance)
        self._root = ReportRoot(token=self._root.token, life=self._root.life)
        self._written, self._former, self._is_sure = {}, set(), False

    def _store(self, buckets: Mapping[int, ReportBucket], root: ReportRoot, node: Node | None) -> None:
        """Write the buckets, then the root, in as few transactions as possible."""
        if node is None:
            # Children need their parent: an empty root, of which readers take nothing.
            self._metastore.create(self._root_path, b"")
            node = Node(b"", 0)
        targets = {
            paths.report_bucket(self._table, self._instance, number): bucket for number, bucket in buckets.items()
        }
        present = self._metastore.get_many(list(targets))
        ops = [
            _write(path, bucket.to_bytes(), old) for (path, bucket), old in zip(targets.items(), present, strict=True)
        ]
        *first, last = _chunks([*ops, Put(self._root_path, root.to_bytes(), node.version)], self._max_multi_bytes)
        for chunk in first:
            # This does not overwrite buckets of a process that took the report over meanwhile.
            self._metastore.multi([Check(self._root_path, node.version), *chunk])
        self._metastore.multi(last)


def remove_report(metastore: NodeDeleter, table: TableName, instance: InstanceId) -> None:
    """Delete a report. If its server writes it again meanwhile, it stays."""
    root = paths.report_root(table, instance)
    for path in (*(paths.child(root, name) for name in metastore.children(root)), root):
        with contextlib.suppress(NotFoundError, ConflictError):
            metastore.delete(path)


def write_report(
    metastore: Metastore, table: TableName, instance: InstanceId, loaded: Collection[str], errors: Mapping[str, str]
) -> None:
    """Write a whole report at once; servers keep a ReportWriter instead, which writes only changes."""
    ReportWriter(metastore, table, instance).write(loaded, errors)


class ReportReader:
    """Reader of a table's reports, for one thread at a time. It reads only what has changed."""

    def __init__(self, metastore: Metastore, table: TableName) -> None:
        self._metastore = metastore
        self._table = table
        self._cached: dict[InstanceId, _CachedReport] = {}
        self._callback: Callable[[], None] | None = None
        self._watches: dict[InstanceId, Watch] = {}
        self._children_watch: Watch | None = None

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back after any change of any report; `read` then returns the reports."""
        self._callback = callback
        self._children_watch = self._metastore.watch_children(paths.reports(self._table), callback)

    def close(self) -> None:
        """Stop watching."""
        for watch in (*self._watches.values(), *([self._children_watch] if self._children_watch else [])):
            watch.cancel()
        self._watches.clear()
        self._children_watch = None

    def read(self) -> Mapping[InstanceId, ServerReport]:
        """Return all present reports, of live and of dead servers alike."""
        instances = [InstanceId(name) for name in self._metastore.children(paths.reports(self._table))]
        self._watch_roots(instances)
        roots = self._metastore.get_many([paths.report_root(self._table, instance) for instance in instances])
        self._cached = {
            instance: self._refresh(instance, node)
            for instance, node in zip(instances, roots, strict=True)
            if node is not None and node.data
        }
        return MappingProxyType({instance: cached.report for instance, cached in self._cached.items()})

    def _watch_roots(self, instances: Collection[InstanceId]) -> None:
        if self._callback is None:
            return
        for instance in self._watches.keys() - set(instances):
            self._watches.pop(instance).cancel()
        for instance in set(instances) - self._watches.keys():
            path = paths.report_root(self._table, instance)
            self._watches[instance] = self._metastore.watch(path, self._callback)

    def _refresh(self, instance: InstanceId, node: Node) -> _CachedReport:
        root = ReportRoot.from_bytes(node.data, paths.report_root(self._table, instance))
        cached = self._cached.get(instance)
        if cached is not None and cached.root == root:
            return cached
        old_buckets = cached.buckets if cached is not None and cached.root.token == root.token else {}
        seqs = cached.root.buckets if cached is not None else {}
        wanted = [
            number for number, seq in root.buckets.items() if number not in old_buckets or seqs.get(number) != seq
        ]
        bucket_paths = [paths.report_bucket(self._table, instance, number) for number in wanted]
        fresh = {
            number: ReportBucket.from_bytes(bucket_node.data, path)
            for number, path, bucket_node in zip(
                wanted, bucket_paths, self._metastore.get_many(bucket_paths), strict=True
            )
            if bucket_node is not None
        }
        buckets = {number: fresh.get(number) or old_buckets.get(number) or ReportBucket() for number in root.buckets}
        return _CachedReport(root, buckets, _joined(instance, root, buckets))


@dataclass(frozen=True, slots=True)
class _CachedReport:
    root: ReportRoot
    buckets: Mapping[int, ReportBucket]
    report: ServerReport


def _joined(instance: InstanceId, root: ReportRoot, buckets: Mapping[int, ReportBucket]) -> ServerReport:
    # Interned: the table's records in this process hold the same texts.
    loaded = frozenset(sys.intern(key) for bucket in buckets.values() for key in bucket.loaded)
    errors = {key: message for bucket in buckets.values() for key, message in bucket.errors.items()}
    served = frozenset(key for bucket in buckets.values() for key in bucket.served)
    return ServerReport(instance, loaded, MappingProxyType(errors), root.revision, root.indexing, served)


def _bucketed(loaded: Collection[str], errors: Mapping[str, str], served: Collection[str]) -> dict[int, ReportBucket]:
    drafts: dict[int, tuple[list[str], dict[str, str], list[str]]] = {}

    def draft(key: str) -> tuple[list[str], dict[str, str], list[str]]:
        return drafts.setdefault(bucket_of(key, NUM_BUCKETS), ([], {}, []))

    for key in sorted(loaded):
        draft(key)[0].append(key)
    for key in sorted(errors):
        draft(key)[1][key] = errors[key]
    for key in sorted(served):
        draft(key)[2].append(key)
    return {
        number: ReportBucket(loaded=tuple(keys), errors=notes, served=tuple(missed))
        for number, (keys, notes, missed) in drafts.items()
    }


def _write(path: str, data: bytes, node: Node | None) -> Op:
    return Create(path, data) if node is None else Put(path, data, node.version)


def _chunks(ops: list[Op], max_bytes: int) -> list[list[Op]]:
    """Divide the ops in order into transactions of up to `max_bytes`; the last op, the root, is in the last one."""
    chunks: list[list[Op]] = [[]]
    size = 0
    for op in ops:
        num_bytes = len(op.data) if isinstance(op, Create | Put) else 0
        if chunks[-1] and size + num_bytes > max_bytes:
            chunks.append([])
            size = 0
        chunks[-1].append(op)
        size += num_bytes
    return chunks
