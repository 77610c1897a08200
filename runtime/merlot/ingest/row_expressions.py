"""The filter and the derived columns of a stream, over batches of source rows, by the functions of queries.

Expressions see columns of the table in the table's types, null where a value does not fit, and others, and those that
are derived, as text. A row for which one fails is bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.functions.evaluate import attempt
from merlot.ingest import transform
from merlot.ingest.bad_rows import SAMPLES_PER_REASON, BadRows
from merlot.ingest.transform import CORRUPT_RECORD, bad_row
from merlot.query.plan.binding import fold
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql import row_expressions
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector, from_arrow

FILTER = "filter"


@dataclass(frozen=True, slots=True)
class Judged:
    """Source rows with their derived columns: those that pass the filter, and those that do not."""

    rows: pa.Table
    dropped: pa.Table | None
    bad: BadRows


class RowExpressions:
    """Bound expressions. InvalidInputError for one that is wrong. Immutable: safe on any thread."""

    def __init__(self, schema: TableSchema, filter_: str | None, derived: Mapping[str, str]) -> None:
        texts = {**derived, **({} if filter_ is None else {FILTER: filter_})}
        self._scope = _scope(schema, frozenset(derived), frozenset().union(*map(row_expressions.names, texts.values())))
        self._typed = frozenset(schema.names) - derived.keys()
        self._derived = {name: row_expressions.bind(text, self._scope, fold) for name, text in derived.items()}
        self._filter = None if filter_ is None else row_expressions.bind(filter_, self._scope, fold, is_predicate=True)

    @property
    def names(self) -> frozenset[str]:
        """Columns that expressions name."""
        return frozenset(self._scope.names)

    @property
    def texts(self) -> frozenset[str]:
        """Those of them that are read as text."""
        return frozenset(one.name for one in self._scope.fields if one.name not in self._typed)

    def judge(self, rows: pa.Table) -> Judged:
        """What becomes of source rows."""
        if self._filter is None and not self._derived:
            return Judged(rows, None, BadRows())
        source = _Source(rows, self._scope)
        is_good = np.ones(rows.num_rows, dtype=bool)
        if CORRUPT_RECORD in rows.column_names:
            # A message that is no record has no values to fail with.
            is_good &= ~np.asarray(rows.column(CORRUPT_RECORD).is_valid())
        is_record, bad, result = is_good.copy(), BadRows(), rows
        passes = np.ones(rows.num_rows, dtype=bool)
        if self._filter is not None:
            verdict = attempt(self._filter, source).spread(rows.num_rows)
            bad += _failures(FILTER, rows, verdict, is_good)
            passes = np.asarray(verdict.data, dtype=bool) & ~_mask(verdict.nulls, rows.num_rows)
        for name, expr in self._derived.items():
            value = attempt(expr, source).spread(rows.num_rows)
            bad += _failures(name, rows, value, is_good)
            result = _with_column(result, name, _column(value, rows.num_rows))
        failed = is_record & ~is_good
        kept, dropped = ~failed & (passes | ~is_record), is_good & ~passes
        return Judged(
            result if kept.all() else result.filter(pa.array(kept)),
            result.filter(pa.array(dropped)) if dropped.any() else None,
            bad,
        )


class _Source:
    """Source rows as expressions read them."""

    def __init__(self, rows: pa.Table, scope: TableSchema) -> None:
        self._rows = rows
        self._scope = scope
        self._values: dict[str, pa.Array] = {}
        self.num_rows: int = rows.num_rows

    def column(self, name: str, type_: SqlType) -> Vector:
        return from_arrow(type_, self._found(name))

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        return np.asarray(self._found(name).is_null())

    def _found(self, name: str) -> pa.Array:
        if name not in self._values:
            field = self._scope.field(name)
            assert field is not None, "the expression was bound to these columns"
            self._values[name] = transform.source_values(self._rows, field)
        return self._values[name]


def _scope(schema: TableSchema, derived: frozenset[str], named: frozenset[str]) -> TableSchema:
    """The columns that expressions name."""
    fields: dict[str, FieldSpec] = {}
    for written in sorted(named):
        known = [one for one in schema.fields if one.name == written] or [
            one for one in schema.fields if one.name.lower() == written.lower()
        ]
        if len(known) == 1 and known[0].name not in derived:
            fields[known[0].name] = known[0]
        else:
            name = known[0].name if len(known) == 1 else written
            fields[name] = FieldSpec.model_construct(**{**_TEXT, "name": name})
    return TableSchema.model_construct(fields=tuple(fields.values()), primary_key=())


_TEXT = FieldSpec(name="text", type=TypeName.STRING).model_dump(by_alias=False)


def _failures(name: str, rows: pa.Table, value: Vector, is_good: NDArray[np.bool_]) -> BadRows:
    """Rows of a failed expression; takes them out of `is_good`."""
    if value.failure is None:
        return BadRows()
    failed = np.flatnonzero(value.failure.rows & is_good)
    is_good[failed] = False
    if not len(failed):
        return BadRows()
    reason = f"{name}: the expression fails"
    return BadRows({reason: len(failed)}, tuple(bad_row(reason, rows, int(row)) for row in failed[:SAMPLES_PER_REASON]))


def _column(value: Vector, num_rows: int) -> pa.Array:
    """Instants as timestamps, so that a dateTime column of any format takes them."""
    values = value.to_arrow(num_rows)
    if value.failure is not None:
        values = pc.if_else(pa.array(value.failure.rows), pa.scalar(None, values.type), values)
    return values.cast(pa.timestamp("ms")) if value.type.base is TypeName.TIMESTAMP else values


def _mask(nulls: NDArray[np.bool_] | None, num_rows: int) -> NDArray[np.bool_]:
    return np.zeros(num_rows, dtype=bool) if nulls is None else nulls


def _with_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.append_column(name, values) if place < 0 else rows.set_column(place, name, values)
