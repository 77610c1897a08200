"""Make the records of merge tasks from buckets and segments. Pure; the same work always has the same id."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from merlot.cluster.tasks.queue import MERGE_ROLLUP, config_json, stable_hash
from merlot.cluster.tasks.records import MergeTaskConfig, TaskRecord, Window
from merlot.cluster.tasks.settings import level_settings
from merlot.controller.merges.candidates import MergeCandidate
from merlot.errors import InvalidInputError
from merlot.ids import TableName, raw_name
from merlot.spec.tasks import BACKFILLED, MERGE_LEVEL, MergeRollupSpec
from merlot.values.datetime_format import datetime_of
from merlot.values.periods import DAY_MS

HASH_LENGTH = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeUnit:
    """Buckets that are merged by one task, and the segments that it reads."""

    windows: tuple[Window, ...]
    rest: tuple[Window, ...]
    """Buckets into which rows of the inputs spill, but which this task does not merge."""
    inputs: tuple[MergeCandidate, ...]

    @property
    def num_docs(self) -> int:
        """Return the number of rows to read."""
        return sum(segment.num_docs for segment in self.inputs)


def is_task_of(task_id: str, table: str) -> bool:
    """Return whether the id is that of a task of the table, also if the task cannot be read."""
    return task_id.startswith(f"{raw_name(table)}.")


class TaskMaker:
    """Maker of the merge tasks of one level."""

    def __init__(self, rollup: str, revision: int, table: TableName, spec: MergeRollupSpec, rank: int) -> None:
        self._rollup = rollup
        self._revision = revision
        self._table = table
        self._spec = spec
        self._rank = rank
        self._level = spec.levels[rank]

    def id_of(self, unit: MergeUnit) -> str:
        """Return the id of the unit's task: table, level, first bucket, and a hash of all that the task does."""
        stamp = _stamp(unit.windows[0][0])
        return f"{raw_name(self._table)}.{self._level.key}.{stamp}.{self._digest(unit)}"

    def task(self, unit: MergeUnit, now_ms: int) -> TaskRecord:
        """Return the unit's task."""
        return TaskRecord(
            id=self.id_of(unit),
            kind=MERGE_ROLLUP,
            table=self._table,
            created_ms=now_ms,
            config=config_json(self._config(unit)),
        )

    def _digest(self, unit: MergeUnit) -> str:
        keys = sorted(segment.key for segment in unit.inputs)
        return stable_hash(self._table, self._rollup, self._revision, self._level.key, unit.windows, *keys)[
            :HASH_LENGTH
        ]

    def _config(self, unit: MergeUnit) -> MergeTaskConfig:
        level, digest = self._level, self._digest(unit)
        prefix = f"{level.key}_{digest}_{raw_name(self._table)}"
        return MergeTaskConfig(
            rollup=self._rollup,
            revision=self._revision,
            level=level.name,
            windows=unit.windows,
            rest=unit.rest,
            inputs=tuple(segment.key for segment in unit.inputs),
            num_records=unit.num_docs,
            num_bytes=sum(segment.num_bytes for segment in unit.inputs),
            entry=f"merge-{level.key}-{digest}",
            output_prefix=f"merged_{prefix}",
            rest_prefix=f"spilled_{prefix}",
            custom_map=self._custom_map(unit),
            rest_custom_map=self._rest_custom_map(unit),
            **level_settings(self._spec, self._rank, unit.num_docs),
        )

    def _custom_map(self, unit: MergeUnit) -> dict[str, str]:
        """Return the custom map of the merged segments: the level, and a flag for backfilled rows, which coarser levels
        need."""
        is_coarsest = self._rank == len(self._spec.levels) - 1
        needs_flag = not is_coarsest and any(segment.is_backfilled for segment in unit.inputs)
        return {MERGE_LEVEL: self._level.name} | ({BACKFILLED: "true"} if needs_flag else {})

    def _rest_custom_map(self, unit: MergeUnit) -> dict[str, str]:
        """Return the custom map of the spilled segments: the lowest level of the inputs that spill, so that no row
        counts as merged to a higher level than it is."""
        spilling = [segment for segment in unit.inputs if _reaches(segment, unit.rest)]
        if not spilling:
            return {}
        rank = min(segment.rank for segment in spilling)
        level_entry = {MERGE_LEVEL: self._spec.levels[rank].name} if rank >= 0 else {}
        return level_entry | ({BACKFILLED: "true"} if any(segment.is_backfilled for segment in spilling) else {})


def _reaches(segment: MergeCandidate, windows: Sequence[Window]) -> bool:
    index = bisect_right(windows, segment.start_ms, key=lambda window: window[1])
    return index < len(windows) and windows[index][0] <= segment.end_ms


def _stamp(millis: int) -> str:
    """Return the bucket's start in a readable form."""
    try:
        moment = datetime_of(millis)
    except InvalidInputError:
        return str(millis)
    form = "%Y-%m-%d" if millis % DAY_MS == 0 else "%Y-%m-%dT%H%M%S"
    return moment.strftime(form)
