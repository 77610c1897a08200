"""Describe a merge: everything but the rows."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from merlot.errors import ConflictError, InvalidInputError
from merlot.segment.metadata import CreationFacts
from merlot.spec import time_rounding
from merlot.spec.indexing import IndexingSpec, PartitioningSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values.periods import Period

MAX_RECORDS_PER_SEGMENT = 5_000_000
Window = tuple[int, int]
"""Milliseconds since 1970, [start, end)."""


class MergeCancelledError(ConflictError):
    """The caller no longer wants the merge, or lost the right to it."""


class MergeMode(StrEnum):
    """Treatment of rows."""

    CONCAT = "concat"
    """Merge type whose rows all stay."""
    ROLLUP = "rollup"
    """Merge type in which rows that agree in everything but metrics become one row."""
    DEDUP = "dedup"
    """Merge type in which rows that agree in all columns become one row."""


class MergePhase(StrEnum):
    """Phase of a merge."""

    READ = "READ"
    ORDER = "ORDER"
    WRITE = "WRITE"
    SHUFFLE = "SHUFFLE"


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricAggregation:
    """Aggregation of a metric's values."""

    function: str = "SUM"
    parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MergePlan:
    """Plan of one merge. Its windows are disjoint buckets in order; no output holds rows of two buckets."""

    table: str
    """Raw table name."""
    schema: TableSchema
    indexing: IndexingSpec = dataclasses.field(default_factory=IndexingSpec)
    time_column: str | None = None
    partitioning: PartitioningSpec | None = None
    merge_type: MergeMode = MergeMode.CONCAT
    windows: tuple[Window, ...] = ()
    """Buckets; empty: all rows of the inputs are one bucket."""
    round_period: Period | None = None
    """Period that times are rounded down to."""
    aggregations: Mapping[str, MetricAggregation] = dataclasses.field(default_factory=dict)
    """Aggregation by metric; SUM by default."""
    erased: frozenset[str] = frozenset()
    """Dimensions that become null."""
    max_records_per_segment: int = MAX_RECORDS_PER_SEGMENT
    segment_name_prefix: str = "merged"
    drops_outside: bool = False
    """True: rows outside all windows are left out. False: they are an error, since they would be lost."""
    creation: CreationFacts = dataclasses.field(default_factory=CreationFacts)

    def time_field(self) -> FieldSpec:
        """Return the time column; raise InvalidInputError if the table has none."""
        field = None if self.time_column is None else self.schema.field(self.time_column)
        if field is None or field.time_format is None:
            raise InvalidInputError(f"a merge by time needs a time column table={self.table}")
        return field

    def check(self) -> None:
        """Raise InvalidInputError if the plan contradicts itself."""
        for name in sorted(self.erased):
            field = self.schema.field(name)
            if field is None or field.role is not FieldRole.DIMENSION:
                raise InvalidInputError(f"only a dimension can be erased table={self.table} column={name}")
        if self.round_period is not None:
            why = time_rounding.problem(self.time_field(), self.round_period)
            if why is not None:
                raise InvalidInputError(f"time cannot be rounded table={self.table} period={self.round_period}: {why}")
        if self.max_records_per_segment < 1:
            raise InvalidInputError(f"a segment needs room for a row got={self.max_records_per_segment}")

    def folds(self, field: FieldSpec) -> bool:
        """Return whether values of a column are aggregated, rather than part of the group key."""
        return self.merge_type is MergeMode.ROLLUP and field.role is FieldRole.METRIC

    def key_fields(self) -> tuple[FieldSpec, ...]:
        """Return the columns in which rows must agree to become one row: sorted columns first, then the others by
        name."""
        position = {name: place for place, name in enumerate(self.indexing.sorted_columns)}
        keys = [field for field in self.schema.fields if not self.folds(field)]
        return tuple(sorted(keys, key=lambda field: (position.get(field.name, len(position)), field.name)))
