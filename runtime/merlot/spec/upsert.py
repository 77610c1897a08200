"""The UpsertConfig manifest: how later rows of a table replace earlier ones of the same primary key.

Names are Pinot's (`UpsertConfig`) where it has them; a time to live is a duration instead of a bare number. What needs
more than one field, or the Table, is checked in `upsert_checks`. Nothing executes it in this version.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, field_validator

from merlot.spec.model import SpecModel
from merlot.spec.schema import ColumnName
from merlot.spec.table import ObjectMeta

KIND = "UpsertConfig"
TTL = r"^[0-9]{1,18}(s|m|h|d|w)?$"
NOT_EXECUTED = "accepted and stored; this version does not execute upserts, so rows are not replaced yet"

Ttl = Annotated[str, Field(pattern=TTL, max_length=19)]


class UpsertMode(StrEnum):
    """FULL: a row replaces the one before. PARTIAL: it is merged into it, column by column."""

    FULL = "FULL"
    PARTIAL = "PARTIAL"


class HashFunction(StrEnum):
    """What is kept of a primary key."""

    NONE = "NONE"
    MD5 = "MD5"
    MURMUR3 = "MURMUR3"
    UUID = "UUID"
    XXHASH = "XXHASH"
    XXH128 = "XXH128"


class PartialUpsertStrategy(StrEnum):
    """How a column's new value meets the one before."""

    OVERWRITE = "OVERWRITE"
    FORCE_OVERWRITE = "FORCE_OVERWRITE"
    IGNORE = "IGNORE"
    INCREMENT = "INCREMENT"
    APPEND = "APPEND"
    UNION = "UNION"
    MAX = "MAX"
    MIN = "MIN"


class Enablement(StrEnum):
    """DEFAULT leaves it to the cluster."""

    ENABLE = "ENABLE"
    DISABLE = "DISABLE"
    DEFAULT = "DEFAULT"


class PruningStrategy(StrEnum):
    """When expired primary keys leave memory."""

    COMMIT = "COMMIT"
    SCAN = "SCAN"
    ROTATION = "ROTATION"


class ConsistencyMode(StrEnum):
    """What a query sees of a row that moves between two segments."""

    NONE = "NONE"
    SYNC = "SYNC"
    SNAPSHOT = "SNAPSHOT"


class UpsertSpec(SpecModel):
    """Which row of a key wins, for how long its key is remembered, and what is kept on disk."""

    mode: UpsertMode
    """FULL: a row replaces the one before. PARTIAL: it is merged into it, column by column."""
    hash_function: HashFunction = HashFunction.NONE
    """What is kept of a primary key in memory: NONE keeps the key itself, the others its hash."""
    comparison_columns: Annotated[tuple[ColumnName, ...], Field(max_length=20)] = ()
    """The row with the greater value wins, on a tie the later one; the Table's timeColumn if left out."""
    delete_record_column: ColumnName | None = None
    """A row with a true value here deletes its key: BOOLEAN, STRING or a number."""
    drop_out_of_order_record: bool = False
    """True drops a row that is older than the one there is, at ingestion; otherwise it is stored, and not seen."""
    out_of_order_record_column: ColumnName | None = None
    """BOOLEAN column that is set to true in rows that come out of order."""
    partial_upsert_strategies: Mapping[ColumnName, PartialUpsertStrategy] = {}
    """How each column is merged; mode PARTIAL only."""
    default_partial_upsert_strategy: PartialUpsertStrategy = PartialUpsertStrategy.OVERWRITE
    """How the other columns are merged: OVERWRITE takes the new value unless it is null."""
    primary_key_ttl: Ttl | None = None
    """How long after its newest row a key can still be replaced, by the comparison column's clock: 1d, 12h; or a bare
    number in the units of a comparison column that is no time. For ever if left out. Longer than a consuming segment
    takes to be sealed."""
    deleted_keys_ttl: Ttl | None = None
    """How long a deleted key is remembered, so that late rows of it stay deleted; for ever if left out."""
    skip_late_events: bool = False
    """True leaves out rows that are already past primaryKeyTtl when they come; otherwise they are new rows."""
    pruning: PruningStrategy = PruningStrategy.COMMIT
    """When expired keys leave memory. COMMIT: at each commit of a segment. SCAN: by a scan every pruningInterval.
    ROTATION: two maps, of which the older is dropped as a whole."""
    pruning_interval: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}(s|m|h|d|w)$")] | None = None
    """Between two scans; pruning SCAN only, 10m if left out."""
    snapshot: Enablement = Enablement.DEFAULT
    """Whether the valid docs of sealed segments are kept in the deep store, for a quick and exact restart."""
    preload: Enablement = Enablement.DEFAULT
    """Whether a restart takes keys from the snapshots, without comparing."""
    consistency_mode: ConsistencyMode = ConsistencyMode.NONE
    """NONE: a query may miss a row that is being replaced. SYNC: it waits. SNAPSHOT: it sees the last view."""
    upsert_view_refresh_interval_ms: int = Field(3_000, ge=0, le=86_400_000)
    """Age of a view in mode SNAPSHOT."""
    new_segment_tracking_time_ms: int = Field(10_000, ge=0, le=86_400_000)
    """How long a new segment is added to queries whose broker does not know it yet; 0: not at all."""

    @field_validator("primary_key_ttl", "deleted_keys_ttl")
    @classmethod
    def _is_above_zero(cls, value: str | None) -> str | None:
        if value is not None and not int(value.rstrip("smhdw")):
            raise ValueError(f'"{value}" is no time at all; write one such as 1d, or remove it to keep keys for ever')
        return value


class UpsertConfig(SpecModel):
    """How later rows replace earlier ones; a Table names it in spec.upsert.configRef."""

    api_version: Literal["merlot.dev/v1alpha1"]
    """Version of this form."""
    kind: Literal["UpsertConfig"]
    """Kind of object."""
    metadata: ObjectMeta
    """Name and labels."""
    spec: UpsertSpec
    """Which row of a key wins, for how long its key is remembered, and what is kept on disk."""
