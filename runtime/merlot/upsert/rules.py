"""Rules of an UpsertConfig for one table: columns resolved, times to live in the units of the comparison column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.kernels.upsert import NULL
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.upserting import PruningStrategy, UpsertMode, UpsertSpec
from merlot.upsert.comparison import ComparisonColumn
from merlot.upsert.keys import KeyColumns
from merlot.upsert.mergers import merger_of
from merlot.values.durations import duration_ms
from merlot.values.types import TypeName


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules by which rows of a partition replace each other."""

    keys: KeyColumns
    comparisons: tuple[ComparisonColumn, ...]
    mode: UpsertMode = UpsertMode.FULL
    deletes_by: FieldSpec | None = None
    drops_out_of_order: bool = False
    marks_out_of_order: str | None = None
    time_to_live: float | None = None
    """Time to live in units of the comparison column."""
    deleted_time_to_live: float | None = None
    skips_late: bool = False
    max_future_skew_ms: int | None = None
    """Milliseconds that a comparison value may be ahead of its message's time and still raise the largest value."""
    sent: FieldSpec | None = None
    """Column of the time when the message was sent. It is stored, so that a replay knows the time as well."""
    pruning: PruningStrategy = PruningStrategy.COMMIT
    merged: tuple[FieldSpec, ...] = ()
    """Columns that are merged; only in mode PARTIAL."""
    nulls_are_least: bool = False
    """True for batches: a row without comparison value is older than all others. In a stream it takes the value of the
    row that it replaces."""
    strategies: Mapping[str, str] = field(default_factory=dict)
    """Name of each merged column's merger."""

    def __post_init__(self) -> None:
        if len(self.comparisons) != 1 and (self.time_to_live, self.deleted_time_to_live) != (None, None):
            raise InvalidInputError(f"a time to live needs one comparison column, not {len(self.comparisons)}")
        if self.max_future_skew_ms is not None and self.comparisons[0].field.time_format is None:
            name = self.comparisons[0].name
            raise InvalidInputError(f"comparison column is no time, so nothing is in its future column={name}")
        if self.max_future_skew_ms is not None and self.sent is None:
            raise InvalidInputError("what is in the future needs a column with the times of messages")
        if self.mode is UpsertMode.DEDUP and self.time_to_live is not None and self.comparisons[0].is_floating:
            raise InvalidInputError(f"duplicates need whole numbers to expire by column={self.comparisons[0].name}")

    @classmethod
    def of(cls, spec: UpsertSpec, schema: TableSchema, time_column: str | None) -> Self:
        """Resolve the rules of a table; raise InvalidInputError if it cannot be upserted by this spec."""
        names = spec.comparison_columns or (() if time_column is None else (time_column,))
        comparisons = tuple(ComparisonColumn(_field(schema, name)) for name in names)
        if not comparisons or not schema.primary_key:
            raise InvalidInputError("upserts need a primary key and a comparison column or a time column")
        first = comparisons[0]
        merged: tuple[FieldSpec, ...] = ()
        if spec.mode is UpsertMode.PARTIAL:
            not_merged = {*schema.primary_key, *names, spec.out_of_order_record_column}
            merged = tuple(field for field in schema.fields if field.name not in not_merged)
        strategies = {field.name: spec.strategy(field.name) for field in merged}
        skew, sent = spec.max_future_skew, spec.message_time_column
        for strategy in strategies.values():
            merger_of(strategy)
        return cls(
            keys=KeyColumns([_field(schema, name) for name in schema.primary_key]),
            comparisons=comparisons,
            mode=spec.mode,
            deletes_by=None if spec.delete_record_column is None else _field(schema, spec.delete_record_column),
            drops_out_of_order=spec.drop_out_of_order_record,
            marks_out_of_order=spec.out_of_order_record_column,
            time_to_live=None if spec.primary_key_ttl is None else first.to_live(spec.primary_key_ttl),
            deleted_time_to_live=None if spec.deleted_keys_ttl is None else first.to_live(spec.deleted_keys_ttl),
            skips_late=spec.skip_late_events,
            max_future_skew_ms=None if skew is None else duration_ms(skew),
            sent=None if sent is None else _field(schema, sent),
            pruning=spec.pruning,
            merged=merged,
            strategies=strategies,
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """Identity of the rules: everything that the keys in an index and their values depend on."""
        compared = [column.field for column in self.comparisons]
        return tuple((field.name, field.type, field.format) for field in (*self.keys.fields, *compared))

    @property
    def compared_by(self) -> str:
        """Name, type and format of the column that the largest comparison value belongs to. With another column, type
        or format, that value means nothing."""
        field = self.comparisons[0].field
        return f"{field.name}:{field.type}:{field.format or ''}"

    @cached_property
    def fields(self) -> tuple[FieldSpec, ...]:
        """Columns that decide, each once: keys, comparison columns, the deletion column, the message times."""
        others = [field for field in (self.deletes_by, self.sent) if field is not None]
        fields = (*self.keys.fields, *(column.field for column in self.comparisons), *others)
        return tuple({field.name: field for field in fields}.values())

    @cached_property
    def expiring(self) -> tuple[FieldSpec, ...]:
        """Columns among `fields` that decide whether a key has expired or is deleted."""
        return tuple(
            field for field in self.fields if field not in self.keys.fields or field == self.comparisons[0].field
        )

    def field(self, name: str) -> FieldSpec:
        """Return a merged column by name."""
        return next(field for field in self.merged if field.name == name)

    def deleted(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Mark the rows that delete their keys: by a true value, a number other than 0, or the text "true" or "1"."""
        if self.deletes_by is None:
            return np.zeros(rows.num_rows, np.bool_)
        column = rows.column(self.deletes_by.name)
        if self.deletes_by.type in (TypeName.STRING, TypeName.JSON):
            column = pc.is_in(pc.utf8_lower(column), pa.array(["true", "1"]))
        flags = pc.fill_null(pc.cast(column, pa.bool_()), False)
        return np.asarray(flags)

    def sent_ms(self, rows: pa.Table) -> NDArray[np.int64] | None:
        """Return the times of the rows' messages, -1 for an unknown time; None if the rules do not use them."""
        if self.sent is None or self.max_future_skew_ms is None:
            return None
        return np.asarray(pc.fill_null(rows.column(self.sent.name).cast(pa.int64()), -1))

    def comparison_values(self, rows: pa.Table) -> NDArray[np.int64]:
        """Return the comparison values of rows, in the shape (rows, comparison columns)."""
        values = np.stack([column.values(rows) for column in self.comparisons], axis=1)
        return np.maximum(values, NULL + 1) if self.nulls_are_least else values


def _field(schema: TableSchema, name: str) -> FieldSpec:
    field = schema.field(name)
    if field is None:
        raise InvalidInputError(f"the table has no column {name!r}")
    return field
