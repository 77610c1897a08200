"""Keeps a partition's checkpoint: which docs of its sealed segments are valid at the end of the last of them.

The partition's thread hands over what it has at an end (`Captured`, references only); files are written, uploaded and
named in the records on another thread, so that neither a full disk nor a slow deep store holds rows up. Order decides
what a crash leaves: snapshots come before whatever names them, and are deleted after it. A recovery takes the
checkpoint of the local disk, else the deep store's; neither is needed, since what is stored can be replayed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Final

from merlot import telemetry
from merlot.clock import Clock
from merlot.cluster.consuming import checkpoints
from merlot.cluster.consuming.checkpoints import SNAPSHOT_FOLDER, Checkpoint
from merlot.cluster.consuming.transactions import COMPACTED
from merlot.cluster.records import CheckpointRecord, StreamSegmentRecord
from merlot.errors import CorruptionError, MerlotError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.server.realtime.rewritten import Records
from merlot.server.realtime.snapshot_files import LocalCheckpoint, SnapshotFolder
from merlot.spec.upserting import SnapshotStore
from merlot.store.deepstore import DeepStore
from merlot.upsert.checkpoint import SegmentSnapshot
from merlot.upsert.expiry import Bounds, Watermark
from merlot.upsert.snapshots import decode, encode, file_name
from merlot.upsert.valid_docs import Cut, SegmentDocs

_LOG = logging.getLogger(__name__)

REST_MS: Final = 5_000
"""Between two checkpoints, and before another try. What is captured meanwhile is kept, the last one."""
LOOK_MS: Final = 500
"""Between two looks at whether something is due."""
LATE_MS: Final = 30_000
"""So long after a commit, another replica than the one that made the file uploads its checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A partition at the end of a segment."""

    sequence: int
    cut: Cut
    mark: Watermark
    column: str
    numbers: Mapping[int, int]
    """What the cut calls the sealed segments, by sequence."""
    num_docs: Mapping[int, int]
    """Of these."""
    keys: Mapping[int, str]
    """The files that docs of segments are numbered by; none of a segment that is numbered as its rows came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A checkpoint that a recovery may begin with."""

    sequence: int
    mark: Watermark
    column: str
    segments: Mapping[int, SegmentSnapshot]
    """By sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the snapshots of a partition go."""

    metastore: Metastore
    table: TableName
    partition: int
    instance: InstanceId
    folder: SnapshotFolder
    store: Callable[[], DeepStore]
    clock: Clock
    executor: Executor


@dataclass(frozen=True, slots=True)
class _Known:
    """A file that was made of these bits."""

    docs: SegmentDocs
    name: str


class Snapshots:
    """One partition's. `capture`, `tend`, `find` and `close` are the partition's thread's, what is public otherwise
    anybody's to read."""

    def __init__(self, place: Place) -> None:
        self.error = ""
        """Why the last checkpoint is not kept; empty: it is."""
        self.at_ms: int | None = None
        """When the checkpoint was taken that a recovery would begin with, as far as this replica knows."""
        self.sequence = -1
        """The last segment in it."""
        self.kept_in: SnapshotStore | None = None
        self._place = place
        self._where = f"table={place.table} partition={place.partition}"
        self._captured: Captured | None = None
        self._written: Captured | None = None
        self._known: dict[str, _Known] = {}
        self._superseded: Set[str] = frozenset()
        self._is_clear = False
        self._is_busy = threading.Lock()
        self._disk = threading.Lock()
        """Held while the folder changes; the deep store may take as long as it likes."""
        self._is_closed = False
        self._not_before_ms = 0

    def capture(self, captured: Captured) -> None:
        """Take note of how the partition is at an end; it is kept once the segment is committed."""
        if self._captured is None or captured.sequence >= self._captured.sequence:
            self._captured = captured

    def forget(self) -> None:
        """What was captured was of rows that came to nothing."""
        self._captured = None

    def tend(self, records: Records, kept_in: SnapshotStore | None) -> None:
        """Do what is due, on another thread: called again and again."""
        self.kept_in = kept_in
        now_ms = self._place.clock.now_ms()
        if now_ms < self._not_before_ms or self._is_busy.locked():
            return
        work = self._due(records, kept_in, now_ms)
        if work is None:
            self._not_before_ms = now_ms + min(LOOK_MS, REST_MS)
        elif self._is_busy.acquire(blocking=False):
            self._not_before_ms = now_ms + REST_MS
            self._place.executor.submit(self._run, work)

    def close(self, records: Records, kept_in: SnapshotStore | None) -> None:
        """The partition is consumed here no more: what is not on the disk yet goes there, so that a server that comes
        back goes on where it was. Whatever is on its way to the deep store is not waited for."""
        captured = self._captured
        with self._disk:
            self._is_closed = True
            if kept_in is None or captured is None or captured is self._written or not _is_sealed(captured, records):
                return
            with self._told():
                self._write(captured, records)

    def find(self, records: Records) -> list[Callable[[], Found | None]]:
        """Where a recovery may look for a checkpoint, one after the other."""
        return [partial(self._find_local, records), partial(self._find_stored, records)]

    def note_unread(self, error: MerlotError) -> None:
        """A checkpoint cannot be used; what is stored is replayed in its place."""
        _LOG.warning("checkpoint is not used %s cause=%s", self._where, error)
        telemetry.UPSERT_SNAPSHOT_FAILURES.labels(self._place.table, type(error).__name__).inc()

    def num_missing(self, records: Records) -> int:
        """Sealed segments that are not in the checkpoint."""
        if self.kept_in is None:
            return 0
        return sum(not one.is_open and sequence > self.sequence for sequence, one in records.items())

    # What follows blocks.

    def _due(self, records: Records, kept_in: SnapshotStore | None, now_ms: int) -> Callable[[], object] | None:
        if not records:
            return None
        if kept_in is None:
            # The folder goes last: where there is none, nothing was begun that is not over.
            is_clear = self._is_clear or not self._place.folder.exists()
            is_named = any(one.snapshot_url or one.checkpoint for one in records.values())
            is_over = is_clear and not is_named
            return None if is_over or checkpoints.needed(records) is not None else partial(self._clear, records)
        captured = self._captured
        if captured is None or not _is_sealed(captured, records):
            return None
        if kept_in is SnapshotStore.DEEP_STORE and self._is_to_upload(captured, records, now_ms):
            return partial(self._upload, captured, records)
        if captured is not self._written:
            return partial(self._keep, captured, records)
        return None

    def _is_to_upload(self, captured: Captured, records: Records, now_ms: int) -> bool:
        last = max((sequence for sequence, one in records.items() if one.checkpoint is not None), default=-1)
        end = records[captured.sequence]
        is_mine = end.sealer == self._place.instance or now_ms - end.push_time_ms >= LATE_MS
        return last < captured.sequence and is_mine

    def _run(self, work: Callable[[], object]) -> None:
        try:
            with self._told():
                work()
        finally:
            self._is_busy.release()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Have it known what became of it."""
        table = self._place.table
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the outermost of its thread
            self.error = str(error) if isinstance(error, MerlotError) else f"internal error {type(error).__name__}"
            telemetry.UPSERT_SNAPSHOT_FAILURES.labels(table, type(error).__name__).inc()
            log = _LOG.warning if isinstance(error, MerlotError) else _LOG.exception
            log("snapshots are not kept, tried again %s cause=%s", self._where, error)
        else:
            self.error = ""

    def _keep(self, captured: Captured, records: Records) -> LocalCheckpoint | None:
        """On the disk; None if the partition is consumed here no more."""
        with self._disk:
            return None if self._is_closed else self._write(captured, records)

    def _write(self, captured: Captured, records: Records) -> LocalCheckpoint:
        files: dict[str, str] = {}
        known: dict[str, _Known] = {}
        for record in checkpoints.sealed_until(records, captured.sequence):
            key = record.key_text
            known[key] = self._file_of(key, captured, record.sequence)
            files[key] = known[key].name
        mark, at_ms = captured.mark, self._place.clock.now_ms()
        state = CheckpointRecord(
            largest=mark.largest,
            alive_from=mark.frozen.alive_from,
            deleted_from=mark.frozen.deleted_from,
            column=captured.column,
            at_ms=at_ms,
        )
        end = records[captured.sequence].key_text
        checkpoint = LocalCheckpoint(sequence=captured.sequence, key=end, state=state, files=files)
        self._place.folder.put_list(checkpoint)
        self._known, self._written, self._is_clear = known, captured, False
        if self.kept_in is not SnapshotStore.DEEP_STORE:
            self._note(captured.sequence, at_ms)
        return checkpoint

    def _file_of(self, key: str, captured: Captured, sequence: int) -> _Known:
        """Write what has changed since the last time."""
        docs = captured.cut.segments.get(captured.numbers[sequence], SegmentDocs())
        known = self._known.get(key)
        folder = self._place.folder
        if known is not None and known.docs is docs and folder.path_of(known.name).exists():
            return known
        data = encode(key, SegmentSnapshot.of(docs, captured.num_docs[sequence]))
        name = file_name(key, data)
        folder.put(name, lambda: data)
        return _Known(docs, name)

    def _upload(self, captured: Captured, records: Records) -> None:
        """On the disk and in the deep store, and named in the records; what these named before is deleted the next
        time, for whoever is about to read it."""
        place = self._place
        local = self._keep(captured, records)
        if local is None:
            return
        store = place.store()
        named = checkpoints.snapshot_urls(records.values())
        urls = {key: store.url_below(place.table, SNAPSHOT_FOLDER, name) for key, name in local.files.items()}
        for key, url in urls.items():
            if url not in named:
                store.put(place.folder.path_of(local.files[key]), url)
        taken = Checkpoint(
            partition=place.partition, sequence=local.sequence, key=local.key, state=local.state, urls=urls
        )
        is_written, view = checkpoints.write_checkpoint(place.metastore, place.table, taken)
        if not is_written:
            _LOG.info("checkpoint comes too late %s segment=%s", self._where, local.key)
            return
        self._note(local.sequence, local.state.at_ms)
        telemetry.UPSERT_SNAPSHOTS.labels(place.table).inc(len(urls))
        doomed, self._superseded = self._superseded, named - set(urls.values())
        in_use = checkpoints.snapshot_urls(view.stream_segments)
        for url in doomed - in_use:
            store.delete(url)
        _LOG.info("checkpoint is kept %s segment=%s num_snapshots=%d", self._where, local.key, len(urls))

    def _clear(self, records: Records) -> None:
        """Delete snapshots: names first, files after."""
        place = self._place
        named = checkpoints.snapshot_urls(records.values())
        is_named = bool(named) or any(one.checkpoint is not None for one in records.values())
        if is_named:
            checkpoints.forget_checkpoint(place.metastore, place.table, place.partition)
        store = place.store()
        names = {one.name for one in records.values()}
        found = [
            url
            for url in store.list_below(place.table, SNAPSHOT_FOLDER)
            if PurePosixPath(url).name.partition("@")[0] in names
        ]
        for url in {*named, *found}:
            store.delete(url)
        with self._disk:
            number = max(place.folder.clear(), len({*named, *found}))
            self._known, self._written, self._superseded = {}, None, frozenset()
        self.at_ms, self.sequence, self._is_clear = None, -1, True
        if number:
            _LOG.info("snapshots are deleted, as the settings say %s num_snapshots=%d", self._where, number)

    def _note(self, sequence: int, at_ms: int) -> None:
        self.sequence, self.at_ms = sequence, at_ms

    # Recovery.

    def _find_local(self, records: Records) -> Found | None:
        local = self._place.folder.find()
        if local is None:
            return None
        end = records.get(local.sequence)
        sealed = checkpoints.sealed_until(records, local.sequence)
        if end is None or end.key_text != local.key or any(one.key_text not in local.files for one in sealed):
            return None
        segments = {
            one.sequence: decode(one.key_text, self._place.folder.read(local.files[one.key_text])) for one in sealed
        }
        return self._found(local.sequence, local.state, segments)

    def _find_stored(self, records: Records) -> Found | None:
        end = checkpoints.newest(records)
        if end is None or end.checkpoint is None:
            return None
        store = self._place.store()
        segments: dict[int, SegmentSnapshot] = {}
        for one in checkpoints.sealed_until(records, end.sequence):
            try:
                segments[one.sequence] = store.read(one.snapshot_url, partial(decode, one.key_text))
            except NotFoundError as error:
                raise CorruptionError(f"snapshot is gone segment={one.key_text}") from error
        return self._found(end.sequence, end.checkpoint, segments)

    def _found(self, sequence: int, state: CheckpointRecord, segments: Mapping[int, SegmentSnapshot]) -> Found:
        self._note(sequence, state.at_ms)
        mark = Watermark(largest=state.largest, frozen=Bounds(state.alive_from, state.deleted_from))
        return Found(sequence=sequence, mark=mark, column=state.column, segments=segments)


def _is_sealed(captured: Captured, records: Records) -> bool:
    """Whether what was captured is what was committed."""
    end = records.get(captured.sequence)
    if end is None or end.is_open:
        return False
    return all(_is_of(captured, one) for one in checkpoints.sealed_until(records, captured.sequence))


def _is_of(captured: Captured, record: StreamSegmentRecord) -> bool:
    """Whether docs of a segment were numbered by its file."""
    key = captured.keys.get(record.sequence)
    is_same = key == record.key_text if key is not None else COMPACTED not in record.custom_map
    return is_same and captured.num_docs.get(record.sequence) == record.total_docs
