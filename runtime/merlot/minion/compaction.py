"""The task UpsertCompactionTask: rewrite a sealed segment of an upsert table without its replaced rows.

A server tells which docs are valid (`cluster.tasks.compactions`). The minion writes these rows to a file of the
same name and order, which takes the place of the segment in one swap of the table's root. A segment without valid docs
is removed instead. If a run dies before the swap, no record names its file and the cleaner deletes it; after the swap,
the next run finds the work done.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from merlot.clock import Clock
from merlot.cluster.consuming.answering import by_rows, of_members
from merlot.cluster.consuming.commits import merge_segments, note_staying, rewrite_segment
from merlot.cluster.consuming.merges import Merged
from merlot.cluster.consuming.partitions import chains, stream_segment
from merlot.cluster.consuming.transactions import COMPACTED, MovedSnapshot, Rewritten, is_decided_by_age
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.manifests.tables import find_table, spec_of
from merlot.cluster.records import Role, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.mutations import PreconditionError
from merlot.cluster.segments.view import TableView, load
from merlot.cluster.tasks.compactions import compaction_config, forget_valid_docs, valid_docs
from merlot.cluster.tasks.queue import EndedTask, TaskOutcome, TaskRecord
from merlot.cluster.tasks.records import CompactionConfig
from merlot.errors import CorruptionError, InvalidInputError, UnavailableError
from merlot.ids import SegmentKey
from merlot.metastore.protocol import Metastore
from merlot.minion.checkpointed import snapshot_of, upload_renumbered
from merlot.minion.checkpointed import valid_docs as valid_docs_of
from merlot.minion.control import Deadline, TaskControl
from merlot.minion.execution import ObsoleteError
from merlot.minion.rewritten import FileMaker
from merlot.minion.settings import MergeSettings
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.upsert.valid_docs import Bits, Longs

TELL_TIMEOUT_S: Final = 60.0
"""Seconds to wait for a server to tell the valid docs; then the task fails and is tried again later."""
LOOK_S: Final = 0.1
MOST_TRIES: Final = 20
"""Swaps that may fail because a new checkpoint was named; checkpoints come seconds apart."""


@dataclass(frozen=True)
class UpsertCompaction:
    """A kind of task: see `execution.TaskKind`."""

    metastore: Metastore
    clock: Clock
    settings: MergeSettings

    @property
    def max_parallel(self) -> int:
        return self.settings.max_parallel

    def run(self, task: TaskRecord, control: TaskControl) -> EndedTask:
        record = find_table(self.metastore, task.table)
        if record is None:
            raise ObsoleteError(f"table does not exist table={task.table}")
        try:
            config = compaction_config(task)
        except CorruptionError as error:
            raise InvalidInputError(str(error)) from error
        folder = self.settings.folder / task.id
        try:
            return _Run(self, task, config, spec_of(record), folder, control).run()
        except PreconditionError as error:
            raise ObsoleteError(str(error)) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def undo(self, task: TaskRecord, control: TaskControl) -> None:
        """Do nothing: no reader sees an unfinished compaction."""


@dataclass(frozen=True)
class _Run:
    kind: UpsertCompaction
    task: TaskRecord
    config: CompactionConfig
    table: Table
    folder: Path
    control: TaskControl

    def run(self) -> EndedTask:
        self.control.tell("LOOK", rows_total=self.config.num_records)
        key = SegmentKey.parse(self.config.segment)
        view = load(self.kind.metastore, self.task.table)
        before = stream_segment(view, key.name)
        if before is not None and before.crc != key.crc and self._was_swapped(before):
            return self._done(before.total_docs, before.size_bytes)
        if before is None or before.crc != key.crc:
            raise ObsoleteError(f"segment was replaced or removed meanwhile segment={key}")
        if self.config.merged:
            return self._run_merge(view)
        if is_decided_by_age(chains(view.stream_segments)[before.partition]):
            return self._run_by_age(before)
        docs = self._valid_docs([before])
        self.control.reached("docs told")
        if len(docs) == before.total_docs:
            raise ObsoleteError(f"no row of the segment was replaced segment={key}")
        file = self._maker.make([before], docs) if len(docs) else None
        self._require_files(before)
        rewritten = Rewritten(key=before.key, file=file, now_ms=self.kind.clock.now_ms())
        self._swap(rewritten)
        return self._done(len(docs), 0 if file is None else file.size_bytes)

    def _run_merge(self, view: TableView) -> EndedTask:
        """Merge several segments into one.

        The server tells the valid docs of all segments at once, when everything it consumed is sealed, so exactly one
        row of each key is valid in all of them together. A reader of the new file finds that row by its key."""
        keys = tuple(SegmentKey.parse(text) for text in self.config.segments)
        records = [record for key in keys if (record := stream_segment(view, key.name)) and record.crc == key.crc]
        if len(records) < len(keys):
            raise ObsoleteError(f"a segment was replaced or removed meanwhile segment={keys[-1]}")
        docs = self._valid_docs(records)
        self.control.reached("docs told")
        replaced = _without_docs(records, docs)
        if len(replaced) >= len(records) - 1:
            return self._remove(records, replaced, len(docs))
        file = self._maker.make(records, docs)
        self._require_files(records[-1])
        self.control.check()
        self.control.tell("SWAP")
        merged = Merged(keys=keys, file=file, now_ms=self.kind.clock.now_ms())
        merge_segments(self.kind.metastore, self.task.table, merged, self.control.fence)
        self.control.reached("segment swapped")
        return self._done(file.total_docs, file.size_bytes)

    def _remove(
        self, records: Sequence[StreamSegmentRecord], replaced: Sequence[StreamSegmentRecord], num_docs: int
    ) -> EndedTask:
        """Remove the segments all of whose rows were replaced, the last one last: it names the task. One of the
        segments at most has valid docs, so there is nothing to merge."""
        self._require_files(records[-1])
        for record in replaced:
            self._swap(Rewritten(key=record.key, file=None, now_ms=self.kind.clock.now_ms()))
        return self._done(num_docs, sum(record.size_bytes for record in records if record not in replaced))

    def _require_files(self, last: StreamSegmentRecord) -> None:
        """Raise UnavailableError if a server still answers by rows that it consumed.

        Such a server would not load the new file, and a broker that asks it for the rows from the start of one of
        several segments would miss the rows of the segments before it."""
        metastore, table = self.kind.metastore, self.task.table
        reports = {instance: report.loaded for instance, report in ReportReader(metastore, table).read().items()}
        live = live_instances(metastore, Role.SERVER)
        asked = of_members(reports, load(metastore, table), last.partition, live)
        first = by_rows(asked).get(last.partition)
        if first is not None and first <= last.sequence:
            raise UnavailableError(f"a server still answers by rows that it consumed segment={last.key}")

    def _run_by_age(self, before: StreamSegmentRecord) -> EndedTask:
        """Rewrite the segment by the partition's checkpoint, which may be replaced meanwhile."""
        self.control.tell("ASK")
        snapshot = snapshot_of(self._store, before)
        valid = valid_docs_of(snapshot)
        self.control.reached("docs told")
        if len(valid) == before.total_docs:
            raise ObsoleteError(f"no row of the segment was replaced segment={before.key_text}")
        docs = valid if not len(valid) else self._maker.kept(before, valid)
        staying = len(docs) - len(valid)
        if len(docs) == before.total_docs:
            note_staying(self.kind.metastore, self.task.table, before.key, staying, self.control.fence)
            raise ObsoleteError(f"every key with replaced rows has several others segment={before.key_text}")
        file = self._maker.make([before], docs) if len(docs) else None
        self._require_files(before)
        for _ in range(MOST_TRIES):
            record = stream_segment(load(self.kind.metastore, self.task.table), before.name)
            if record is None or record.crc != before.crc:
                raise ObsoleteError(f"segment was replaced or removed meanwhile segment={before.key_text}")
            url = self._moved(record, file, docs)
            rewritten = Rewritten(
                key=before.key,
                file=file,
                now_ms=self.kind.clock.now_ms(),
                num_staying=staying,
                snapshot=MovedSnapshot(record.snapshot_url, url),
            )
            if self._swap(rewritten):
                return self._done(len(docs), 0 if file is None else file.size_bytes)
        raise UnavailableError(f"checkpoints came too fast segment={before.key_text} tries={MOST_TRIES}")

    def _moved(self, record: StreamSegmentRecord, file: SegmentRecord | None, docs: Longs) -> str:
        """Upload the snapshot for the new file; return its address, or an empty text if there is no file."""
        snapshot = snapshot_of(self._store, record)
        if file is None:
            if len(valid_docs_of(snapshot)):
                raise ObsoleteError(f"rows are valid again segment={record.key_text}")
            return ""
        url = upload_renumbered(self._store, self.task.table, snapshot, docs, file.key_text, self.folder)
        if url is None:
            raise ObsoleteError(f"rows are valid again segment={record.key_text}")
        self.control.reached("snapshot uploaded")
        return url

    def _swap(self, rewritten: Rewritten) -> bool:
        """Swap the segment; return False if another checkpoint was named meanwhile."""
        self.control.check()
        self.control.tell("SWAP")
        view = rewrite_segment(self.kind.metastore, self.task.table, rewritten, self.control.fence)
        record = stream_segment(view, rewritten.key.name)
        if record is not None and record.crc == rewritten.key.crc:
            return False
        self.control.reached("segment swapped")
        return True

    def _was_swapped(self, record: StreamSegmentRecord) -> bool:
        """Return whether an earlier run of the task has swapped the segment."""
        return int(record.custom_map.get(COMPACTED, "-1")) >= self.task.created_ms

    def _done(self, num_docs: int, num_bytes: int) -> EndedTask:
        forget_valid_docs(self.kind.metastore, self.task.id)
        self.control.reached("docs forgotten")
        return EndedTask(
            id=self.task.id,
            outcome=TaskOutcome.SUCCEEDED,
            level=self.config.level,
            segments_before=len(self.config.segments),
            segments_after=1 if num_docs else 0,
            bytes_before=self.config.num_bytes,
            bytes_after=num_bytes,
            rows_before=self.config.num_records,
            rows_after=num_docs,
        )

    def _valid_docs(self, records: Sequence[StreamSegmentRecord]) -> Longs:
        """Wait for a server to tell the valid docs of the segments, numbered through all of them; raise
        UnavailableError if none does in time."""
        record, num_docs = records[-1], sum(segment.total_docs for segment in records)
        self.control.tell("ASK")
        deadline = Deadline(TELL_TIMEOUT_S)
        while True:
            answer = valid_docs(self.kind.metastore, self.task.id)
            if answer is not None:
                break
            if deadline.is_over:
                raise UnavailableError(f"no server has told which docs are valid segment={record.key_text}")
            self.control.pause(LOOK_S)
        header, bitmap = answer
        if (header.segment, header.num_docs) != (record.key_text, num_docs):
            raise InvalidInputError(f"server told of another segment segment={record.key_text} told={header.segment}")
        return Bits.deserialized(bitmap, header.num_docs).docs()

    @cached_property
    def _store(self) -> DeepStore:
        return self.kind.settings.open_store(self.table.spec.deep_store_uri)

    @cached_property
    def _maker(self) -> FileMaker:
        return FileMaker(
            table=self.table,
            name=self.task.table,
            store=self._store,
            folder=self.folder,
            control=self.control,
            clock=self.kind.clock,
        )


def _without_docs(records: Sequence[StreamSegmentRecord], docs: Longs) -> list[StreamSegmentRecord]:
    """Return the segments without any of `docs`, which are sorted and numbered through all segments."""
    ends = np.searchsorted(docs, np.cumsum([record.total_docs for record in records]))
    return [record for record, count in zip(records, np.diff(ends, prepend=0), strict=True) if not count]
