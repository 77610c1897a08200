"""Where rows come from."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from merlot.spec.model import SpecModel
from merlot.spec.schema import ColumnName


class BatchFormat(StrEnum):
    """File formats of batch sources. JSON is JSON lines: one object per line."""

    PARQUET = "PARQUET"
    ORC = "ORC"
    CSV = "CSV"
    JSON = "JSON"


class CsvOptions(SpecModel):
    """How CSV files are written."""

    header: bool = True
    """True if the first line names the columns; else they are the schema's, in order."""
    delimiter: str = Field(",", min_length=1, max_length=1)
    """Character between two values."""
    null_value: str = ""
    """Text that stands for null."""


class BatchIngestion(SpecModel):
    """One batch source."""

    name: str = Field("default", pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)
    """Names the source in reports; unique within the table."""
    source_uri: str = Field(min_length=1)
    """File, folder or glob: a URI such as s3://bucket/flights/*.parquet, or a path."""
    format: BatchFormat
    """File format: PARQUET, ORC, CSV or JSON (JSON lines)."""
    csv: CsvOptions | None = None
    """How CSV files are written; only with format CSV."""
    filter: str | None = Field(None, min_length=1)
    """SQL predicate over the source's columns; rows that do not satisfy it are left out."""
    derived_columns: Mapping[ColumnName, Annotated[str, Field(min_length=1)]] = {}
    """SQL expression over the source's columns, by the column that it fills."""
    max_bad_row_share: float = Field(0.0, ge=0.0, le=1.0)
    """Share of rows that may be bad (a value that its column's type cannot hold) before the job fails, 0 to 1."""


class IngestionSpec(SpecModel):
    """Where rows come from."""

    batch: tuple[BatchIngestion, ...] = ()
    """Batch sources."""
