"""Evaluate the filter and the derived columns of a stream over batches of source rows, with the functions of queries.

Expressions see columns of the table in the table's types, null where a value does not fit. They see derived columns
too, which are computed in the order of their dependencies. Fields of a message that are no columns have the type that
their use asks for (`sql.message_fields`). A filter, and a derived column that names itself, see what the message has
under a derived column's name. A row for which an expression fails is bad.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.functions.evaluate import attempt
from merlot.ingest import transform
from merlot.ingest.bad_rows import SAMPLES_PER_REASON, BadRows
from merlot.ingest.message_values import as_json, as_text
from merlot.ingest.transform import CORRUPT_RECORD, bad_row
from merlot.query.plan.binding import fold
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql import row_expressions
from merlot.sql.message_fields import JSON_VIEW
from merlot.tree.nodes import Column, Expr
from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors.vector import Vector, from_arrow

FILTER = "filter"


@dataclass(frozen=True, slots=True)
class EvaluatedRows:
    """Source rows with their derived columns, divided into those that pass the filter and those that do not."""

    rows: pa.Table
    dropped: pa.Table | None
    bad: BadRows


@dataclass(frozen=True, slots=True)
class WrongExpression:
    """An expression that cannot be bound, and the reason."""

    column: str | None
    """Derived column; None for the filter."""
    reason: str

    def __str__(self) -> str:
        return f"{self.column or FILTER}: {self.reason}"


def problems(schema: TableSchema, filter_: str | None, derived: Mapping[str, str]) -> list[WrongExpression]:
    """Return everything that is wrong with a stream's expressions: what `RowExpressions` refuses, and derived columns
    whose values never fit the column's type."""
    wrong: list[WrongExpression] = []
    bound = list(_bind_all(schema, filter_, derived, wrong))
    nothing = pa.table({"": pa.nulls(0)})
    for expression in bound:
        column = None if expression.column is None else schema.field(expression.column)
        if column is None:
            continue
        value = _column(attempt(expression.expr, _Source(nothing, nothing, expression)).spread(0), 0)
        if transform.is_impossible(value.type, column):
            reason = f"gives {expression.expr.type}, which is no value of the column's type {column.type}"
            wrong.append(WrongExpression(expression.column, reason))
    return wrong


class RowExpressions:
    """Bound expressions of a stream. Immutable: safe on any thread.

    Raises InvalidInputError for an expression that is wrong."""

    def __init__(self, schema: TableSchema, filter_: str | None, derived: Mapping[str, str]) -> None:
        wrong: list[WrongExpression] = []
        bound = tuple(_bind_all(schema, filter_, derived, wrong))
        if wrong:
            raise InvalidInputError("; ".join(map(str, wrong)))
        self._filter = next((expression for expression in bound if expression.column is None), None)
        self._derived = {expression.column: expression for expression in bound if expression.column is not None}
        self._bound = bound

    @property
    def names(self) -> frozenset[str]:
        """Names of all columns and fields that expressions read from a message."""
        return frozenset().union(*(expression.columns | {*expression.fields.values()} for expression in self._bound))

    @property
    def texts(self) -> frozenset[str]:
        """Fields of a message that expressions read as such, not as columns of the table."""
        return frozenset().union(*(expression.fields.values() for expression in self._bound))

    @property
    def json_texts(self) -> frozenset[str]:
        """Fields of a message that an expression wants as JSON."""
        return frozenset().union(*(expression.json_fields for expression in self._bound))

    def evaluate(self, rows: pa.Table) -> EvaluatedRows:
        """Evaluate the expressions over source rows."""
        if not self._bound:
            return EvaluatedRows(rows, None, BadRows())
        is_good = np.ones(rows.num_rows, dtype=bool)
        if CORRUPT_RECORD in rows.column_names:
            # A message that is no record has no values for which an expression could fail.
            is_good &= ~np.asarray(rows.column(CORRUPT_RECORD).is_valid())
        is_record, bad, result = is_good.copy(), BadRows(), rows
        passes = np.ones(rows.num_rows, dtype=bool)
        if self._filter is not None:
            verdict = attempt(self._filter.expr, _Source(rows, rows, self._filter)).spread(rows.num_rows)
            bad += _failures(FILTER, rows, verdict, is_good)
            passes = np.asarray(verdict.data, dtype=bool) & ~_mask(verdict.nulls, rows.num_rows)
        for name, expression in self._derived.items():
            value = attempt(expression.expr, _Source(rows, result, expression)).spread(rows.num_rows)
            bad += _failures(name, rows, value, is_good)
            result = _with_column(result, name, _column(value, rows.num_rows))
        failed = is_record & ~is_good
        remaining, dropped = ~failed & (passes | ~is_record), is_good & ~passes
        return EvaluatedRows(
            result if remaining.all() else result.filter(pa.array(remaining)),
            result.filter(pa.array(dropped)) if dropped.any() else None,
            bad,
        )


@dataclass(frozen=True, slots=True)
class _Bound:
    """A bound expression, and what its names stand for."""

    column: str | None
    """Column that it computes; None for the filter."""
    expr: Expr
    scope: TableSchema
    columns: frozenset[str]
    """Columns of the table whose values come with the message."""
    derived: frozenset[str]
    """Columns that other expressions compute."""
    fields: Mapping[str, str]
    """Fields of a message that are no columns here, by their names in the expression."""

    @property
    def json_fields(self) -> frozenset[str]:
        named = {name.removeprefix(JSON_VIEW) for name in _column_names(self.expr) if name.startswith(JSON_VIEW)}
        return frozenset(self.fields[name] for name in named)


def _column_names(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Column):
        yield expr.name
    for arg in getattr(expr, "args", ()):
        yield from _column_names(arg)


class _NameResolver:
    """Resolver of names in the expressions of a table."""

    def __init__(self, schema: TableSchema, derived: Mapping[str, str], written: Collection[str]) -> None:
        self._schema = schema
        self._derived = derived
        # Spellings that differ by case are one field, which a decoder finds once.
        self._spellings = {name.lower(): name for name in sorted(written, reverse=True)}

    def column(self, written: str) -> FieldSpec | None:
        """Return the column that a name stands for: the exact one, else the only one that differs by case alone."""
        same = [field for field in self._schema.fields if field.name == written] or [
            field for field in self._schema.fields if field.name.lower() == written.lower()
        ]
        return same[0] if len(same) == 1 else None

    def needs(self, name: str, named: Collection[str]) -> frozenset[str]:
        """Return the derived columns that derived column `name` depends on, by the names in its expression."""
        columns = {column.name for written in named if (column := self.column(written)) is not None}
        return frozenset(columns & self._derived.keys() - {name})

    def bind(self, fills: str | None, text: str) -> _Bound:
        """Bind the filter, or the expression of a column. Raises errors of `tree.errors`."""
        scope: dict[str, FieldSpec] = {}
        columns: set[str] = set()
        derived: set[str] = set()
        fields: dict[str, str] = {}
        for written in sorted(row_expressions.names(text)):
            column = self.column(written)
            if column is None or (column.name in self._derived and fills in (None, column.name)):
                field = self._spellings[written.lower()] if column is None else column.name
                fields[written] = field
                scope |= {written: _as(written, TypeName.STRING)}
                scope |= {JSON_VIEW + written: _as(JSON_VIEW + written, TypeName.JSON)}
                continue
            scope[column.name] = column
            (derived if column.name in self._derived else columns).add(column.name)
        schema = TableSchema.model_construct(fields=tuple(scope.values()), primary_key=())
        expr = row_expressions.bind(text, schema, fold, fields=frozenset(fields), is_predicate=fills is None)
        return _Bound(fills, expr, schema, frozenset(columns), frozenset(derived), fields)


def _bind_all(
    schema: TableSchema, filter_: str | None, derived: Mapping[str, str], wrong: list[WrongExpression]
) -> Iterator[_Bound]:
    """Yield the filter, and derived columns in an order in which each has what it needs. Expressions that cannot be
    bound are added to `wrong` instead."""
    named = {text: _named(text) for text in (*derived.values(), *([] if filter_ is None else [filter_]))}
    names = _NameResolver(schema, derived, frozenset().union(*named.values()))
    needs = {name: names.needs(name, named[text]) for name, text in derived.items()}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        circle = " needs ".join(reversed(error.args[1]))
        wrong.append(WrongExpression(error.args[1][0], f"derived columns cannot need each other: {circle}"))
        return
    texts: dict[str | None, str] = {} if filter_ is None else {None: filter_}
    texts |= {name: derived[name] for name in order}
    for fills, text in texts.items():
        try:
            yield names.bind(fills, text)
        except InvalidInputError as error:
            wrong.append(WrongExpression(fills, str(error)))


def _named(text: str) -> frozenset[str]:
    """Return the names in an expression; none if it is wrong, which is reported when it is bound."""
    try:
        return row_expressions.names(text)
    except InvalidInputError:
        return frozenset()


class _Source:
    """Rows as an expression reads them: values of messages, and columns that were derived before."""

    def __init__(self, rows: pa.Table, result: pa.Table, bound: _Bound) -> None:
        self._rows = rows
        self._result = result
        self._bound = bound
        self._values: dict[str, pa.Array] = {}
        self.num_rows: int = rows.num_rows

    def column(self, name: str, type_: SqlType) -> Vector:
        return from_arrow(type_, self._values_of(name))

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        return np.asarray(self._values_of(name).is_null())

    def _values_of(self, name: str) -> pa.Array:
        if name not in self._values:
            self._values[name] = self._read(name)
        return self._values[name]

    def _read(self, name: str) -> pa.Array:
        if name.startswith(JSON_VIEW):
            return as_json(self._rows, self._bound.fields[name.removeprefix(JSON_VIEW)])
        if name in self._bound.fields:
            return as_text(self._rows, self._bound.fields[name])
        field = self._bound.scope.field(name)
        assert field is not None, "the expression was bound to these columns"
        return transform.source_values(self._result if name in self._bound.derived else self._rows, field)


def _as(name: str, type_: TypeName) -> FieldSpec:
    return FieldSpec.model_construct(**{**_ANY, "name": name, "type": type_})


_ANY = FieldSpec(name="any", type=TypeName.STRING).model_dump(by_alias=False)


def _failures(name: str, rows: pa.Table, value: Vector, is_good: NDArray[np.bool_]) -> BadRows:
    """Return the rows for which an expression failed, and remove them from `is_good`."""
    if value.failure is None:
        return BadRows()
    failed = np.flatnonzero(value.failure.rows & is_good)
    is_good[failed] = False
    if not len(failed):
        return BadRows()
    reason = f"{name}: the expression fails"
    return BadRows({reason: len(failed)}, tuple(bad_row(reason, rows, int(row)) for row in failed[:SAMPLES_PER_REASON]))


def _column(value: Vector, num_rows: int) -> pa.Array:
    """Return values in Arrow's form, instants as timestamps, so that a dateTime column of any format takes them."""
    values = value.to_arrow(num_rows)
    if value.failure is not None:
        values = pc.if_else(pa.array(value.failure.rows), pa.scalar(None, values.type), values)
    return values.cast(pa.timestamp("ms")) if value.type.base is TypeName.TIMESTAMP else values


def _mask(nulls: NDArray[np.bool_] | None, num_rows: int) -> NDArray[np.bool_]:
    return np.zeros(num_rows, dtype=bool) if nulls is None else nulls


def _with_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    position = rows.schema.get_field_index(name)
    return rows.append_column(name, values) if position < 0 else rows.set_column(position, name, values)
