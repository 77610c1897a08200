"""What the nodes of tasks hold: the queue, the progress, the history, and how far a table has come.

Fields that a version does not know are kept, as in `records`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from pydantic import Field

from merlot.cluster.record import PackedRecord, Record
from merlot.ids import TableName
from merlot.spec.tasks import Executor, MergeType

Window = tuple[int, int]
"""Start and end of a bucket, epoch milliseconds; the end is not part of it."""

SHUFFLE_FOLDER = ".shuffle"
"""Beside a table's segments: what the shards of its large buckets share, in a folder for each replacement."""


class TaskState(StrEnum):
    """QUEUED: to be run, or being run by the holder of its lease. POISONED: failed too often, set aside with its last
    error. CANCELLED: whoever takes its lease next undoes what it began and deletes it."""

    QUEUED = "QUEUED"
    POISONED = "POISONED"
    CANCELLED = "CANCELLED"


class TaskRecord(PackedRecord):
    """A task, as it waits in its queue and as it runs. Compressed: it may name thousands of segments."""

    id: str
    kind: str
    table: TableName
    created_ms: int
    config: dict[str, Any] = Field(default_factory=dict)
    """The JSON form of the kind's own record, such as MergeTaskConfig."""
    state: TaskState = TaskState.QUEUED
    attempts: int = 0
    """How often it was begun and failed."""
    broken_off: tuple[str, ...] = ()
    """Runs of which nobody heard the end, as `minion@milliseconds of its begin`: the minion died at it, unless it turns
    out to live, and only ZooKeeper was silent when it wanted to say so."""
    not_before_ms: int = -1
    """The next attempt waits until then."""
    last_error: str = ""


class AggregationRecord(Record):
    """How a rollup folds one metric."""

    function: str
    parameters: dict[str, str] = Field(default_factory=dict)


class MergeTaskConfig(Record):
    """What a MergeRollupTask does: read the inputs, write the rows of `windows` merged and those of `rest` as they are.

    Each window is a bucket of the level, and no output spills over one. The windows' outputs carry `custom_map`, the
    rest's `rest_custom_map`. Together they are all rows of the inputs.
    """

    rollup: str
    """Name of the manifest."""
    revision: int = 0
    """The manifest's revision that decided this."""
    level: str
    level_index: int
    merge_type: MergeType = MergeType.CONCAT
    bucket_period: str
    windows: tuple[Window, ...]
    """Buckets to merge, ascending; several where segments spill from one to the next."""
    rest: tuple[Window, ...] = ()
    """Buckets that the inputs reach into and that are not merged now: their rows of these inputs are written by concat,
    without rounding and erasing, under `rest_prefix`."""
    inputs: tuple[str, ...]
    """Segments as `name@crc`, ascending by time."""
    num_records: int = 0
    """Rows of the inputs."""
    num_bytes: int = 0
    """Size of the inputs' files."""
    round_period: str | None = None
    aggregations: dict[str, AggregationRecord] = Field(default_factory=dict)
    """By metric; those that are missing are summed."""
    erase_dimensions: tuple[str, ...] = ()
    max_records_per_segment: int = 5_000_000
    num_shards: int = 1
    """Into how many parts the rows are split by the hash of their keys; 1: not at all."""
    shard: int | None = None
    """The part that this task merges; None: all of it, or the shuffle that makes the parts."""
    shuffle: str = ""
    """Of a part: the run that made the parts, which has a folder of its own."""
    entry: str
    """Id of the lineage entry that replaces the inputs by the outputs; the same for all shards."""
    output_prefix: str
    """What the names of the outputs begin with."""
    rest_prefix: str = ""
    custom_map: dict[str, str] = Field(default_factory=dict)
    rest_custom_map: dict[str, str] = Field(default_factory=dict)
    executor: Executor = Executor.MINION


MERGE_LEVEL: Final = "merge"
"""By which the history sums up tasks that merge segments."""


class CompactionConfig(Record):
    """What an UpsertCompactionTask does: rewrite a sealed segment of an upsert table without rows that were replaced,
    or remove it, if it has no others; or merge it with those before it."""

    segment: str
    """As `name@crc`."""
    merged: tuple[str, ...] = ()
    """Segments before it whose rows go into its file, too, as `name@crc` in the order of the stream."""
    partition: int
    num_records: int = 0
    num_invalid: int = 0
    """Of them, when the task was made."""
    num_bytes: int = 0
    level: str = "compaction"
    """What the task's history is summed up by."""

    @property
    def segments(self) -> tuple[str, ...]:
        """All that are read, in the order of the stream."""
        return (*self.merged, self.segment)


class ValidDocsRecord(PackedRecord):
    """Which docs of a segment are valid by what is sealed: whatever else is not, stays so. Of a merge, all its segments
    one after the other."""

    segment: str
    """The last one, as `name@crc`."""
    num_docs: int
    """Docs of the segments, valid or not."""
    docs: str
    """The valid ones: a roaring bitmap in the portable format, in base64."""
    instance: str = ""
    """Who told."""


class TaskProgress(Record):
    """How far a running task is. The last writer wins; written at most once a second."""

    phase: str = ""
    rows: int = 0
    rows_total: int = 0
    num_bytes: int = 0
    started_ms: int = -1
    updated_ms: int = -1
    owner: str = ""


class TaskOutcome(StrEnum):
    """How a task ended."""

    SUCCEEDED = "SUCCEEDED"
    POISONED = "POISONED"
    CANCELLED = "CANCELLED"


class EndedTask(Record):
    """A task that has ended, for people."""

    id: str
    outcome: TaskOutcome
    level: str = ""
    windows: tuple[Window, ...] = ()
    owner: str = ""
    started_ms: int = -1
    ended_ms: int = -1
    attempts: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows_before: int = 0
    rows_after: int = 0
    error: str = ""


class LevelTotals(Record):
    """Sums over the tasks of a level that have succeeded."""

    tasks: int = 0
    buckets: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows_before: int = 0
    rows_after: int = 0

    def plus(self, task: EndedTask) -> LevelTotals:
        """With one more task."""
        return self.model_copy(
            update={
                "tasks": self.tasks + 1,
                "buckets": self.buckets + len(task.windows),
                "segments_before": self.segments_before + task.segments_before,
                "segments_after": self.segments_after + task.segments_after,
                "bytes_before": self.bytes_before + task.bytes_before,
                "bytes_after": self.bytes_after + task.bytes_after,
                "rows_before": self.rows_before + task.rows_before,
                "rows_after": self.rows_after + task.rows_after,
            }
        )


class TaskHistory(PackedRecord):
    """The last tasks of a table, newest first, and sums over all that there ever were."""

    tasks: tuple[EndedTask, ...] = ()
    totals: dict[str, LevelTotals] = Field(default_factory=dict)
    """By level."""
    last_error: str = ""
    last_error_ms: int = -1


class WatermarkRecord(Record):
    """How far a table's merges have come: per level, the start of the bucket that was begun last."""

    rollup: str = ""
    """Name of the MergeRollupTask that the table belongs to: a second one is refused."""
    table_created_ms: int = -1
    """When the table was created that the levels are about: one deleted and made anew begins from the start."""
    levels: dict[str, int] = Field(default_factory=dict)
    """Epoch milliseconds by the level's name in lower case."""
    last_run_ms: int = -1
    """When tasks were last made."""
