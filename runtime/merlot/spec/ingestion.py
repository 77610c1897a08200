"""Sources of a table's rows: batches, and the boundary between them and a stream."""

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, field_validator

from merlot.errors import InvalidInputError
from merlot.spec.column_names import ColumnName
from merlot.spec.formats import BatchFormat
from merlot.spec.model import SpecModel
from merlot.spec.stream import StreamIngestion
from merlot.spec.tenancy import MAX_URI, Resources
from merlot.values import schedules
from merlot.values.durations import Duration, duration_ms

MAX_DAYS: Final = 3_660
"""Most days of a segment: ten years."""
INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?$"


class CsvOptions(SpecModel):
    """How CSV files are written."""

    header: bool = True
    """True if the first line names the columns; otherwise the schema's columns stand in order."""
    delimiter: str = Field(",", min_length=1, max_length=1)
    """Character between two values."""
    null_value: str = ""
    """Text that stands for null."""


class OverwriteWindow(SpecModel):
    """Interval of time whose rows a batch replaces as a whole."""

    start: str = Field(pattern=INSTANT, max_length=20)
    """First instant, UTC: 2013-01-01 or 2013-01-01T00:00:00Z."""
    end: str = Field(pattern=INSTANT, max_length=20)
    """First instant after the window."""


class BatchJob(SpecModel):
    """How a batch runs in Kubernetes: a Job whose pod is the driver of a Spark application."""

    executors: int = Field(0, ge=0, le=1000)
    """Executor pods that the driver starts. 0: the driver does all work itself, which is best for small tables."""
    cores: int = Field(2, ge=1, le=128)
    """Tasks that an executor runs at a time, or the driver if it works alone."""
    driver: Resources | None = None
    """Resources of the driver; its memory is that of its limit."""
    executor: Resources | None = None
    """Resources of each executor."""
    deadline: Duration = "6h"
    """Longest duration of a run, retries included."""
    retries: int = Field(2, ge=0, le=20)
    """How often a run that failed for an external reason is retried; wrong input never is."""
    keep: Duration = "1d"
    """How long the finished Job and its logs are kept."""
    suspend: bool = False
    """True starts no run, and stops a running one."""


UNNAMED: Final = "default"
"""Name of a source for which the manifest gives none."""


class BatchIngestion(SpecModel):
    """Batch source."""

    name: str = Field(UNNAMED, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)
    """Name of the source in reports, unique within the table. In an upsert table each source has its own segments."""
    source_uri: str = Field(min_length=1, max_length=MAX_URI)
    """File, folder or glob: a URI such as s3://bucket/flights/*.parquet, or a path."""
    format: BatchFormat
    """File format: PARQUET, ORC, CSV or JSON (JSON lines)."""
    csv: CsvOptions | None = None
    """How CSV files are written; only with format CSV."""
    filter: str | None = Field(None, min_length=1)
    """SQL predicate over the source's columns; rows that do not satisfy it are left out. Bad rows are counted
    before."""
    derived_columns: Mapping[ColumnName, Annotated[str, Field(min_length=1)]] = {}
    """SQL expression over a row's source columns, by the column that it fills; a row for which it fails is bad."""
    max_bad_row_share: float = Field(0.0, ge=0.0, le=1.0)
    """Share of rows that may be bad (hold a value that does not fit its column's type) before the job fails, 0 to 1."""
    schedule: str | None = Field(None, max_length=100)
    """When to run in Kubernetes, UTC: cron text such as "0 3 * * *", or a period such as 12h. Once if left out."""
    overwrite: OverwriteWindow | None = None
    """Time window of which the batch holds all rows. Segments of the table within it are replaced, whatever they hold.
    Those that the batch does not build anew are removed in the same step that publishes the batch."""
    replace_rows: bool = False
    """True lets a batch remove rows of the table without replacement. Otherwise a batch is refused if a day's segment
    has fewer rows, a shorter time span or another source than the segment that it would replace. A batch without rows
    that would empty the table or window is refused too."""
    rerun: str = Field("", max_length=63)
    """Change this text to run a batch again whose source changed."""
    job: BatchJob = BatchJob()
    """How the batch runs in Kubernetes."""

    @field_validator("schedule")
    @classmethod
    def _schedule_is_cron(cls, value: str | None) -> str | None:
        try:
            _ = value is None or schedules.parse(value)
        except InvalidInputError as error:
            raise ValueError(str(error)) from None
        return value


class TimeBoundarySpec(SpecModel):
    """Time boundary, which makes the table hybrid: batches and the stream bring the same rows, and each answers for a
    part of time."""

    unit: Duration = "1d"
    """Unit of time by which batches are complete, in UTC, except for the last unit that they reach into. The boundary
    is the start of the unit that holds the newest row of the batches. Batches alone answer for rows before it, the
    stream alone for rows from then on."""
    stream_retention: Duration | None = None
    """Age at which segments of the stream are deleted that batches have taken over from; the table's retention if left
    out. They are needed if a batch is reverted."""

    @property
    def unit_ms(self) -> int:
        """`unit` in milliseconds."""
        return duration_ms(self.unit)

    @property
    def stream_retention_ms(self) -> int | None:
        """`streamRetention` in milliseconds, or None."""
        return None if self.stream_retention is None else duration_ms(self.stream_retention)


class IngestionSpec(SpecModel):
    """Sources of the table's rows."""

    batch: Annotated[tuple[BatchIngestion, ...], Field(max_length=100)] = ()
    """Batch sources."""
    days_per_segment: int = Field(1, ge=1, le=MAX_DAYS)
    """UTC days whose rows a batch puts into one segment per partition, counted from 1970-01-01; cannot change. If days
    are small, choose as many as hold a million rows. A batch then holds whole intervals of that many days, and merges,
    retention and servers treat them as one."""
    max_rows_per_segment: int = Field(5_000_000, ge=1, le=2_000_000_000)
    """Most rows of a batch's segment. A day and partition with more rows becomes several segments of equal size, which
    are replaced together."""
    stream: StreamIngestion | None = None
    """Stream whose messages are rows of the table."""
    time_boundary: TimeBoundarySpec | None = None
    """Time boundary between batches and the stream. If left out, all rows of both belong to the table."""
