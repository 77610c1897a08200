"""Upsert settings of a Table or an UpsertConfig: how later rows replace earlier rows of the same primary key.

Names are Pinot's (`UpsertConfig`) where it has them. A time to live is a duration instead of a bare number, or the unit
and value of a table that was written for Pinot. Rules between the fields are in `rules.upsert`, rules between the
fields and the Table in `manifest.upsert_checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from merlot.spec.column_names import ColumnName
from merlot.spec.model import SpecModel
from merlot.values import periods
from merlot.values.durations import duration_ms

TTL = r"^([0-9]{1,18}|(0|[1-9][0-9]{0,8})(s|m|h|d|w))$"

Ttl = Annotated[str, Field(pattern=TTL, max_length=19)]


class UpsertMode(StrEnum):
    """FULL: a row replaces the row before. PARTIAL: it is merged into that row, column by column. DEDUP: the first row
    of a key is kept, the others are not stored."""

    FULL = "FULL"
    PARTIAL = "PARTIAL"
    DEDUP = "DEDUP"


class PartialUpsertStrategy(StrEnum):
    """How a new value of a column is combined with the old one."""

    OVERWRITE = "OVERWRITE"
    FORCE_OVERWRITE = "FORCE_OVERWRITE"
    IGNORE = "IGNORE"
    INCREMENT = "INCREMENT"
    APPEND = "APPEND"
    UNION = "UNION"
    MAX = "MAX"
    MIN = "MIN"


MERGER_GROUP = "merlot.mergers"
"""Entry point group of plug-in mergers."""
MERGER = rf"^({'|'.join(PartialUpsertStrategy)}|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+)$"
MergerName = Annotated[str, Field(pattern=MERGER, max_length=200)]
"""A PartialUpsertStrategy, or the dotted name of an entry point of group `merlot.mergers`."""


class Enablement(StrEnum):
    """Choice between on and off; DEFAULT leaves it to the cluster."""

    ENABLE = "ENABLE"
    DISABLE = "DISABLE"
    DEFAULT = "DEFAULT"


class PruningStrategy(StrEnum):
    """When expired primary keys leave memory."""

    COMMIT = "COMMIT"
    SCAN = "SCAN"
    ROTATION = "ROTATION"


class SnapshotStore(StrEnum):
    """Place of snapshots of valid docs."""

    LOCAL = "LOCAL"
    DEEP_STORE = "DEEP_STORE"
    SEGMENT = "SEGMENT"


class TtlUnit(StrEnum):
    """Unit of a time to live."""

    SECONDS = "SECONDS"
    MINUTES = "MINUTES"
    HOURS = "HOURS"
    DAYS = "DAYS"


ALIASES = ("ttl", "ttl_unit", "ttl_value", "is_skip_late_events")
"""Fields that are read, but written back under another name."""
RETIRED: Final[Mapping[str, str]] = {
    "preload": "a restart takes keys from the snapshots if there are any",
    "hashFunction": "keys of up to 16 bytes are kept whole, others as 128 bits of a hash; answers are the same",
    "consistencyMode": "queries always see one row of each key",
    "upsertViewRefreshIntervalMs": "queries always take the latest view of a partition",
    "newSegmentTrackingTimeMs": "queries ask for everything after a segment, so that they miss no new one",
}
"""Settings of Pinot's that an earlier version accepted and that have no effect, each with the reason."""
_SUFFIXES = {TtlUnit.SECONDS: "s", TtlUnit.MINUTES: "m", TtlUnit.HOURS: "h", TtlUnit.DAYS: "d"}


class TtlSpec(SpecModel):
    """A time to live as unit and value."""

    unit: TtlUnit
    """Unit of the value."""
    value: int = Field(ge=1, le=10**9 - 1)
    """Number of units."""


class SegmentMergeSpec(SpecModel):
    """How small sealed segments are merged, as by Pinot's UpsertCompactMergeTask."""

    max_num_segments_per_task: int = Field(10, ge=2, le=100)
    """Most segments that become one."""
    max_num_records_per_segment: int = Field(5_000_000, ge=1, le=5_000_000)
    """Most rows that the result may have."""
    output_segment_max_size_in_bytes: int = Field(1 << 30, ge=1, le=1 << 40)
    """Most bytes of the files that become one, together."""


class CompactionSpec(SpecModel):
    """When a sealed segment is rewritten without its replaced rows; both thresholds must be reached."""

    buffer_time_period: Annotated[str, Field(pattern=periods.PERIOD, max_length=8)] = "1d"
    """Least age of a segment since it was sealed, such as 1d; 0d: no minimum."""
    invalid_records_threshold_percent: float = Field(30.0, ge=0, le=100)
    """Least share of a segment's rows that were replaced, in percent."""
    invalid_records_threshold_count: int = Field(1, ge=1, le=2_000_000_000)
    """Least number of replaced rows."""
    max_num_parallel_tasks: int = Field(4, ge=1, le=100)
    """Most segments of a table that are rewritten at a time."""
    merge: SegmentMergeSpec | None = None
    """How small consecutive segments are merged; not at all if left out. Not allowed with a time to live."""
    suspend: bool = False
    """True creates no new tasks, and cancels waiting tasks."""

    @cached_property
    def buffer(self) -> periods.Period:
        """Least age of a segment since it was sealed."""
        return periods.parse(self.buffer_time_period)


class UpsertSpec(SpecModel):
    """Settings that decide which row of a key wins, how long its key is remembered, and what is kept on disk."""

    mode: UpsertMode
    """FULL: a row replaces the row before. PARTIAL: it is merged into that row, column by column. DEDUP: the first row
    of a key is kept, the others are not stored."""
    comparison_columns: Annotated[tuple[ColumnName, ...], Field(max_length=20)] = ()
    """Columns by which rows of a key are compared: the greater value wins, on a tie the later row. The Table's
    timeColumn if left out."""
    delete_record_column: ColumnName | None = None
    """Column of type BOOLEAN, STRING or a number: a row with a true value in it deletes its key."""
    drop_out_of_order_record: bool = False
    """True drops a row at ingestion that is older than the existing row; otherwise it is stored, but queries do not see
    it."""
    out_of_order_record_column: ColumnName | None = None
    """BOOLEAN column that is set to true in rows that arrive out of order."""
    partial_upsert_strategies: Mapping[ColumnName, MergerName] = {}
    """How each column is merged: OVERWRITE, FORCE_OVERWRITE, IGNORE, INCREMENT, APPEND, UNION, MAX, MIN, or the dotted
    name of your own merger, an entry point of group merlot.mergers on all servers; mode PARTIAL only."""
    default_partial_upsert_strategy: MergerName = PartialUpsertStrategy.OVERWRITE
    """How all other columns are merged: OVERWRITE takes the new value unless it is null."""
    primary_key_ttl: Ttl | None = None
    """How long after its newest row a key can still be replaced, by the comparison column's clock: 1d, 12h; or a bare
    number in the units of a comparison column that is not a time. The clock is the greatest value in the partition
    before a row: a row's own time counts only for later rows. Forever if left out. It must be longer than the time
    until a consuming segment is sealed."""
    ttl: TtlSpec | None = None
    """Another form of primaryKeyTtl, as unit and value, for comparison columns that are times; set only one of the
    two."""
    ttl_unit: TtlUnit | None = Field(None, alias="TtlUnit")
    """Unit of TtlValue: both together are another form of primaryKeyTtl."""
    ttl_value: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}$")] | None = Field(None, alias="TtlValue")
    """Number of TtlUnits: both together are another form of primaryKeyTtl."""
    max_future_skew: Ttl | None = None
    """Furthest that a row's time may be ahead of its message's time. A row beyond that has a wrong clock, and does not
    make keys expire. No limit if left out. Needs messageTimeColumn."""
    message_time_column: ColumnName | None = None
    """TIMESTAMP column that ingestion.stream.metadata fills with the timestamps of messages; for maxFutureSkew."""
    deleted_keys_ttl: Ttl | None = None
    """How long a deleted key is remembered, so that late rows of it stay deleted; forever if left out."""
    skip_late_events: bool = False
    """True skips rows that are already past primaryKeyTtl when they arrive; otherwise they are new rows."""
    is_skip_late_events: bool | None = None
    """Another name of skipLateEvents."""
    pruning: PruningStrategy = PruningStrategy.COMMIT
    """When expired keys leave memory. COMMIT: at each commit of a segment. SCAN: by a scan every pruningInterval.
    ROTATION: two maps, of which the older one is dropped as a whole."""
    pruning_interval: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}(s|m|h|d|w)$")] | None = None
    """Time in which all keys are scanned once; pruning SCAN only, 10m if left out."""
    snapshot: Enablement = Enablement.DEFAULT
    """Setting that decides if the valid docs of sealed segments are stored, as of the last commit, for a quick and
    exact restart. DISABLE deletes existing snapshots. DEFAULT is ENABLE for tables with retention, which need them, and
    DISABLE for others."""
    snapshot_store: SnapshotStore = SnapshotStore.DEEP_STORE
    """DEEP_STORE: in the deep store and on the servers' disks. LOCAL: only on these disks, so that a replica that loses
    its disk or moves reads the keys of all rows again. SEGMENT is refused: sealed files are not written to again."""
    compaction: CompactionSpec | None = None
    """Compaction: minions rewrite sealed segments without replaced rows, and delete segments without other rows. If
    left out, replaced rows stay until retention removes their segments."""

    @model_validator(mode="after")
    def _move_aliases(self) -> Self:
        """Move each value given under an alias to the field that is written back."""
        if self.primary_key_ttl is None:
            object.__setattr__(self, "primary_key_ttl", self._ttl_of_aliases())
        if self.is_skip_late_events:
            object.__setattr__(self, "skip_late_events", True)
        for name in ALIASES:
            object.__setattr__(self, name, None)
        return self

    def _ttl_of_aliases(self) -> str | None:
        if self.ttl is not None:
            return f"{self.ttl.value}{_SUFFIXES[self.ttl.unit]}"
        if self.ttl_unit is not None and self.ttl_value is not None:
            return f"{self.ttl_value}{_SUFFIXES[self.ttl_unit]}"
        return None

    @property
    def snapshots_in(self) -> SnapshotStore | None:
        """Place of snapshots; None if there are none."""
        return self.snapshot_store if self.snapshot is Enablement.ENABLE else None

    def under_retention(self) -> UpsertSpec:
        """Return the settings for a table with retention, in which DEFAULT enables snapshots. Without them, nobody
        could tell which rows the removed segments had replaced. In mode DEDUP no stored row is ever replaced."""
        if self.mode is UpsertMode.DEDUP or self.snapshot is not Enablement.DEFAULT:
            return self
        return self.model_copy(update={"snapshot": Enablement.ENABLE})

    @property
    def scan_ms(self) -> int:
        """`pruningInterval` in milliseconds."""
        return duration_ms(self.pruning_interval or "10m")

    def strategy(self, column: str) -> str:
        """Return the strategy by which a column is merged.

        The delete column is OVERWRITE: its value is always that of some row, so no merged value deletes a key. The
        message time is FORCE_OVERWRITE: only the row's own message knows it."""
        if column == self.delete_record_column:
            return PartialUpsertStrategy.OVERWRITE.value
        if column == self.message_time_column:
            return PartialUpsertStrategy.FORCE_OVERWRITE.value
        return str(self.partial_upsert_strategies.get(column, self.default_partial_upsert_strategy))

    def comparison(self, time_column: str | None) -> tuple[str, ...]:
        """Return the columns by which rows of a key are compared: those that are declared, or else the time column."""
        return self.comparison_columns or ((time_column,) if time_column is not None else ())


class TableUpsert(SpecModel):
    """Upserts of a table, with the settings here or in an UpsertConfig."""

    config_ref: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Name of an UpsertConfig in the same namespace; nothing is consumed until it exists and fits the table."""
    config: UpsertSpec | None = None
    """Settings, as in the spec of an UpsertConfig. Write either this or configRef."""
