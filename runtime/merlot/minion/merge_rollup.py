"""The task MergeRollupTask: fetch the input segments, merge them, and let the outputs replace them by segment lineage.

Each step continues what an earlier run of any minion left: a completed entry, published outputs, or nothing, in which
case the same inputs give the same files. A large bucket is split into several tasks: see `shards`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from merlot.catalog.transfer import check_room, fetch_segments, upload_segments
from merlot.clock import Clock
from merlot.cluster.lineage import replacements
from merlot.cluster.lineage.replacements import EndOptions, LineageEntry, Replacement
from merlot.cluster.manifests import rollups
from merlot.cluster.manifests.tables import find_table, spec_of
from merlot.cluster.records import LineageState, SegmentRecord
from merlot.cluster.segments.rounding import with_true_times
from merlot.cluster.segments.transaction import WriteContext
from merlot.cluster.segments.view import TableView, load
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import EndedTask, MergeTaskConfig, TaskOutcome, TaskRecord
from merlot.cluster.tasks.settings import is_outdated
from merlot.errors import CorruptionError, InvalidInputError, NotFoundError, UnavailableError
from merlot.extras import remedy
from merlot.ids import SegmentKey
from merlot.merge import task as merge_task
from merlot.merge.plan import MergePlan
from merlot.metastore.protocol import Metastore
from merlot.minion import merge_plans
from merlot.minion.control import Deadline, TaskControl
from merlot.minion.execution import ObsoleteError
from merlot.minion.settings import MergeSettings
from merlot.minion.shards import ShardFiles
from merlot.minion.spark_merge import SparkOrder
from merlot.minion.undoing import Undoing
from merlot.segment.build.request import BuiltSegment
from merlot.spec.table import Table
from merlot.spec.tasks import MERGE_TIME, Executor
from merlot.store.deepstore import DeepStore

_LOG = logging.getLogger(__name__)

DISK_SHARE = 2.5
"""Disk space that a merge needs, in sizes of its inputs: for the inputs, the outputs and spilled rows."""


class MergeRollup:
    """A kind of task: see `execution.TaskKind`."""

    def __init__(self, metastore: Metastore, clock: Clock, settings: MergeSettings) -> None:
        self._metastore = metastore
        self._clock = clock
        self._settings = settings

    @property
    def max_parallel(self) -> int:
        return self._settings.max_parallel

    def run(self, task: TaskRecord, control: TaskControl) -> EndedTask:
        work = self._work(task, control)
        try:
            return work.run()
        finally:
            shutil.rmtree(work.folder, ignore_errors=True)

    def undo(self, task: TaskRecord, control: TaskControl) -> None:
        try:
            work = self._work(task, control)
        except (ObsoleteError, InvalidInputError):
            return
        work.undoing.undo()

    def _work(self, task: TaskRecord, control: TaskControl) -> _Work:
        config = _config(task)
        record = find_table(self._metastore, task.table)
        if record is None:
            raise ObsoleteError(f"table does not exist table={task.table}")
        return _Work(self._metastore, self._clock, self._settings, task, config, spec_of(record), control)


@dataclass
class _Work:
    """One run of a task."""

    metastore: Metastore
    clock: Clock
    settings: MergeSettings
    task: TaskRecord
    config: MergeTaskConfig
    table: Table
    control: TaskControl

    @property
    def folder(self) -> Path:
        return self.settings.folder / self.task.id

    @cached_property
    def store(self) -> DeepStore:
        return self.settings.open_store(self.table.spec.deep_store_uri)

    def shards(self, shuffle: str) -> ShardFiles:
        return ShardFiles(self.store, self.task.table, self.config.entry, shuffle)

    @property
    def context(self) -> WriteContext:
        return WriteContext(clock=self.clock)

    def run(self) -> EndedTask:
        self.control.tell("LOOK", rows_total=self.config.num_records)
        entry = replacements.find_entry(self.metastore, self.task.table, self.config.entry)
        if entry is not None and entry.state is LineageState.COMPLETED:
            return self._done(entry)
        self._check_wanted()
        view = load(self.metastore, self.task.table)
        inputs = self._inputs(view)
        if entry is not None and entry.state is LineageState.IN_PROGRESS and _has_all(view, entry, self.config):
            return self._finish(entry.id)
        is_large = self.config.num_shards > 1
        if is_large and self.config.executor is Executor.SPARK:
            return self._replace(entry, inputs, self._merged_by_spark(inputs))
        if not is_large:
            return self._replace(entry, inputs, self._merged(inputs))
        if self.config.shard is None:
            return self._shuffle(inputs)
        return self._merge_shard(entry, self.config.shard, inputs)

    @property
    def undoing(self) -> Undoing:
        return Undoing(
            metastore=self.metastore,
            clock=self.clock,
            task=self.task,
            config=self.config,
            store=self.store,
            declared_store=self.table.spec.deep_store_uri,
            control=self.control,
        )

    def _check_wanted(self) -> None:
        """Raise ObsoleteError if the manifest no longer asks for the task, even if the task was not cancelled yet."""
        record = rollups.find_rollup(self.metastore, self.config.rollup)
        if record is None:
            return
        try:
            manifest = rollups.spec_of(record)
        except InvalidInputError as error:
            # A newer version wrote it. The leader, which may be of that version, decides.
            _LOG.warning("MergeRollupTask cannot be read name=%s cause=%s", record.name, error)
            return
        if is_outdated(self.config, manifest.spec):
            raise ObsoleteError(f"manifest has changed rollup={record.name} revision={record.revision}")

    def _inputs(self, view: TableView) -> list[SegmentRecord]:
        """Return the records of the inputs; raise ObsoleteError if one of them is no longer part of the table."""
        records = []
        for text in self.config.inputs:
            key = SegmentKey.parse(text)
            record = view.visible.get(key.name)
            if record is None or record.crc != key.crc:
                raise ObsoleteError(f"input was replaced or removed meanwhile segment={text}")
            records.append(record)
        return records

    def _fetch(self, records: Sequence[SegmentRecord]) -> list[Path]:
        folder = self.folder / "in"
        check_room(folder, round(DISK_SHARE * sum(record.size_bytes for record in records)))
        rows = num_bytes = 0

        def fetched(record: SegmentRecord) -> None:
            nonlocal rows, num_bytes
            rows += record.total_docs
            num_bytes += record.size_bytes
            self.control.check()
            self.control.reached("input fetched")
            self.control.tell("FETCH", rows=rows, num_bytes=num_bytes)

        self.control.tell("FETCH")
        paths = fetch_segments(self.store, records, folder, on_fetched=fetched)
        self.control.reached("inputs fetched")
        return paths

    def _merged(self, inputs: Sequence[SegmentRecord], files: Sequence[Path] | None = None) -> list[BuiltSegment]:
        """Merge the windows and, if there is one, the rest. `files`: rows of the windows; None: they are fetched from
        the inputs."""
        paths = list(files) if files is not None else self._fetch(inputs)
        folder = self.folder / "out"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        built = self._run_merge(merge_plans.merge_plan(self.table, self.config, self.clock), paths, folder)
        if self.config.rest and self.config.shard in (None, 0):
            built += self._rest(inputs, paths if files is None else None)
        self.control.reached("outputs built")
        return built

    def _rest(self, inputs: Sequence[SegmentRecord], paths: Sequence[Path] | None) -> list[BuiltSegment]:
        if paths is None:
            paths = self._fetch([record for record in inputs if merge_plans.reaches(record, self.config.rest)])
        folder = self.folder / "rest"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return self._run_merge(merge_plans.rest_plan(self.table, self.config, self.clock), paths, folder)

    def _run_merge(self, plan: MergePlan, paths: Sequence[Path], folder: Path) -> list[BuiltSegment]:
        return merge_task.run(
            plan,
            paths,
            folder,
            lambda phase, rows, num_bytes: self.control.tell(phase.value, rows=rows, num_bytes=num_bytes),
            self.control.is_stopped,
            self.settings.memory_bytes,
        )

    def _merged_by_spark(self, inputs: Sequence[SegmentRecord]) -> list[SegmentRecord]:
        if self.settings.spark is None:
            raise InvalidInputError(
                f"executor spark needs pyspark beside the minion: {remedy('spark')}, "
                "or start this one with --leave-spark and another one that has it"
            )
        self.control.tell("SPARK")
        order = SparkOrder(task=self.task, table=self.table, inputs=inputs, deep_store=self.store.uri)
        records = self.settings.spark.run(order, self.folder / "spark", self.control)
        self.control.reached("outputs built")
        return records

    def _replace(
        self,
        entry: LineageEntry | None,
        inputs: Sequence[SegmentRecord],
        outputs: Sequence[BuiltSegment] | Sequence[SegmentRecord],
    ) -> EndedTask:
        """Start the replacement, upload and publish the outputs, end the replacement. The outputs' names are declared
        before the first upload, so that no other task takes the inputs meanwhile."""
        names = [output.metadata.name if isinstance(output, BuiltSegment) else output.name for output in outputs]
        self._start(entry, names)
        self.control.reached("entry started")
        built = [output for output in outputs if isinstance(output, BuiltSegment)]
        records = self._upload(built) if built else [output for output in outputs if isinstance(output, SegmentRecord)]
        return self._publish(inputs, records)

    def _start(self, entry: LineageEntry | None, names: Sequence[str]) -> None:
        self.control.check()
        self.control.tell("START")
        table, fence = self.task.table, self.control.fence
        if entry is not None and entry.state is LineageState.IN_PROGRESS and set(entry.segments_to) != set(names):
            # Another version of Merlot built different files: its replacement is reverted.
            replacements.revert_replacement(self.metastore, table, entry.id, fence=fence, context=self.context)
        replacement = Replacement(
            segments_from=[SegmentKey.parse(text) for text in self.config.inputs],
            segments_to=names,
            entry=self.config.entry,
            custom_map={
                replacements.TASK_LEASE: queue.lease_name(self.task.kind, self.task.id),
                "task": self.task.id,
                "level": self.config.level,
            },
        )
        replacements.start_replacement(self.metastore, table, replacement, fence=fence, context=self.context)

    def _upload(self, built: Sequence[BuiltSegment]) -> list[SegmentRecord]:
        num_bytes = 0

        def uploaded(record: SegmentRecord) -> None:
            nonlocal num_bytes
            num_bytes += record.size_bytes
            self.control.reached("output uploaded")
            self.control.check()
            self.control.tell("UPLOAD", num_bytes=num_bytes)

        self.control.tell("UPLOAD")
        return upload_segments(self.store, built, self.task.table, on_uploaded=uploaded)

    def _publish(self, inputs: Sequence[SegmentRecord], records: Sequence[SegmentRecord]) -> EndedTask:
        self.control.check()
        marked = [self._marked(record, inputs) for record in records]
        if marked:
            replacements.put_outputs(
                self.metastore,
                self.task.table,
                self.config.entry,
                marked,
                fence=self.control.fence,
                context=self.context,
            )
        self.control.reached("outputs put")
        return self._finish(self.config.entry)

    def _marked(self, record: SegmentRecord, inputs: Sequence[SegmentRecord]) -> SegmentRecord:
        is_rest = bool(self.config.rest_prefix) and record.name.startswith(self.config.rest_prefix)
        own = self.config.rest_custom_map if is_rest else self.config.custom_map
        marked = record.model_copy(update={"custom_map": {**own, MERGE_TIME: str(self.clock.now_ms())}})
        if is_rest:
            return with_true_times(marked, inputs, self.config.rest)
        return with_true_times(
            marked, inputs, self.config.windows, merge_plans.rounding_that_moves(self.table, self.config)
        )

    def _finish(self, entry_id: str) -> EndedTask:
        """Wait until servers have loaded the outputs, then switch to them."""
        deadline = Deadline(self.settings.load_timeout_s)
        while True:
            self.control.check()
            self._check_wanted()
            self.control.tell("LOAD")
            try:
                entry = replacements.end_replacement(
                    self.metastore,
                    self.task.table,
                    entry_id,
                    EndOptions(wait_loaded_s=self.settings.load_look_s),
                    fence=self.control.fence,
                    context=self.context,
                )
            except UnavailableError:
                if deadline.is_over:
                    raise
                self.control.pause(0.05)
                continue
            self.control.reached("entry ended")
            return self._done(entry)

    def _done(self, entry: LineageEntry) -> EndedTask:
        """Delete the files that shards share, and return the ending to record."""
        self.undoing.remove_shuffled()
        self.control.reached("files removed")
        segments = load(self.metastore, self.task.table).segments
        before = [segments[name] for name in entry.segments_from if name in segments]
        after = [segments[name] for name in entry.segments_to if name in segments]
        return EndedTask(
            id=self.task.id,
            outcome=TaskOutcome.SUCCEEDED,
            level=self.config.level,
            windows=self.config.windows,
            segments_before=len(entry.segments_from),
            segments_after=len(entry.segments_to),
            bytes_before=sum(record.size_bytes for record in before) or self.config.num_bytes,
            bytes_after=sum(record.size_bytes for record in after),
            rows_before=self.config.num_records,
            rows_after=sum(record.total_docs for record in after),
        )

    def _shuffle(self, inputs: Sequence[SegmentRecord]) -> EndedTask:
        """Distribute the inputs' rows to one file per shard and queue the shards' tasks, which begin once this one
        ends."""
        shuffle = self._queued_shuffle()
        if not shuffle:
            shuffle = self.control.lease.token
            self._make_shards(inputs, self.shards(shuffle))
        self.control.check()
        parts = queue.shard_tasks(self.task, shuffle, self.clock.now_ms())
        queue.create_missing(self.metastore, parts, self.control.fence)
        self.control.reached("shards queued")
        return EndedTask(id=self.task.id, outcome=TaskOutcome.SUCCEEDED, level=self.config.level)

    def _queued_shuffle(self) -> str:
        """Return the shuffle whose shard tasks an earlier run has begun to queue: all of its files are there. Return an
        empty text if there is none."""
        queued = queue.list_tasks(self.metastore, self.task.kind).values()
        parts = (task.record for task in queued if queue.whole_of(task.record.id) == self.task.id)
        return next((queue.merge_config(part).shuffle for part in parts), "")

    def _make_shards(self, inputs: Sequence[SegmentRecord], shards: ShardFiles) -> None:
        paths = self._fetch(inputs)
        folder = self.folder / "shards"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        files = merge_plans.shuffle(
            merge_plans.merge_plan(self.table, self.config, self.clock),
            paths,
            folder,
            self.config.num_shards,
            self.control,
        )
        self.control.reached("shards built")
        shards.put_inputs(files, self.control)
        self.control.reached("shards uploaded")

    def _merge_shard(self, entry: LineageEntry | None, shard: int, inputs: Sequence[SegmentRecord]) -> EndedTask:
        """Build and upload the outputs of one shard. The run that finds all shards done ends the replacement; two runs
        may find it at the same time and do the same."""
        shards = self.shards(self.config.shuffle)
        if shards.outputs_of(shard) is None:
            check_room(self.folder, round(DISK_SHARE * self.config.num_bytes / self.config.num_shards))
            try:
                source = shards.fetch_input(shard, self.folder / "in")
            except NotFoundError as error:
                raise ObsoleteError(f"rows of the shard are gone, the bucket is cut anew cause={error}") from error
            records = self._upload(self._merged(inputs, [source]))
            shards.put_outputs(shard, records)
            self.control.reached("shard done")
        everything = shards.all_outputs(self.config.num_shards)
        if everything is None:
            return EndedTask(id=self.task.id, outcome=TaskOutcome.SUCCEEDED, level=self.config.level)
        return self._replace(entry, inputs, everything)


def _has_all(view: TableView, entry: LineageEntry, config: MergeTaskConfig) -> bool:
    """Return whether every output is published, so that nothing has to be built."""
    records = [view.segment(name) for name in entry.segments_to]
    return all(record is not None and record.replaces == config.entry for record in records)


def _config(task: TaskRecord) -> MergeTaskConfig:
    try:
        return queue.merge_config(task)
    except CorruptionError as error:
        raise InvalidInputError(str(error)) from error
