"""All that shared state says about a MergeRollupTask, read together, and what the generator makes of it.

Blocking; any thread may call. What has not changed since the last look is neither read nor decided anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
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
from merlot.errors import CorruptionError, InvalidInputError, NotFoundError
from merlot.ids import TableName, raw_name
from merlot.metastore.protocol import Metastore
from merlot.spec.manifest.rollup_checks import against_table
from merlot.spec.table import TableSpec
from merlot.spec.tasks import MergeRollupSpec

CLOCK_STEPS_MS = (1_000, 60_000)
"""A decision of the same state is kept for a sixtieth of a bucket, within these limits."""

View = Callable[[TableName], TableView]
"""The current view of a table; raises NotFoundError."""

RESERVED_ENTRIES = 100
"""Of the replacements that a table may keep, those that merges leave to others: backfills, people."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RollupTask:
    """A task of the queue, with what it does."""

    queued: QueuedTask
    config: MergeTaskConfig

    @property
    def id(self) -> str:
        """The task's id."""
        return self.queued.record.id

    @property
    def state(self) -> TaskState:
        """Waiting or running, set aside, or being undone."""
        return self.queued.record.state

    @property
    def is_unfinished(self) -> bool:
        """Whether it holds its segments: all but those that failed for good."""
        return self.state is not TaskState.POISONED

    @property
    def unit_id(self) -> str:
        """The id of the whole: of a part, that of the task that was split."""
        shard = self.config.shard
        return self.id if shard is None else self.id.removesuffix(f"-{shard}of{self.config.num_shards}")


@dataclass(frozen=True)
class RollupFacts:
    """One MergeRollupTask at one moment."""

    record: RollupRecord
    version: int
    """Of the manifest's node."""
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
        """The manifest's name."""
        return self.record.name

    @property
    def problem(self) -> str | None:
        """Why nothing can be merged at all, and what to do; None if it can."""
        if self.table_spec is None or self.view is None:
            return f'there is no table "{raw_name(self.record.table)}"; apply it, and merges begin'
        problems = against_table(self.spec, self.table_spec)
        return "; ".join(map(str, problems)) or None

    @property
    def is_suspended(self) -> bool:
        """By its own manifest, or by its table's."""
        return self.spec.suspend or (self.table_spec is not None and self.table_spec.suspend)

    @cached_property
    def levels_begun(self) -> Mapping[str, int]:
        """Stored watermarks, unless they are about a table of the same name that is gone."""
        is_same = self.table is not None and self.watermarks.table_created_ms in (-1, self.table.created_ms)
        return self.watermarks.levels if is_same else {}

    @cached_property
    def busy(self) -> frozenset[str]:
        """Segments that a task or another replacement is about to replace."""
        assert self.view is not None
        begun = {entry for entry, mark in self.view.lineage.items() if mark.state is LineageState.IN_PROGRESS}
        held = {key.rpartition("@")[0] for task in self.tasks if task.is_unfinished for key in task.config.inputs}
        if begun:
            held |= {one.name for one in self.view.visible.values() if one.replaced_by in begun}
        return frozenset(held)

    @property
    def room(self) -> int:
        """How many merges may be queued before the table keeps as many replacements as it can, each for hours."""
        assert self.view is not None
        kept = {*self.view.lineage, *(task.config.entry for task in self.tasks if task.is_unfinished)}
        return max(0, MAX_ENTRIES - RESERVED_ENTRIES - len(kept))

    def situation(self) -> MergeSituation:
        """For the generator; the table must be there."""
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
        """Whether a task is about segments that are gone, though it has not replaced them itself."""
        if self.view is None:
            return True
        mark = self.view.lineage.get(task.config.entry)
        if mark is not None and mark.state is LineageState.COMPLETED:
            return False
        keys = (key.rpartition("@") for key in task.config.inputs)
        found = ((self.view.visible.get(name), crc) for name, _, crc in keys)
        return any(record is None or str(record.crc) != crc for record, crc in found)


class RollupReader:
    """Reads facts, and remembers the decisions of the last look. `view` is asked for views, by whoever keeps them."""

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
        """All that there were at the last look, readable or not."""

    def all(self) -> list[RollupFacts]:
        """Every MergeRollupTask that can be read, by name. One that a newer version wrote must not stop the others."""
        queued = tasks.list_tasks(self._metastore, MERGE_ROLLUP)
        found = rollups.list_versions(self._metastore)
        self.declared = {name: record for name, (record, _) in found.items()}
        self._forget(found.keys())
        readable = []
        for name, (record, version) in sorted(found.items()):
            try:
                readable.append(self._read(record, version, queued))
            except (CorruptionError, InvalidInputError) as error:
                _LOG.warning("MergeRollupTask cannot be read name=%s cause=%s", name, error)
        return readable

    def one(self, name: str) -> RollupFacts:
        """NotFoundError if there is none of that name."""
        found = rollups.list_versions(self._metastore).get(name)
        if found is None:
            raise NotFoundError(f"MergeRollupTask does not exist name={name}")
        return self._read(*found, tasks.list_tasks(self._metastore, MERGE_ROLLUP))

    def decide(self, facts: RollupFacts) -> Generated:
        """What the generator makes of the facts."""
        assert facts.view is not None
        key = (
            *(facts.version, facts.record.revision, facts.view.epoch, facts.view.version, facts.watermarks_version),
            facts.table and (facts.table.created_ms, facts.table.revision),
            tuple((task.id, task.queued.version) for task in facts.tasks),
            facts.now_ms // _clock_step_ms(facts.spec),
        )
        with self._lock:
            kept = self._decided.get(facts.name)
        if kept is not None and kept[0] == key:
            return kept[1]
        generated = generate(facts.situation())
        with self._lock:
            self._decided[facts.name] = (key, generated)
        return generated

    def _read(self, record: RollupRecord, version: int, queued: Mapping[str, QueuedTask]) -> RollupFacts:
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
        key = (record.created_ms, record.revision)
        known = self._specs.get(record.name)
        if known is None or known[0] != key:
            known = self._specs[record.name] = (key, rollups.spec_of(record).spec)
        return known[1]

    def _table_spec(self, table: TableRecord) -> TableSpec:
        key = (table.created_ms, table.revision)
        known = self._table_specs.get(table.name)
        if known is None or known[0] != key:
            known = self._table_specs[table.name] = (key, table_spec_of(table).spec)
        return known[1]

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
            self._decided = {name: one for name, one in self._decided.items() if name in names}


def tasks_of(rollup: str, queued: Mapping[str, QueuedTask]) -> tuple[RollupTask, ...]:
    """The queue's tasks that a MergeRollupTask made."""
    mine = (task for task in queued.values() if task.record.config.get("rollup") == rollup)
    return tuple(RollupTask(task, merge_config(task.record)) for task in mine)


def _clock_step_ms(spec: MergeRollupSpec) -> int:
    least, most = CLOCK_STEPS_MS
    return max(least, min(most, spec.levels[0].bucket.nominal_ms // 60))
