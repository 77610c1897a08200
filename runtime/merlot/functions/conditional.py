"""CASE, functions that are short forms of it, LEAST and GREATEST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.functions.casts import cast
from merlot.functions.comparisons import compare
from merlot.functions.conversion import PLACEHOLDERS, cast_to, common_type
from merlot.functions.function import CONDITIONS, Binding, Evaluate, Family, Parameter, anything
from merlot.functions.source import ColumnSource, RowsOf, decided
from merlot.tree.errors import SqlValidationError, UnsupportedSqlError
from merlot.tree.literals import NULL
from merlot.tree.nodes import FALSE, TRUE, Call, Expr, Literal
from merlot.tree.types import BOOLEAN, SqlType
from merlot.values.types import TypeName
from merlot.vectors.scaled import Scaled, joined
from merlot.vectors.vector import Failure, Rows, Vector, constant, either_failed

CONDITIONAL: Final = Family("Conditional")
Branch = tuple[Expr, Expr]
"""Predicate, and the result where it is the first that holds."""


def typed_case(branches: Sequence[Branch], otherwise: Expr, *, nulls: bool) -> Expr:
    """Return a CASE whose results have one type; raise SqlValidationError, UnsupportedSqlError."""
    target = _result_type([*(result for _, result in branches), otherwise])
    if target is None:
        return NULL
    args: list[Expr] = []
    for test, result in branches:
        if test == FALSE or _is_null(test):
            continue
        if test == TRUE:
            otherwise = result
            break
        args += (test, _result(result, target, nulls=nulls))
    last = _result(otherwise, target, nulls=nulls)
    return Call("case", (*args, last), target) if args else last


def _result_type(results: Sequence[Expr]) -> SqlType | None:
    """Return the common type of the results that are not NULL; None if all are NULL. Raise SqlValidationError,
    UnsupportedSqlError."""
    target: SqlType | None = None
    for result in results:
        if _is_null(result):
            continue
        if result.type.is_array:
            raise UnsupportedSqlError("CASE with a multi-value column")
        joined = result.type if target is None else common_type(target, result.type)
        if joined is None:
            raise SqlValidationError(f"CASE branches of different types: {target} and {result.type}")
        target = joined
    return target


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is None


def _result(result: Expr, target: SqlType, *, nulls: bool) -> Expr:
    if _is_null(result):
        return Literal(None if nulls else PLACEHOLDERS[target.base], target)
    return cast_to(result, target)


@CONDITIONAL.lazy(
    "case",
    takes_scaled=True,
    syntax="CASE WHEN a THEN x … [ELSE y] END",
    sees_nulls=True,
    examples={"CASE WHEN 1 = 2 THEN 'a' ELSE 'b' END": "b", "CASE 3 WHEN 3 THEN 'c' END": "c"},
)
def _case(call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    """Return the result of the first branch whose condition is TRUE. Conditions are evaluated on the rows that are
    still undecided, results on the rows of their branch."""
    left = np.arange(source.num_rows)
    parts: list[tuple[NDArray[np.int64], Vector]] = []

    def take(result: Expr, rows: NDArray[np.int64]) -> None:
        chosen = evaluate(result, RowsOf(source, rows)) if len(rows) else constant(Literal(None, call.type))
        parts.append((rows, cast(call.type, chosen).spread(len(rows))))

    for condition, result in zip(call.args[:-1:2], call.args[1:-1:2], strict=True):
        hit, failure = decided(evaluate(condition, RowsOf(source, left)), len(left))
        if failure is not None:
            parts.append(_undecided(call.type, failure, left))
            left, hit = left[~failure.rows], hit[~failure.rows]
        take(result, left[hit])
        left = left[~hit]
    take(call.args[-1], left)
    return _assemble(call.type, parts, source.num_rows)


def _undecided(type_: SqlType, failure: Failure, left: NDArray[np.int64]) -> tuple[NDArray[np.int64], Vector]:
    """Return the rows whose condition failed, and a vector in which all of them have failed."""
    rows = left[failure.rows]
    nothing = Vector(type_, constant(Literal(None, type_)).data).spread(len(rows))
    return rows, Vector(type_, nothing.data, None, Failure(np.ones(len(rows), np.bool_), failure.reason))


def _assemble(type_: SqlType, parts: Sequence[tuple[NDArray[np.int64], Vector]], num_rows: int) -> Vector:
    """Join the branches' rows into one vector."""
    place = np.empty(num_rows, np.int64)
    place[np.concatenate([rows for rows, _ in parts])] = np.arange(num_rows)
    nulls = _joined([(rows, vector.nulls) for rows, vector in parts], place)
    failures = [(rows, vector.failure) for rows, vector in parts]
    lost = _joined([(rows, None if failure is None else failure.rows) for rows, failure in failures], place)
    reason = next((failure.reason for _, failure in failures if failure is not None), "")
    failure = None if lost is None else Failure(lost, reason)
    values = Vector(type_, _concatenated([vector for _, vector in parts])).take(place).data
    return Vector(type_, values, nulls, failure)


def _concatenated(parts: Sequence[Vector]) -> Any:
    """Concatenate the values of vectors of one type."""
    scaled = [part.data for part in parts if isinstance(part.data, Scaled)]
    if len(scaled) == len(parts) and (values := joined(scaled, np.concatenate)) is not None:
        return values
    data = [part.with_objects().data for part in parts]
    return np.concatenate(data) if isinstance(data[0], np.ndarray) else pa.concat_arrays(data)


def _joined(parts: Sequence[tuple[NDArray[np.int64], Rows | None]], place: NDArray[np.int64]) -> Rows | None:
    """Join the masks of the branches into a mask of all rows; return None if it marks no row."""
    if not any(mask is not None and mask.any() for _, mask in parts):
        return None
    full = [np.zeros(len(rows), np.bool_) if mask is None else mask for rows, mask in parts]
    joined: Rows = np.concatenate(full)[place]
    return joined


@CONDITIONAL.rewriting(
    "coalesce",
    parameters=(anything("a"), anything("b", is_optional=True, repeats=True)),
    sees_nulls=True,
    examples={"COALESCE(NULL, 'a', 'b')": "a"},
)
def _coalesce(binding: Binding, args: tuple[Expr, ...]) -> Expr:
    """Return the first value that is not null, with and without null handling."""
    branches = [(_is_known(arg), arg) for arg in args[:-1]]
    return typed_case(branches, args[-1], nulls=binding.nulls)


def _is_known(arg: Expr) -> Expr:
    if isinstance(arg, Literal):
        return FALSE if _is_null(arg) else TRUE
    return Call("is_not_null", (arg,), BOOLEAN)


@CONDITIONAL.rewriting(
    "nullif",
    parameters=(anything("a"), anything("b")),
    sees_nulls=True,
    examples={"NULLIF(1, 2)": 1},
)
def _null_if(binding: Binding, args: tuple[Expr, ...]) -> Expr:
    """Return NULL where the two are equal, else the first."""
    return typed_case([(binding.equal(args[0], args[1]), NULL)], args[0], nulls=binding.nulls)


@CONDITIONAL.rewriting(
    "if",
    parameters=(Parameter(name="condition", kind=CONDITIONS), anything("x"), anything("y")),
    sees_nulls=True,
    examples={"IF(1 = 2, 'x', 'y')": "y"},
)
def _if(binding: Binding, args: tuple[Expr, ...]) -> Expr:
    return typed_case([(binding.predicate(args[0]), args[1])], args[2], nulls=binding.nulls)


def _of_one_type(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    target = _result_type(args)
    if target is None or target.base is TypeName.BYTES:
        raise SqlValidationError("least and greatest need values that have an order")
    return tuple(_result(arg, target, nulls=True) for arg in args)


def _type_of(args: Sequence[Expr]) -> SqlType:
    return args[0].type


_VALUES: Final = (anything("a"), anything("b", is_optional=True, repeats=True))


@CONDITIONAL.lazy(
    "least",
    parameters=_VALUES,
    result=_type_of,
    complete=_of_one_type,
    takes_scaled=True,
    sees_nulls=True,
    examples={"LEAST(3, 1.5, 2)": 1.5, "LEAST('b', 'a')": "a"},
)
def _least(call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    """Return the least value that is not null; NULL if all are null."""
    return _chosen(call, source, evaluate, "less_than")


@CONDITIONAL.lazy(
    "greatest",
    parameters=_VALUES,
    result=_type_of,
    complete=_of_one_type,
    takes_scaled=True,
    sees_nulls=True,
    examples={"GREATEST(3, 1.5, 2)": 3.0, "GREATEST('b', 'a')": "b"},
)
def _greatest(call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    """Return the greatest value that is not null; NULL if all are null."""
    return _chosen(call, source, evaluate, "greater_than")


def _either(take: Rows, left: Vector, right: Vector) -> Any:
    """Return values of `left` in the rows of `take`, else of `right`."""
    if isinstance(left.data, Scaled) and isinstance(right.data, Scaled):
        values = joined((left.data, right.data), lambda pair: np.where(take, *pair))
        if values is not None:
            return values
    first, second = left.with_objects().data, right.with_objects().data
    if isinstance(first, np.ndarray):
        return np.where(take, first, second)
    return pc.if_else(pa.array(take), first, second)


def _chosen(call: Call, source: ColumnSource, evaluate: Evaluate, is_better: str) -> Vector:
    best = evaluate(call.args[0], source).spread(source.num_rows)
    for arg in call.args[1:]:
        other = evaluate(arg, source).spread(source.num_rows)
        take = compare(is_better, other, best)
        if best.nulls is not None:
            take = take | best.nulls
        if other.nulls is not None:
            take = take & ~other.nulls
        best = Vector(
            call.type,
            _either(take, other, best),
            None if best.nulls is None or other.nulls is None else best.nulls & other.nulls,
            either_failed(best.failure, other.failure),
        )
    return best
