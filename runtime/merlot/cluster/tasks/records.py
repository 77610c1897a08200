"""Records of the nodes of tasks: the queue, the progress, the history, and the watermarks.

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
"""Start and end of a bucket in epoch milliseconds; the end is exclusive."""

SHUFFLE_FOLDER = ".shuffle"
"""Folder beside a table's segments, with a folder for each replacement: files that the shards of its large buckets
share."""


class TaskState(StrEnum):
    """State of a task. QUEUED: to be run, or being run by the holder of its lease. POISONED: failed too often, set
    aside with its last error. CANCELLED: the next holder of its lease undoes what was begun and deletes it."""

    QUEUED = "QUEUED"
    POISONED = "POISONED"
    CANCELLED = "CANCELLED"


class TaskRecord(PackedRecord):
    """A task, as it waits in its queue and as it runs. It is compressed, since it may name thousands of segments."""

    id: str
    kind: str
    table: TableName
    created_ms: int
    config: dict[str, Any] = Field(default_factory=dict)
    """JSON form of the kind's own record, such as MergeTaskConfig."""
    state: TaskState = TaskState.QUEUED
    attempts: int = 0
    """Number of attempts that began and failed."""
    broken_off: tuple[str, ...] = ()
    """Runs that ended without a report, as `minion@start in milliseconds`. The minion is taken for dead. If it turns
    out to be alive, it could not reach ZooKeeper when it wanted to report."""
    not_before_ms: int = -1
    """Time until which the next attempt waits."""
    last_error: str = ""


class AggregationRecord(Record):
    """Aggregation of one metric by a rollup."""

    function: str
    parameters: dict[str, str] = Field(default_factory=dict)


class MergeTaskConfig(Record):
    """Work of a MergeRollupTask: read the inputs, merge the rows of `windows`, and write the rows of `rest` unchanged.

    Each window is a bucket of the level, and no output has rows of two windows. The windows' outputs carry
    `custom_map`, the rest's `rest_custom_map`. Together they are all rows of the inputs."""

    rollup: str
    """Name of the manifest."""
    revision: int = 0
    """Revision of the manifest that decided this."""
    level: str
    level_index: int
    merge_type: MergeType = MergeType.CONCAT
    bucket_period: str
    windows: tuple[Window, ...]
    """Buckets to merge, ascending; several where segments spill from one to the next."""
    rest: tuple[Window, ...] = ()
    """Buckets that the inputs reach into and that are not merged now. Their rows of these inputs are concatenated,
    without rounding and erasing, under `rest_prefix`."""
    inputs: tuple[str, ...]
    """Segments as `name@crc`, ascending by time."""
    num_records: int = 0
    """Number of rows of the inputs."""
    num_bytes: int = 0
    """Size of the inputs' files."""
    round_period: str | None = None
    aggregations: dict[str, AggregationRecord] = Field(default_factory=dict)
    """Aggregations by metric; metrics without one are summed."""
    erase_dimensions: tuple[str, ...] = ()
    max_records_per_segment: int = 5_000_000
    num_shards: int = 1
    """Number of parts that the rows are split into by the hash of their keys; 1 means no split."""
    shard: int | None = None
    """Part that this task merges; None for all of it, or for the shuffle that makes the parts."""
    shuffle: str = ""
    """Run that made the parts, which has a folder of its own; set in the task of a part."""
    entry: str
    """Id of the lineage entry that replaces the inputs by the outputs; the same for all shards."""
    output_prefix: str
    """Prefix of the outputs' names."""
    rest_prefix: str = ""
    custom_map: dict[str, str] = Field(default_factory=dict)
    rest_custom_map: dict[str, str] = Field(default_factory=dict)
    executor: Executor = Executor.MINION


MERGE_LEVEL: Final = "merge"
"""Level under which the history sums up tasks that merge segments."""


class CompactionConfig(Record):
    """Work of an UpsertCompactionTask: rewrite a sealed segment of an upsert table without the rows that were replaced,
    or remove it if all its rows were; or merge it with segments before it."""

    segment: str
    """Segment, as `name@crc`."""
    merged: tuple[str, ...] = ()
    """Segments before it whose rows go into its file too, as `name@crc` in the order of the stream."""
    partition: int
    num_records: int = 0
    num_invalid: int = 0
    """Number of rows among `num_records` that were invalid when the task was made."""
    num_bytes: int = 0
    level: str = "compaction"
    """Level under which the history sums up the task."""

    @property
    def segments(self) -> tuple[str, ...]:
        """All segments that are read, in the order of the stream."""
        return (*self.merged, self.segment)


class ValidDocsRecord(PackedRecord):
    """Valid docs of a segment, judged by sealed rows only, so an invalid doc stays invalid. A merge has the valid
    docs of all its segments, one after the other."""

    segment: str
    """Last of the segments, as `name@crc`."""
    num_docs: int
    """Number of docs of the segments, valid or not."""
    docs: str
    """Valid docs: a roaring bitmap in the portable format, in base64."""
    instance: str = ""
    """Server that reported them."""


class TaskProgress(Record):
    """Progress of a running task. The last writer wins; it writes at most once a second."""

    phase: str = ""
    rows: int = 0
    rows_total: int = 0
    num_bytes: int = 0
    started_ms: int = -1
    updated_ms: int = -1
    owner: str = ""


class TaskOutcome(StrEnum):
    """Outcome of a task."""

    SUCCEEDED = "SUCCEEDED"
    POISONED = "POISONED"
    CANCELLED = "CANCELLED"


class EndedTask(Record):
    """A task that has ended, as users see it in the history."""

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
        """Return the sums with one more task."""
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
    """Last tasks of a table, newest first, and sums over all tasks that have ever succeeded."""

    tasks: tuple[EndedTask, ...] = ()
    totals: dict[str, LevelTotals] = Field(default_factory=dict)
    """Sums by level."""
    last_error: str = ""
    last_error_ms: int = -1


class WatermarkRecord(Record):
    """Watermarks of a table's merges: per level, the start of the bucket that was begun last."""

    rollup: str = ""
    """Name of the MergeRollupTask of the table: a second one is refused."""
    table_created_ms: int = -1
    """Creation time of the table that the levels belong to: a table that is deleted and created again starts from the
    beginning."""
    levels: dict[str, int] = Field(default_factory=dict)
    """Epoch milliseconds by the level's name in lower case."""
    last_run_ms: int = -1
    """Time when tasks were last made."""
