"""Expressions over vectors: a registry of functions by canonical name, and the walk that applies them.

Null rules: a function is null where an argument is, except those registered in LAZY, which see the arguments' masks.
Whether columns have nulls at all is the source's matter: with null handling off they are the default values.

Failures (an overflow, a division by zero, a text that is no number) are of their rows, and count where the result
depends on them: not under a null, not in a branch that is not taken, and not beside an operand that decides an AND or
an OR. So whether a query fails follows from its rows alone, not from what is looked at first.
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
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.types import BOOLEAN, SqlType
from merlot.values.types import TypeName
from merlot.vectors.errors import QueryArithmeticError, UnsupportedQueryError
from merlot.vectors.vector import (
    Attempt,
    Failure,
    Rows,
    Vector,
    constant,
    either_failed,
    either_null,
    from_arrow,
    outside,
)


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
    """Values of an expression; a constant expression may give a constant.

    Raises UnsupportedQueryError, and QueryArithmeticError if a row has no value."""
    vector = _attempt(expr, source)
    if vector.failure is not None and source.num_rows:
        raise QueryArithmeticError(vector.failure.reason)
    return vector


def matches(expr: Expr, source: ColumnSource) -> Rows:
    """Rows where a predicate is TRUE (neither FALSE nor NULL); raises as evaluate."""
    return _hits(evaluate(expr, source), source)


def verdicts(expr: Expr, source: ColumnSource) -> tuple[Rows, Failure | None]:
    """As matches, but rows without a verdict are given back beside."""
    verdict = _attempt(expr, source).spread(source.num_rows)
    hits = _hits(verdict, source)
    return (hits, None) if verdict.failure is None else (hits & ~verdict.failure.rows, verdict.failure)


def _hits(verdict: Vector, source: ColumnSource) -> Rows:
    full = verdict.spread(source.num_rows)
    data: Rows = np.asarray(full.data, dtype=np.bool_)
    return data if full.nulls is None else data & ~full.nulls


def _attempt(expr: Expr, source: ColumnSource) -> Vector:
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


def _strict(call: Call, source: ColumnSource) -> Vector:
    function = _STRICT.get(call.function)
    if function is None:
        raise UnsupportedQueryError(f"unknown function name={call.function}")
    args = [_attempt(arg, source) for arg in call.args]
    nulls = None
    failure = None
    for arg in args:
        nulls = either_null(nulls, arg.nulls)
        failure = either_failed(failure, arg.failure)
    data = function(call.type, args)
    if isinstance(data, Attempt):
        data, failure = data.data, either_failed(failure, data.failure)
    # Of constants alone, numpy computes a scalar of its own kind.
    if isinstance(data, np.generic):
        data = np.asarray(data)
    return Vector(call.type, data, nulls, outside(failure, nulls))


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
    """Three-valued AND (decisive False) or OR (decisive True): a decisive operand decides, else a failed one leaves no
    value, else a null leaves it open."""
    decided = np.zeros(source.num_rows, np.bool_)
    unknown = np.zeros(source.num_rows, np.bool_)
    failure: Failure | None = None
    for arg in call.args:
        part = _attempt(arg, source).spread(source.num_rows)
        hits = np.asarray(part.data, np.bool_) == decisive
        if part.nulls is not None:
            hits &= ~part.nulls
            unknown |= part.nulls
        if part.failure is not None:
            hits &= ~part.failure.rows
            failure = either_failed(failure, part.failure)
        decided |= hits
    failure = outside(failure, decided)
    unknown &= ~decided if failure is None else ~(decided | failure.rows)
    return Vector(BOOLEAN, decided == decisive, unknown if unknown.any() else None, failure)


def _is_null(call: Call, source: ColumnSource) -> Vector:
    arg = call.args[0]
    failure: Failure | None = None
    if isinstance(arg, Column):
        nulls = source.nulls(arg.name)
    else:
        tested = _attempt(arg, source)
        nulls, failure = tested.nulls, tested.failure
    found = np.zeros(source.num_rows, np.bool_) if nulls is None else np.broadcast_to(nulls, source.num_rows)
    return Vector(BOOLEAN, found if call.function == "is_null" else ~found, None, failure)


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
    """First branch whose condition is TRUE. Conditions see the rows still open, results their own."""
    left = np.arange(source.num_rows)
    parts: list[tuple[NDArray[np.int64], Vector]] = []
    for condition, result in zip(call.args[:-1:2], call.args[1:-1:2], strict=True):
        hit, failure = verdicts(condition, RowsOf(source, left))
        if failure is not None:
            parts.append(_undecided(call.type, failure, left))
            left, hit = left[~failure.rows], hit[~failure.rows]
        parts.append(_branch(call.type, result, source, left[hit]))
        left = left[~hit]
    parts.append(_branch(call.type, call.args[-1], source, left))
    return _assemble(call.type, parts, source.num_rows)


def _undecided(type_: SqlType, failure: Failure, left: NDArray[np.int64]) -> tuple[NDArray[np.int64], Vector]:
    """Rows for which no branch is known."""
    rows = left[failure.rows]
    nothing = Vector(type_, constant(Literal(None, type_)).data).spread(len(rows))
    return rows, Vector(type_, nothing.data, None, Failure(np.ones(len(rows), np.bool_), failure.reason))


def _branch(
    type_: SqlType, result: Expr, source: ColumnSource, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Vector]:
    chosen = _attempt(result, RowsOf(source, rows)) if len(rows) else constant(Literal(None, type_))
    return rows, cast(type_, chosen).spread(len(rows))


def _assemble(type_: SqlType, parts: Sequence[tuple[NDArray[np.int64], Vector]], num_rows: int) -> Vector:
    """One vector from the branches' rows."""
    place = np.empty(num_rows, np.int64)
    place[np.concatenate([rows for rows, _ in parts])] = np.arange(num_rows)
    nulls = _joined([(rows, vector.nulls) for rows, vector in parts], place)
    failures = [(rows, vector.failure) for rows, vector in parts]
    lost = _joined([(rows, None if failure is None else failure.rows) for rows, failure in failures], place)
    reason = next((failure.reason for _, failure in failures if failure is not None), "")
    failure = None if lost is None else Failure(lost, reason)
    if isinstance(parts[0][1].data, np.ndarray):
        return Vector(type_, np.concatenate([vector.data for _, vector in parts])[place], nulls, failure)
    return Vector(type_, pa.concat_arrays([vector.data for _, vector in parts]).take(pa.array(place)), nulls, failure)


def _joined(parts: Sequence[tuple[NDArray[np.int64], Rows | None]], place: NDArray[np.int64]) -> Rows | None:
    """A mask of all rows from those of the branches; None if it marks none."""
    if not any(mask is not None and mask.any() for _, mask in parts):
        return None
    full = [np.zeros(len(rows), np.bool_) if mask is None else mask for rows, mask in parts]
    joined: Rows = np.concatenate(full)[place]
    return joined


def _cast(call: Call, source: ColumnSource) -> Vector:
    return cast(call.type, _attempt(call.args[0], source))


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
