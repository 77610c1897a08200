"""AND, OR, NOT and tests for null. All but NOT may have a value although an operand is null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from merlot.functions.function import Evaluate, Family, Lists
from merlot.functions.source import ColumnSource
from merlot.tree.nodes import Call, Column
from merlot.tree.types import BOOLEAN, SqlType
from merlot.vectors.vector import Failure, Vector, either_failed, outside

LOGIC: Final = Family("Logic")


@LOGIC.lazy(
    "and", syntax="a AND b", result=BOOLEAN, is_predicate=True, is_light=True, examples={"1 = 1 AND 1 = 2": False}
)
def _and(call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    return _kleene(call, source, evaluate, decisive=False)


@LOGIC.lazy("or", syntax="a OR b", result=BOOLEAN, is_predicate=True, is_light=True, examples={"1 = 1 OR 1 = 2": True})
def _or(call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    return _kleene(call, source, evaluate, decisive=True)


@LOGIC.strict("not", syntax="NOT a", result=BOOLEAN, is_predicate=True, is_light=True, examples={"NOT 1 = 1": False})
def _not(_type: SqlType, args: Sequence[Vector]) -> Any:
    return ~np.asarray(args[0].data, np.bool_)


@LOGIC.lazy(
    "is_null",
    takes_scaled=True,
    syntax="x IS NULL",
    result=BOOLEAN,
    lists=Lists.PASSED_WHOLE,
    sees_nulls=True,
    is_predicate=True,
    is_light=True,
    examples={"NULL IS NULL": True},
)
def _is_null(call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    return _nullness(call, source, evaluate, wanted=True)


@LOGIC.lazy(
    "is_not_null",
    takes_scaled=True,
    syntax="x IS NOT NULL",
    result=BOOLEAN,
    lists=Lists.PASSED_WHOLE,
    sees_nulls=True,
    is_predicate=True,
    is_light=True,
    examples={"NULL IS NOT NULL": False},
)
def _is_not_null(call: Call, source: ColumnSource, evaluate: Evaluate) -> Vector:
    return _nullness(call, source, evaluate, wanted=False)


def _kleene(call: Call, source: ColumnSource, evaluate: Evaluate, *, decisive: bool) -> Vector:
    """Evaluate three-valued AND (decisive False) or OR (decisive True). A decisive operand decides; else a failed
    operand leaves no value; else a null operand makes the result null."""
    decided = np.zeros(source.num_rows, np.bool_)
    unknown = np.zeros(source.num_rows, np.bool_)
    failure: Failure | None = None
    for arg in call.args:
        part = evaluate(arg, source).spread(source.num_rows)
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


def _nullness(call: Call, source: ColumnSource, evaluate: Evaluate, *, wanted: bool) -> Vector:
    arg = call.args[0]
    failure: Failure | None = None
    if isinstance(arg, Column):
        nulls = source.nulls(arg.name)
    else:
        tested = evaluate(arg, source)
        nulls, failure = tested.nulls, tested.failure
    is_null = np.zeros(source.num_rows, np.bool_) if nulls is None else np.broadcast_to(nulls, source.num_rows)
    return Vector(BOOLEAN, is_null if wanted else ~is_null, None, failure)
