"""Expressions over vectors: a registry of functions by canonical name, and the walk that applies them.

Null rules: a function is null where an argument is, except those registered in LAZY, which see the arguments' masks.
Whether columns have nulls at all is the source's matter: with null handling off they are the default values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
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


def _case(call: Call, source: ColumnSource) -> Vector:
    """First branch whose condition is TRUE; conditions are tried in order, later branches see fewer rows."""
    num_rows = source.num_rows
    branches = [*zip(call.args[:-1:2], call.args[1:-1:2], strict=True)]
    chosen = np.full(num_rows, len(branches), np.int64)
    open_rows = np.ones(num_rows, np.bool_)
    for number, (condition, _) in enumerate(branches):
        hit = matches(condition, source) & open_rows
        chosen[hit] = number
        open_rows &= ~hit
    results = [evaluate(result, source) for _, result in branches] + [evaluate(call.args[-1], source)]
    return _choose(call.type, chosen, results)


def _choose(type_: SqlType, chosen: NDArray[np.int64], results: Sequence[Vector]) -> Vector:
    num_rows = len(chosen)
    full = [cast(type_, result).spread(num_rows) for result in results]
    nulls = None
    if any(vector.nulls is not None for vector in full):
        nulls = np.choose(chosen, [np.False_ if vector.nulls is None else vector.nulls for vector in full])
    first = full[0].data
    if isinstance(first, np.ndarray):
        data: Any = np.empty(num_rows, first.dtype)
        for number, vector in enumerate(full):
            rows = chosen == number
            data[rows] = vector.data[rows]
    else:
        data = functions_text.choose(chosen, [vector.data for vector in full])
    return Vector(type_, data, nulls)


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
