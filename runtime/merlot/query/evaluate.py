"""Expressions over vectors: a registry of functions by canonical name, and the walk that applies them.

Null rules: a function is null where an argument is, except those registered in LAZY, which see the arguments' masks.
Whether columns have nulls at all is the source's matter: with null handling off they are the default values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query import functions_number, functions_text, functions_time
from merlot.query.cast import cast
from merlot.query.compare import COMPARISONS, is_in, is_like
from merlot.query.context import UnsupportedQueryError
from merlot.query.vector import Vector, constant, either_null, from_arrow
from merlot.spec.types import TypeName
from merlot.sql.tree import Aggregate, Call, Column, Expr, Literal
from merlot.sql.types import BOOLEAN, SqlType


class ColumnSource(Protocol):
    """Rows that expressions are evaluated over."""

    @property
    def num_rows(self) -> int: ...

    def column(self, name: str, type_: SqlType) -> Vector:
        """Values of a column; its nulls only with null handling."""
        ...

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        """Which rows are null, whether or not null handling is on."""
        ...


Strict = Callable[[SqlType, Sequence[Vector]], Any]


def evaluate(expr: Expr, source: ColumnSource) -> Vector:
    """Values of an expression; a constant expression may give a constant. Raises UnsupportedQueryError."""
    match expr:
        case Literal():
            return constant(expr)
        case Column():
            return source.column(expr.name, expr.type)
        case Aggregate():
            raise UnsupportedQueryError(f"aggregate inside an expression over rows function={expr.function}")
        case Call():
            if expr.args and isinstance(expr.args[0], Column) and expr.args[0].type.is_array:
                return _of_lists(expr, expr.args[0], source)
            lazy = _LAZY.get(expr.function)
            return _strict(expr, source) if lazy is None else lazy(expr, source)


def matches(expr: Expr, source: ColumnSource) -> NDArray[np.bool_]:
    """Rows where a predicate is TRUE (neither FALSE nor NULL)."""
    verdict = evaluate(expr, source).spread(source.num_rows)
    data: NDArray[np.bool_] = np.asarray(verdict.data, dtype=np.bool_)
    return data if verdict.nulls is None else data & ~verdict.nulls


def _strict(call: Call, source: ColumnSource) -> Vector:
    function = _STRICT.get(call.function)
    if function is None:
        raise UnsupportedQueryError(f"unknown function name={call.function}")
    args = [evaluate(arg, source) for arg in call.args]
    nulls = None
    for arg in args:
        nulls = either_null(nulls, arg.nulls)
    data = function(call.type, args)
    # Of constants alone, numpy computes a scalar of its own kind.
    return Vector(call.type, np.asarray(data) if isinstance(data, np.generic) else data, nulls)


def _of_lists(call: Call, column: Column, source: ColumnSource) -> Vector:
    """A predicate over a multi-value column: any value matches; `not_equals` and `not_in` mean that none is equal."""
    if call.function in ("is_null", "is_not_null"):
        return _is_null(call, source)
    lists = source.column(column.name, column.type)
    element = Column(column.name, SqlType(column.type.base))
    positive = Call(_POSITIVE.get(call.function, call.function), (element, *call.args[1:]), call.type)
    hits = matches(positive, ValueSource(column.type.base, lists.data.flatten()))
    before = np.concatenate([[0], np.cumsum(hits)])
    offsets = lists.data.offsets.to_numpy()
    found = before[offsets[1:]] > before[offsets[:-1]]
    return Vector(BOOLEAN, ~found if call.function in _POSITIVE else found, lists.nulls)


_POSITIVE = {"not_equals": "equals", "not_in": "in"}


class ValueSource:
    """Distinct values of one column as rows."""

    def __init__(self, type_: TypeName, values: Any) -> None:
        self._vector = from_arrow(SqlType(type_), values)
        self.num_rows = len(values)

    def column(self, name: str, type_: SqlType) -> Vector:
        return self._vector

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        return None


def _and(call: Call, source: ColumnSource) -> Vector:
    return _kleene(call, source, decisive=False)


def _or(call: Call, source: ColumnSource) -> Vector:
    return _kleene(call, source, decisive=True)


def _kleene(call: Call, source: ColumnSource, *, decisive: bool) -> Vector:
    """Three-valued AND (decisive False) or OR (decisive True): a decisive operand decides, else a null leaves it."""
    decided = np.zeros(source.num_rows, np.bool_)
    unknown = np.zeros(source.num_rows, np.bool_)
    for arg in call.args:
        part = evaluate(arg, source)
        known = np.True_ if part.nulls is None else ~part.nulls
        decided |= (np.asarray(part.data, np.bool_) == decisive) & known
        if part.nulls is not None:
            unknown |= part.nulls
    unknown &= ~decided
    return Vector(BOOLEAN, decided == decisive, unknown if unknown.any() else None)


def _is_null(call: Call, source: ColumnSource) -> Vector:
    arg = call.args[0]
    nulls = source.nulls(arg.name) if isinstance(arg, Column) else evaluate(arg, source).nulls
    found = np.zeros(source.num_rows, np.bool_) if nulls is None else np.broadcast_to(nulls, source.num_rows)
    return Vector(BOOLEAN, found if call.function == "is_null" else ~found)


class RowsOf:
    """Chosen rows of a source."""

    def __init__(self, source: ColumnSource, rows: NDArray[np.int64]) -> None:
        self._source = source
        self._rows = rows
        self.num_rows = len(rows)

    def column(self, name: str, type_: SqlType) -> Vector:
        return self._source.column(name, type_).take(self._rows)

    def nulls(self, name: str) -> NDArray[np.bool_] | None:
        nulls = self._source.nulls(name)
        return None if nulls is None else nulls[self._rows]


def _case(call: Call, source: ColumnSource) -> Vector:
    """First branch whose condition is TRUE. Conditions see the rows still open, results their own: an error in a branch
    (an overflow, a division by zero) is one only where the branch is taken."""
    left = np.arange(source.num_rows)
    parts: list[tuple[NDArray[np.int64], Vector]] = []
    for condition, result in zip(call.args[:-1:2], call.args[1:-1:2], strict=True):
        hit = matches(condition, RowsOf(source, left))
        parts.append(_branch(call.type, result, source, left[hit]))
        left = left[~hit]
    parts.append(_branch(call.type, call.args[-1], source, left))
    return _assemble(call.type, parts, source.num_rows)


def _branch(
    type_: SqlType, result: Expr, source: ColumnSource, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Vector]:
    chosen = evaluate(result, RowsOf(source, rows)) if len(rows) else constant(Literal(None, type_))
    return rows, cast(type_, chosen).spread(len(rows))


def _assemble(type_: SqlType, parts: Sequence[tuple[NDArray[np.int64], Vector]], num_rows: int) -> Vector:
    """One vector from the branches' rows."""
    place = np.empty(num_rows, np.int64)
    place[np.concatenate([rows for rows, _ in parts])] = np.arange(num_rows)
    nulls = None
    if any(vector.nulls is not None and len(rows) for rows, vector in parts):
        masks = [np.zeros(len(rows), np.bool_) if one.nulls is None else one.nulls for rows, one in parts]
        nulls = np.concatenate(masks)[place]
    if isinstance(parts[0][1].data, np.ndarray):
        return Vector(type_, np.concatenate([vector.data for _, vector in parts])[place], nulls)
    return Vector(type_, pa.concat_arrays([vector.data for _, vector in parts]).take(pa.array(place)), nulls)


def _cast(call: Call, source: ColumnSource) -> Vector:
    return cast(call.type, evaluate(call.args[0], source))


def _not(_type: SqlType, args: Sequence[Vector]) -> Any:
    return ~np.asarray(args[0].data, np.bool_)


_STRICT: dict[str, Strict] = {
    **COMPARISONS,
    **functions_number.FUNCTIONS,
    **functions_text.FUNCTIONS,
    **functions_time.FUNCTIONS,
    "in": is_in,
    "not_in": lambda type_, args: ~is_in(type_, args),
    "like": is_like,
    "not": _not,
}
_LAZY: dict[str, Callable[[Call, ColumnSource], Vector]] = {
    "and": _and,
    "or": _or,
    "is_null": _is_null,
    "is_not_null": _is_null,
    "case": _case,
    "cast": _cast,
}
