"""Keep a partition's checkpoint: the valid docs of its sealed segments at the end of the last of them.

The partition's thread hands over its state at the end of a segment (`CapturedState`, references only). Files are
written, uploaded and named in the records on another thread, so that neither a full disk nor a slow deep store delays
rows. Their order decides what a crash leaves: snapshots are written before the list or record that names them, and
deleted after it. A recovery takes the checkpoint of the local disk, else the deep store's; neither is needed, since
what is stored can be replayed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Final

from merlot import telemetry
from merlot.clock import Clock
from merlot.cluster.consuming import checkpoints
from merlot.cluster.consuming.checkpoints import SNAPSHOT_FOLDER, StoredCheckpoint
from merlot.cluster.consuming.transactions import COMPACTED
from merlot.cluster.records import CheckpointRecord, StreamSegmentRecord
from merlot.errors import CorruptionError, MerlotError, NotFoundError
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore
from merlot.server.realtime.rewritten import Records
from merlot.server.realtime.snapshot_files import LocalCheckpoint, SnapshotFolder
from merlot.server.tuning import StreamTuning
from merlot.spec.upserting import SnapshotStore
from merlot.store.deepstore import DeepStore
from merlot.upsert.checkpoint import SegmentSnapshot
from merlot.upsert.expiry import Bounds, Watermark
from merlot.upsert.snapshots import decode, encode, file_name
from merlot.upsert.valid_docs import SegmentDocs, ValidDocsView

_LOG = logging.getLogger(__name__)

LOOK_MS: Final = 500
"""Milliseconds between two checks whether something is due."""
LATE_MS: Final = 30_000
"""Milliseconds after a commit from which a replica that did not make the file uploads its own checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedState:
    """State of a partition at the end of a segment."""

    sequence: int
    cut: ValidDocsView
    mark: Watermark
    column: str
    numbers: Mapping[int, int]
    """Numbers of the sealed segments in the cut, by sequence."""
    num_docs: Mapping[int, int]
    """Number of docs of these segments."""
    keys: Mapping[int, str]
    """Files by which docs of segments are numbered; none for a segment whose docs are numbered as its rows came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """Checkpoint that a recovery may begin with."""

    sequence: int
    mark: Watermark
    column: str
    segments: Mapping[int, SegmentSnapshot]
    """Valid docs of each segment, by sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDeps:
    """Dependencies of a partition's snapshots."""

    metastore: Metastore
    table: TableName
    partition: int
    instance: InstanceId
    folder: SnapshotFolder
    store: Callable[[], DeepStore]
    clock: Clock
    executor: Executor
    tuning: StreamTuning = field(default_factory=StreamTuning)


@dataclass(frozen=True, slots=True)
class _WrittenSnapshot:
    """Snapshot file, and the bits that it was made of."""

    docs: SegmentDocs
    name: str


class Snapshots:
    """Checkpoint of one partition. `capture`, `tend`, `find` and `close` are for the partition's thread; any thread may
    read the other public members."""

    def __init__(self, deps: SnapshotDeps) -> None:
        self.error = ""
        """Error because of which the last checkpoint is not kept; empty if it is."""
        self.at_ms: int | None = None
        """Time of the checkpoint that a recovery would begin with, as far as this replica knows."""
        self.sequence = -1
        """Sequence of the last segment in that checkpoint."""
        self.kept_in: SnapshotStore | None = None
        self._deps = deps
        self._where = f"table={deps.table} partition={deps.partition}"
        self._captured: CapturedState | None = None
        self._written: CapturedState | None = None
        self._files: dict[str, _WrittenSnapshot] = {}
        self._superseded: Set[str] = frozenset()
        self._is_clear = False
        self._is_busy = threading.Lock()
        self._disk = threading.Lock()
        """Lock held while the folder changes; not while the deep store is written, which may take long."""
        self._is_closed = False
        self._not_before_ms = 0

    def capture(self, captured: CapturedState) -> None:
        """Note the state of the partition at the end of a segment; it is written once the segment is committed."""
        if self._captured is None or captured.sequence >= self._captured.sequence:
            self._captured = captured

    def forget(self) -> None:
        """Drop what was captured: its rows were given up."""
        self._captured = None

    def tend(self, records: Records, kept_in: SnapshotStore | None) -> None:
        """Do what is due, on another thread; called again and again."""
        self.kept_in = kept_in
        now_ms = self._deps.clock.now_ms()
        if now_ms < self._not_before_ms or self._is_busy.locked():
            return
        work = self._due(records, kept_in, now_ms)
        rest_ms = self._deps.tuning.checkpoint_rest_ms
        if work is None:
            self._not_before_ms = now_ms + min(LOOK_MS, rest_ms)
        elif self._is_busy.acquire(blocking=False):
            self._not_before_ms = now_ms + rest_ms
            self._deps.executor.submit(self._run, work)

    def close(self, records: Records, kept_in: SnapshotStore | None) -> None:
        """Write what is not on the disk yet, so that a server that comes back goes on where it was: the partition is
        consumed here no more. An upload that is under way is not waited for."""
        captured = self._captured
        with self._disk:
            self._is_closed = True
            if kept_in is None or captured is None or captured is self._written or not _is_sealed(captured, records):
                return
            with self._noting_errors():
                self._write(captured, records)

    def find(self, records: Records) -> list[Callable[[], FoundCheckpoint | None]]:
        """Return the functions that find a checkpoint for a recovery, to be tried one after the other."""
        return [partial(self._find_local, records), partial(self._find_stored, records)]

    def note_unread(self, error: MerlotError) -> None:
        """Note that a checkpoint cannot be used; what is stored is replayed in its place."""
        _LOG.warning("checkpoint is not used %s cause=%s", self._where, error)
        telemetry.UPSERT_SNAPSHOT_FAILURES.labels(self._deps.table, type(error).__name__).inc()

    def num_missing(self, records: Records) -> int:
        """Count the sealed segments that are not in the checkpoint."""
        if self.kept_in is None:
            return 0
        return sum(not record.is_open and sequence > self.sequence for sequence, record in records.items())

    # The methods below block.

    def _due(self, records: Records, kept_in: SnapshotStore | None, now_ms: int) -> Callable[[], object] | None:
        if not records:
            return None
        if kept_in is None:
            # The folder is deleted last: if there is none, no deletion was left unfinished.
            is_clear = self._is_clear or not self._deps.folder.exists()
            is_named = any(record.snapshot_url or record.checkpoint for record in records.values())
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

    def _is_to_upload(self, captured: CapturedState, records: Records, now_ms: int) -> bool:
        last = max((sequence for sequence, record in records.items() if record.checkpoint is not None), default=-1)
        end = records[captured.sequence]
        is_mine = end.sealer == self._deps.instance or now_ms - end.push_time_ms >= LATE_MS
        return last < captured.sequence and is_mine

    def _run(self, work: Callable[[], object]) -> None:
        try:
            with self._noting_errors():
                work()
        finally:
            self._is_busy.release()

    @contextlib.contextmanager
    def _noting_errors(self) -> Iterator[None]:
        """Note the error of the work, or that it succeeded."""
        table = self._deps.table
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the outermost of its thread
            self.error = str(error) if isinstance(error, MerlotError) else f"internal error {type(error).__name__}"
            telemetry.UPSERT_SNAPSHOT_FAILURES.labels(table, type(error).__name__).inc()
            log = _LOG.warning if isinstance(error, MerlotError) else _LOG.exception
            log("snapshots are not kept, tried again %s cause=%s", self._where, error)
        else:
            self.error = ""

    def _keep(self, captured: CapturedState, records: Records) -> LocalCheckpoint | None:
        """Write to the disk; None if the partition is consumed here no more."""
        with self._disk:
            return None if self._is_closed else self._write(captured, records)

    def _write(self, captured: CapturedState, records: Records) -> LocalCheckpoint:
        files: dict[str, str] = {}
        written: dict[str, _WrittenSnapshot] = {}
        for record in checkpoints.sealed_until(records, captured.sequence):
            key = record.key_text
            written[key] = self._file_of(key, captured, record.sequence)
            files[key] = written[key].name
        mark, at_ms = captured.mark, self._deps.clock.now_ms()
        state = CheckpointRecord(
            largest=mark.largest,
            alive_from=mark.frozen.alive_from,
            deleted_from=mark.frozen.deleted_from,
            column=captured.column,
            at_ms=at_ms,
        )
        end = records[captured.sequence].key_text
        checkpoint = LocalCheckpoint(sequence=captured.sequence, key=end, state=state, files=files)
        self._deps.folder.put_list(checkpoint)
        self._files, self._written, self._is_clear = written, captured, False
        if self.kept_in is not SnapshotStore.DEEP_STORE:
            self._note(captured.sequence, at_ms)
        return checkpoint

    def _file_of(self, key: str, captured: CapturedState, sequence: int) -> _WrittenSnapshot:
        """Return the file of a segment's valid docs; write it if they have changed since the last time."""
        docs = captured.cut.segments.get(captured.numbers[sequence], SegmentDocs())
        last = self._files.get(key)
        folder = self._deps.folder
        if last is not None and last.docs is docs and folder.path_of(last.name).exists():
            return last
        data = encode(key, SegmentSnapshot.of(docs, captured.num_docs[sequence]))
        name = file_name(key, data)
        folder.put(name, lambda: data)
        return _WrittenSnapshot(docs, name)

    def _upload(self, captured: CapturedState, records: Records) -> None:
        """Write to the disk and to the deep store, and name the files in the records. Files that the records named
        before are deleted the next time, so that a replica that is about to read them still can."""
        deps = self._deps
        local = self._keep(captured, records)
        if local is None:
            return
        store = deps.store()
        named = checkpoints.snapshot_urls(records.values())
        urls = {key: store.url_below(deps.table, SNAPSHOT_FOLDER, name) for key, name in local.files.items()}
        for key, url in urls.items():
            if url not in named:
                store.put(deps.folder.path_of(local.files[key]), url)
        taken = StoredCheckpoint(
            partition=deps.partition, sequence=local.sequence, key=local.key, state=local.state, urls=urls
        )
        is_written, view = checkpoints.write_checkpoint(deps.metastore, deps.table, taken)
        if not is_written:
            _LOG.info("checkpoint comes too late %s segment=%s", self._where, local.key)
            return
        self._note(local.sequence, local.state.at_ms)
        telemetry.UPSERT_SNAPSHOTS.labels(deps.table).inc(len(urls))
        doomed, self._superseded = self._superseded, named - set(urls.values())
        in_use = checkpoints.snapshot_urls(view.stream_segments)
        for url in doomed - in_use:
            store.delete(url)
        _LOG.info("checkpoint is kept %s segment=%s num_snapshots=%d", self._where, local.key, len(urls))

    def _clear(self, records: Records) -> None:
        """Delete snapshots: first their names in the records, then the files."""
        deps = self._deps
        named = checkpoints.snapshot_urls(records.values())
        is_named = bool(named) or any(record.checkpoint is not None for record in records.values())
        if is_named:
            checkpoints.forget_checkpoint(deps.metastore, deps.table, deps.partition)
        store = deps.store()
        names = {record.name for record in records.values()}
        stored = [
            url
            for url in store.list_below(deps.table, SNAPSHOT_FOLDER)
            if PurePosixPath(url).name.partition("@")[0] in names
        ]
        for url in {*named, *stored}:
            store.delete(url)
        with self._disk:
            number = max(deps.folder.clear(), len({*named, *stored}))
            self._files, self._written, self._superseded = {}, None, frozenset()
        self.at_ms, self.sequence, self._is_clear = None, -1, True
        if number:
            _LOG.info("snapshots are deleted, as the settings say %s num_snapshots=%d", self._where, number)

    def _note(self, sequence: int, at_ms: int) -> None:
        self.sequence, self.at_ms = sequence, at_ms

    # Recovery.

    def _find_local(self, records: Records) -> FoundCheckpoint | None:
        local = self._deps.folder.find()
        if local is None:
            return None
        end = records.get(local.sequence)
        sealed = checkpoints.sealed_until(records, local.sequence)
        if end is None or end.key_text != local.key or any(record.key_text not in local.files for record in sealed):
            return None
        segments = {
            record.sequence: decode(record.key_text, self._deps.folder.read(local.files[record.key_text]))
            for record in sealed
        }
        return self._found(local.sequence, local.state, segments)

    def _find_stored(self, records: Records) -> FoundCheckpoint | None:
        end = checkpoints.newest(records)
        if end is None or end.checkpoint is None:
            return None
        store = self._deps.store()
        segments: dict[int, SegmentSnapshot] = {}
        for record in checkpoints.sealed_until(records, end.sequence):
            try:
                segments[record.sequence] = store.read(record.snapshot_url, partial(decode, record.key_text))
            except NotFoundError as error:
                raise CorruptionError(f"snapshot is gone segment={record.key_text}") from error
        return self._found(end.sequence, end.checkpoint, segments)

    def _found(
        self, sequence: int, state: CheckpointRecord, segments: Mapping[int, SegmentSnapshot]
    ) -> FoundCheckpoint:
        self._note(sequence, state.at_ms)
        mark = Watermark(largest=state.largest, frozen=Bounds(state.alive_from, state.deleted_from))
        return FoundCheckpoint(sequence=sequence, mark=mark, column=state.column, segments=segments)


def _is_sealed(captured: CapturedState, records: Records) -> bool:
    """Return True if what was captured is what was committed."""
    end = records.get(captured.sequence)
    if end is None or end.is_open:
        return False
    return all(_is_numbered_by(captured, record) for record in checkpoints.sealed_until(records, captured.sequence))


def _is_numbered_by(captured: CapturedState, record: StreamSegmentRecord) -> bool:
    """Return True if docs of a segment were numbered by its file."""
    key = captured.keys.get(record.sequence)
    is_same = key == record.key_text if key is not None else COMPACTED not in record.custom_map
    return is_same and captured.num_docs.get(record.sequence) == record.total_docs
