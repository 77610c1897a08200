"""MergeRollupTask manifest: how small segments of a table become few large ones, level by level.

Names and defaults are Pinot's (`MergeRollupTask` in its task configs), in YAML's form. Rules between fields are in
`rules.rollup`, rules between them and the Table in `manifest.rollup_checks`.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from merlot.ids import RawTableName, TableName, offline
from merlot.spec.column_names import ColumnName
from merlot.spec.model import SpecModel
from merlot.spec.table import ObjectMeta
from merlot.values import periods

KIND = "MergeRollupTask"
MERGE_LEVEL = "MergeRollupTask.mergeLevel"
"""Key of a segment's custom map: the level that produced the segment."""
MERGE_TIME = "MergeRollupTask.time"
"""Key of a segment's custom map: when it was merged, epoch milliseconds."""
BACKFILLED = "MergeRollupTask.backfilled"
"""Key of a segment's custom map: a backfill wrote the segment, so its bucket is merged again, however old it is."""
ROUNDED_TO = "MergeRollupTask.roundBucketTimePeriod"
"""Key of a segment's custom map: the periods to which times of its rows were rounded, joined by commas."""
SHOULD_NOT_MERGE = "shouldNotMerge"
"""Key of a segment's custom map: `true` excludes the segment from merging."""

DEFAULT_SCHEDULE = "1m"
MAX_LEVELS = 10
LEAST_RECORDS_PER_TASK = 1_000
"""Least value of `maxNumRecordsPerTask`. Each part of a bucket is a task of its own, and a smaller one costs more than
it merges."""
MAX_SHARDS = 100
"""Most parts of a bucket. The task of each part names all of the bucket's segments."""
TABLE_NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
LEVEL_NAME = r"^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$"

PeriodText = Annotated[str, Field(pattern=periods.PERIOD, max_length=8)]


class MergeType(StrEnum):
    """Effect of a merge on the rows of a bucket."""

    CONCAT = "concat"
    ROLLUP = "rollup"
    DEDUP = "dedup"


class Mode(StrEnum):
    """Where a level looks for buckets to merge."""

    PROCESS_FROM_WATERMARK = "processFromWatermark"
    PROCESS_ALL = "processAll"


class Executor(StrEnum):
    """Where a merge runs."""

    MINION = "minion"
    SPARK = "spark"


class RollupFunction(StrEnum):
    """How a rollup folds the values of a metric."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    COUNT = "count"
    DISTINCT_COUNT_HLL = "distinctCountHLL"
    DISTINCT_COUNT_RAW_HLL = "distinctCountRawHLL"
    DISTINCT_COUNT_ULL = "distinctCountULL"
    DISTINCT_COUNT_RAW_ULL = "distinctCountRawULL"
    PERCENTILE_TDIGEST = "percentileTDigest"
    PERCENTILE_RAW_TDIGEST = "percentileRawTDigest"
    AVG = "avg"


SKETCHES = (
    RollupFunction.DISTINCT_COUNT_HLL,
    RollupFunction.DISTINCT_COUNT_RAW_HLL,
    RollupFunction.DISTINCT_COUNT_ULL,
    RollupFunction.DISTINCT_COUNT_RAW_ULL,
    RollupFunction.PERCENTILE_TDIGEST,
    RollupFunction.PERCENTILE_RAW_TDIGEST,
    RollupFunction.AVG,
)
"""Functions of serialized sketches, which BYTES metrics hold."""
TDIGESTS = (RollupFunction.PERCENTILE_TDIGEST, RollupFunction.PERCENTILE_RAW_TDIGEST)
COMPRESSION_FACTOR = "compressionFactor"
"""Parameter of t-digests: about how many centroids they have."""
DEFAULT_COMPRESSION = 100
LEAST_COMPRESSION, MOST_COMPRESSION = 10, 10_000


class RollupAggregation(SpecModel):
    """How a rollup folds one metric."""

    aggregation_type: RollupFunction = RollupFunction.SUM
    """sum, min or max; count says that the column holds counts of rows, and adds them. The others merge serialized
    sketches, in BYTES: HyperLogLogs, UltraLogLogs, t-digests, pairs of sum and count."""
    parameters: Mapping[str, str] = {}
    """Settings of the function: compressionFactor of a t-digest (100), a whole number from 10; the others have none."""


class MergeLevel(SpecModel):
    """One granularity, such as daily; levels are listed from the finest to the coarsest."""

    name: str = Field(pattern=LEVEL_NAME, max_length=40)
    """Name of the level, such as daily, recorded in the resulting segments. A new name makes the level run again."""
    merge_type: MergeType = MergeType.CONCAT
    """concat: rows stay as they are. rollup: rows that agree in everything but the metrics become one. dedup: rows that
    agree in everything become one."""
    bucket_time_period: PeriodText
    """Length of a bucket, such as 1h, 1d, 7d or 1mo (calendar month), UTC; no resulting segment extends beyond one."""
    buffer_time_period: PeriodText
    """Age at which a bucket is merged, which is how late rows may arrive. 0d: at once."""
    round_bucket_time_period: PeriodText | None = None
    """Period to which the time column is rounded down before rows are compared, such as 1h, by the column's own time
    zone and unit; not rounded if left out."""
    max_num_records_per_segment: int = Field(5_000_000, ge=1, le=2_000_000_000)
    """Most rows of a resulting segment."""
    max_num_records_per_task: int = Field(50_000_000, ge=LEAST_RECORDS_PER_TASK, le=1_000_000_000_000)
    """Most rows that one task merges, 1000 or more; a larger bucket is split by the hash of its rows' keys, into 100
    parts at most."""
    max_num_parallel_buckets: int = Field(1, ge=1, le=1_000)
    """Most buckets that are merged at a time."""
    erase_dimension_values: Annotated[tuple[ColumnName, ...], Field(max_length=2000)] = ()
    """Dimensions whose values become null before rows are compared, so that more rows become one."""

    @cached_property
    def bucket(self) -> periods.Period:
        """Period of a bucket."""
        return periods.parse(self.bucket_time_period)

    @cached_property
    def buffer(self) -> periods.Period:
        """Age at which a bucket is merged."""
        return periods.parse(self.buffer_time_period)

    @cached_property
    def rounding(self) -> periods.Period | None:
        """Period to which times are rounded, or None."""
        text = self.round_bucket_time_period
        return None if text is None else periods.parse(text)

    @property
    def key(self) -> str:
        """Name in the form in which levels are compared: in lower case."""
        return self.name.lower()


class MergeRollupSpec(SpecModel):
    """Levels, aggregations and schedule of a MergeRollupTask."""

    table: Annotated[str, Field(pattern=TABLE_NAME, max_length=63)]
    """Name of the Table; cannot change, and a table has one MergeRollupTask."""
    levels: Annotated[tuple[MergeLevel, ...], Field(min_length=1, max_length=MAX_LEVELS)]
    """Granularities, from the finest to the coarsest; each merges what the level before it has finished."""
    aggregations: Mapping[ColumnName, RollupAggregation] = {}
    """How rollups fold a metric, by its name; metrics that are left out are summed."""
    mode: Mode = Mode.PROCESS_FROM_WATERMARK
    """processFromWatermark: buckets before a level's watermark are done, and rows that arrive there later stay as they
    are. processAll: there is no watermark, and every bucket with something to merge is merged, however old."""
    schedule: Annotated[str, Field(min_length=1, max_length=100)] = DEFAULT_SCHEDULE
    """When to look for work: a period such as 10m, or cron such as "0 3 * * *", UTC. Once started, a run continues
    until nothing is left to merge."""
    executor: Executor = Executor.MINION
    """Where merges run: in the cluster's minions, or as Spark jobs for large buckets."""
    suspend: bool = False
    """True cancels running tasks and creates no new ones."""

    @property
    def table_name(self) -> TableName:
        """Key of the table in shared state, `flights_OFFLINE`."""
        return offline(RawTableName(self.table))


class MergeRollupTask(SpecModel):
    """Task that merges the segments of a table, and rolls up their rows."""

    api_version: Literal["merlot.dev/v1alpha1"]
    """Version of the API."""
    kind: Literal["MergeRollupTask"]
    """Kind of object."""
    metadata: ObjectMeta
    """Name and labels."""
    spec: MergeRollupSpec
    """Levels, aggregations and schedule of the task."""
