"""Everything that shared state says about a MergeRollupTask, read together, and the generator's decision about it.

Blocking; any thread may call. State that has not changed since the last look is neither read nor decided anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from merlot.clock import Clock
from merlot.cluster.manifests import rollups
from merlot.cluster.manifests.rollups import RollupRecord
from merlot.cluster.manifests.tables import find_table
from merlot.cluster.manifests.tables import spec_of as table_spec_of
from merlot.cluster.records import LineageState, TableRecord
from merlot.cluster.segments.lineage_rules import MAX_ENTRIES
from merlot.cluster.segments.view import TableView, load
from merlot.cluster.tasks import queue as tasks
from merlot.cluster.tasks.queue import (
    MERGE_ROLLUP,
    MergeTaskConfig,
    QueuedTask,
    TaskState,
    WatermarkRecord,
    merge_config,
)
from merlot.controller.merges.generator import Generated, MergeSituation, generate
from merlot.controller.merges.tasks import is_task_of
from merlot.errors import CorruptionError, InvalidInputError, NotFoundError
from merlot.ids import TableName, raw_name
from merlot.metastore.protocol import Metastore
from merlot.spec.manifest.rollup_checks import against_table
from merlot.spec.table import TableSpec
from merlot.spec.tasks import MergeRollupSpec

CLOCK_STEPS_MS = (1_000, 60_000)
"""Limits of the time for which a decision about the same state is reused: a sixtieth of a bucket."""

View = Callable[[TableName], TableView]
"""Function that returns the current view of a table; raises NotFoundError."""

RESERVED_ENTRIES = 100
"""Number of a table's replacements that merges leave to others: backfills, users."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RollupTask:
    """A task of the queue and its configuration."""

    queued: QueuedTask
    config: MergeTaskConfig

    @property
    def id(self) -> str:
        """Return the task's id."""
        return self.queued.record.id

    @property
    def state(self) -> TaskState:
        """Return whether the task waits or runs, was set aside, or is being undone."""
        return self.queued.record.state

    @property
    def is_unfinished(self) -> bool:
        """Return whether the task holds its segments, as all do that have not failed for good."""
        return self.state is not TaskState.POISONED

    @property
    def unit_id(self) -> str:
        """Return the id of the undivided task: for a shard, the id of the task that was split."""
        shard = self.config.shard
        return self.id if shard is None else self.id.removesuffix(f"-{shard}of{self.config.num_shards}")


@dataclass(frozen=True)
class RollupFacts:
    """A MergeRollupTask at one point in time."""

    record: RollupRecord
    version: int
    """Version of the manifest's node."""
    spec: MergeRollupSpec
    table: TableRecord | None
    table_spec: TableSpec | None
    view: TableView | None
    watermarks: WatermarkRecord
    watermarks_version: int | None
    tasks: tuple[RollupTask, ...]
    now_ms: int

    @property
    def name(self) -> str:
        """Return the manifest's name."""
        return self.record.name

    @property
    def problem(self) -> str | None:
        """Return why nothing can be merged at all, and what to do; None if merging is possible."""
        if self.table_spec is None or self.view is None:
            return f'there is no table "{raw_name(self.record.table)}"; apply it, and merges begin'
        problems = against_table(self.spec, self.table_spec)
        return "; ".join(map(str, problems)) or None

    @property
    def is_suspended(self) -> bool:
        """Return whether its own manifest or that of its table suspends it."""
        return self.spec.suspend or (self.table_spec is not None and self.table_spec.suspend)

    @cached_property
    def levels_begun(self) -> Mapping[str, int]:
        """Return the stored watermarks by level, unless they are of a deleted table of the same name."""
        is_same = self.table is not None and self.watermarks.table_created_ms in (-1, self.table.created_ms)
        return self.watermarks.levels if is_same else {}

    @cached_property
    def busy(self) -> frozenset[str]:
        """Return the names of segments that a task or another replacement is about to replace."""
        assert self.view is not None
        begun = {entry for entry, mark in self.view.lineage.items() if mark.state is LineageState.IN_PROGRESS}
        held = {key.rpartition("@")[0] for task in self.tasks if task.is_unfinished for key in task.config.inputs}
        if begun:
            held |= {segment.name for segment in self.view.visible.values() if segment.replaced_by in begun}
        return frozenset(held)

    @property
    def room(self) -> int:
        """Return how many merges may be queued until the table has as many replacements as it can keep; each is kept
        for hours."""
        assert self.view is not None
        entries = {*self.view.lineage, *(task.config.entry for task in self.tasks if task.is_unfinished)}
        return max(0, MAX_ENTRIES - RESERVED_ENTRIES - len(entries))

    def situation(self) -> MergeSituation:
        """Return the input of the generator; the table must exist."""
        assert self.view is not None
        assert self.table_spec is not None
        return MergeSituation(
            rollup=self.name,
            revision=self.record.revision,
            table=self.record.table,
            spec=self.spec,
            visible=self.view.visible,
            watermarks=self.levels_begun,
            now_ms=self.now_ms,
            retention_ms=self.table_spec.retention_ms,
            unfinished={task.config.level.lower() for task in self.tasks if task.is_unfinished},
            busy=self.busy,
            room=self.room,
            by_partition=self.table_spec.is_strict,
            set_aside={task.unit_id for task in self.tasks if not task.is_unfinished},
        )

    def is_obsolete(self, task: RollupTask) -> bool:
        """Return whether a task reads segments that are gone, unless it has replaced them itself."""
        if self.view is None:
            return True
        mark = self.view.lineage.get(task.config.entry)
        if mark is not None and mark.state is LineageState.COMPLETED:
            return False
        keys = (key.rpartition("@") for key in task.config.inputs)
        inputs = ((self.view.visible.get(name), crc) for name, _, crc in keys)
        return any(record is None or str(record.crc) != crc for record, crc in inputs)


class RollupReader:
    """Reader of facts that remembers the last decisions. `view` returns views that the caller keeps; without it they
    are loaded."""

    def __init__(self, metastore: Metastore, clock: Clock, view: View | None = None) -> None:
        self._metastore = metastore
        self._clock = clock
        self._lock = threading.Lock()
        self._load = view or self._own_view
        self._views: dict[TableName, TableView] = {}
        self._specs: dict[str, tuple[tuple[int, int], MergeRollupSpec]] = {}
        self._table_specs: dict[TableName, tuple[tuple[int, int], TableSpec]] = {}
        self._decided: dict[str, tuple[object, Generated]] = {}
        self.declared: Mapping[str, RollupRecord] = {}
        """All MergeRollupTasks of the last look whose records can be read, by name."""
        self.unreadable: Set[str] = frozenset()
        """Names of the other MergeRollupTasks of the last look."""

    def all(self) -> list[RollupFacts]:
        """Return every MergeRollupTask that can be read, by name. One that a newer version wrote, or that is damaged,
        does not stop the others, nor does a task of its table."""
        queued = tasks.list_readable(self._metastore, MERGE_ROLLUP)
        versions, self.unreadable = rollups.readable_versions(self._metastore)
        self.declared = {name: record for name, (record, _) in versions.items()}
        self._forget(versions.keys())
        readable = []
        for name in sorted(self.unreadable):
            _LOG.warning("MergeRollupTask cannot be read name=%s cause=its record is damaged", name)
        for name, (record, version) in sorted(versions.items()):
            try:
                readable.append(self._read(record, version, *queued))
            except (CorruptionError, InvalidInputError) as error:
                _LOG.warning("MergeRollupTask cannot be read name=%s cause=%s", name, error)
        return readable

    def get(self, name: str) -> RollupFacts:
        """Return the MergeRollupTask of a name. Raise NotFoundError if there is none."""
        record, version = rollups.get_version(self._metastore, name)
        return self._read(record, version, *tasks.list_readable(self._metastore, MERGE_ROLLUP))

    def decide(self, facts: RollupFacts) -> Generated:
        """Return the generator's decision about the facts."""
        assert facts.view is not None
        key = (
            *(facts.version, facts.record.revision, facts.view.epoch, facts.view.version, facts.watermarks_version),
            facts.table and facts.table.version,
            tuple((task.id, task.queued.version) for task in facts.tasks),
            facts.now_ms // _clock_step_ms(facts.spec),
        )
        with self._lock:
            cached = self._decided.get(facts.name)
        if cached is not None and cached[0] == key:
            return cached[1]
        generated = generate(facts.situation())
        with self._lock:
            self._decided[facts.name] = (key, generated)
        return generated

    def _read(
        self,
        record: RollupRecord,
        version: int,
        queued: Mapping[str, QueuedTask],
        unreadable: Mapping[str, CorruptionError],
    ) -> RollupFacts:
        for task_id, error in unreadable.items():
            if is_task_of(task_id, record.table):
                raise error  # it is not known which segments the task holds
        table = find_table(self._metastore, record.table)
        watermarks, watermarks_version = rollups.watermarks(self._metastore, record.table)
        return RollupFacts(
            record=record,
            version=version,
            spec=self._spec(record),
            table=table,
            table_spec=None if table is None else self._table_spec(table),
            view=None if table is None else self._view(record.table),
            watermarks=watermarks,
            watermarks_version=watermarks_version,
            tasks=tasks_of(record.name, queued),
            now_ms=self._clock.now_ms(),
        )

    def _spec(self, record: RollupRecord) -> MergeRollupSpec:
        cached = self._specs.get(record.name)
        if cached is None or cached[0] != record.version:
            cached = self._specs[record.name] = (record.version, rollups.spec_of(record).spec)
        return cached[1]

    def _table_spec(self, table: TableRecord) -> TableSpec:
        cached = self._table_specs.get(table.name)
        if cached is None or cached[0] != table.version:
            cached = self._table_specs[table.name] = (table.version, table_spec_of(table).spec)
        return cached[1]

    def _view(self, table: TableName) -> TableView | None:
        try:
            return self._load(table)
        except NotFoundError:
            return None

    def _own_view(self, table: TableName) -> TableView:
        view = self._views[table] = load(self._metastore, table, self._views.get(table))
        return view

    def _forget(self, names: Collection[str]) -> None:
        with self._lock:
            self._decided = {name: decided for name, decided in self._decided.items() if name in names}


def tasks_of(rollup: str, queued: Mapping[str, QueuedTask]) -> tuple[RollupTask, ...]:
    """Return the tasks in the queue that belong to a MergeRollupTask."""
    mine = (task for task in queued.values() if task.record.config.get("rollup") == rollup)
    return tuple(RollupTask(task, merge_config(task.record)) for task in mine)


def _clock_step_ms(spec: MergeRollupSpec) -> int:
    least, most = CLOCK_STEPS_MS
    return max(least, min(most, spec.levels[0].bucket.nominal_ms // 60))
