"""Evaluation of expressions over vectors: the walk that applies functions to rows.

Null rules: a function is null where an argument is, except functions that see nulls themselves. The source decides
whether columns have nulls at all: with null handling off they hold the default values.

Failures (an overflow, a division by zero, a text that is no number) belong to rows. They count only where the result
depends on them: not under a null, not in a branch that is not taken, and not beside an operand that decides an AND or
an OR. So whether a query fails follows from its rows alone, not from the order of evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from merlot.functions import sizes
from merlot.functions.function import Evaluate, Lazy, Lists, ScalarFunction
from merlot.functions.registry import BY_NAME
from merlot.functions.source import CodedSource, ColumnSource, Distinct, ValueSource, decided, hits
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.types import BOOLEAN, SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.errors import LimitExceededError, QueryArithmeticError, UnsupportedQueryError
from merlot.vectors.vector import (
    TEXT,
    Attempt,
    Failure,
    Rows,
    Vector,
    constant,
    either_failed,
    either_null,
    outside,
)

_MANY = 1_024
"""Number of rows below which it is not worth asking for a column's distinct values, or for values that were computed
before."""
MOST_MADE = 1 << 32
"""Limit of the bytes that a function with `most_bytes` may make at once: an Arrow array of texts has up to half of
it."""
_LONG = TEXT | {TypeName.BIG_DECIMAL}
"""Types whose values may be of any length."""
T = TypeVar("T", Column, Call)


def evaluate(expr: Expr, source: ColumnSource) -> Vector:
    """Return the values of an expression; a constant expression may give a constant.

    Raise UnsupportedQueryError, LimitExceededError, and QueryArithmeticError if the value of a row cannot be
    computed."""
    spending = account.current()
    mark = spending.held_bytes
    vector = attempt(expr, source)
    spending.release(mark)
    if vector.failure is not None and source.num_rows:
        raise QueryArithmeticError(vector.failure.reason)
    return vector


def matches(expr: Expr, source: ColumnSource) -> Rows:
    """Return the rows where a predicate is TRUE (neither FALSE nor NULL); raise errors as `evaluate` does."""
    return hits(evaluate(expr, source), source.num_rows)


def verdicts(expr: Expr, source: ColumnSource) -> tuple[Rows, Failure | None]:
    """Return the rows as `matches` does, and apart from them the failure of rows without a verdict."""
    spending = account.current()
    mark = spending.held_bytes
    vector = attempt(expr, source)
    spending.release(mark)
    return decided(vector, source.num_rows)


def attempt(expr: Expr, source: ColumnSource) -> Vector:
    """Evaluate as `evaluate` does, but put rows without a value into the vector's failure."""
    match expr:
        case Literal():
            return constant(expr)
        case Column():
            return _once(expr, source, _read)
        case Aggregate():
            raise UnsupportedQueryError(f"aggregate inside an expression over rows function={expr.function}")
        case Call():
            return _once(expr, source, _called)


def _once(expr: T, source: ColumnSource, compute: Callable[[T, ColumnSource], Vector]) -> Vector:
    # Looked up by name: isinstance of a protocol takes microseconds, for every node of every chunk.
    remembered: dict[Expr, Vector | None] | None = getattr(source, "remembered", None)
    if not remembered or source.num_rows < _MANY or expr not in remembered:
        return compute(expr, source)
    result = remembered[expr]
    if result is None:
        result = remembered[expr] = compute(expr, source)
    return result


def _read(column: Column, source: ColumnSource) -> Vector:
    return source.column(column.name, column.type)


def _called(call: Call, source: ColumnSource) -> Vector:
    function = BY_NAME.get(call.function)
    if function is None:
        raise UnsupportedQueryError(f"unknown function name={call.function}")
    if function.lists is Lists.ANY_VALUE and call.args[0].type.is_array:
        return _of_lists(call, source)
    if function.lazy is not None:
        return _lazy(function.lazy, call, source, attempt if function.takes_scaled else _with_objects)
    if source.num_rows >= _MANY and not function.is_light and isinstance(source, CodedSource):
        coded = _of_distinct(call, source)
        if coded is not None:
            return coded
    return _strict(function, call, source)


def _lazy(lazy: Lazy, call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    spending = account.current()
    mark = spending.held_bytes
    vector = lazy(call, source, evaluate)
    spending.settle(call.function, mark, account.size_of(vector.data))
    return vector


def _of_distinct(call: Call, source: CodedSource) -> Vector | None:
    """Compute the call once for each distinct text of the only column that it reads. Return None for other calls, and
    if the source does not give the distinct texts.

    Looking a text up costs more than most functions of it, and over rows each row would need it."""
    columns: set[Column] = set()
    if not _collect(call, columns) or len(columns) != 1:
        return None
    (column,) = columns
    coded = source.coded(column.name) if column.type.base in TEXT and not column.type.is_array else None
    if coded is None:
        return None
    values = Distinct(coded.distinct)
    result = attempt(call, values).spread(values.num_rows).take(coded.ids)
    return Vector(result.type, result.data, coded.nulls, outside(result.failure, coded.nulls))


def _collect(expr: Expr, columns: set[Column]) -> bool:
    """Add the columns of an expression to `columns`; return True if none of its functions sees nulls."""
    if isinstance(expr, Column):
        columns.add(expr)
    if not isinstance(expr, Call):
        return True
    return not BY_NAME[expr.function].sees_nulls and all(_collect(arg, columns) for arg in expr.args)


def _with_objects(expr: Expr, source: ColumnSource) -> Vector:
    return attempt(expr, source).with_objects()


def _strict(function: ScalarFunction, call: Call, source: ColumnSource) -> Vector:
    assert function.apply is not None, f"{function.name} is written out by binding"
    spending = account.current()
    mark = spending.held_bytes
    args = [attempt(arg, source) for arg in call.args]
    if not function.takes_scaled:
        args = [arg.with_objects() for arg in args]
    nulls = None
    failure = None
    for arg in args:
        nulls = either_null(nulls, arg.nulls)
        failure = either_failed(failure, arg.failure)
    if call.type.is_array or call.type.base in _LONG:
        _expect(function, args, spending)
    data = function.apply(call.type, args)
    if isinstance(data, Attempt):
        data, failure = data.data, either_failed(failure, data.failure)
    spending.settle(function.name, mark, account.size_of(data))
    # With constants only, numpy computes a scalar of its own kind.
    if isinstance(data, np.generic):
        data = np.asarray(data)
    return Vector(call.type, data, nulls, outside(failure, nulls))


def _expect(function: ScalarFunction, args: Sequence[Vector], spending: account.Spending) -> None:
    """Raise LimitExceededError if the result may be larger than the query's share, or than Arrow's arrays."""
    spending.function = function.name.upper()
    if function.most_bytes is None:
        spending.expect("", sizes.usual(args))
        return
    num_bytes = function.most_bytes(args)
    spending.expect("", num_bytes)
    if num_bytes > MOST_MADE:
        raise LimitExceededError(
            f"query needs too much memory for {spending.function} bytes={num_bytes} limit={MOST_MADE}"
        )


def _of_lists(call: Call, source: ColumnSource) -> Vector:
    """Apply a predicate to lists: it is true if any value matches; `not_equals` and `not_in` are true if no value is
    equal."""
    lists = attempt(call.args[0], source).spread(source.num_rows)
    base = call.args[0].type.base
    positive = Call(_POSITIVE.get(call.function, call.function), (Column("", SqlType(base)), *call.args[1:]), call.type)
    found_values = matches(positive, ValueSource(base, lists.data.flatten()))
    before = np.concatenate([[0], np.cumsum(found_values)])
    offsets = lists.data.offsets.to_numpy()
    has_match = before[offsets[1:]] > before[offsets[:-1]]
    return Vector(BOOLEAN, ~has_match if call.function in _POSITIVE else has_match, lists.nulls)


_POSITIVE = {"not_equals": "equals", "not_in": "in"}
