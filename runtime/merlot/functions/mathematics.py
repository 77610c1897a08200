"""Roots, powers, logarithms, angles, and tests for NaN and infinity: DOUBLE by numpy, as IEEE says, without errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.functions.function import Family, VectorFunction, number
from merlot.tree.types import DOUBLE, INT, SqlType
from merlot.vectors.scaled import doubles_of
from merlot.vectors.vector import Vector

MATHEMATICS: Final = Family("Mathematics")
Doubles = NDArray[np.float64]


def doubles(vector: Vector) -> Doubles:
    """Return the numbers of a vector, rounded to DOUBLE."""
    return doubles_of(vector.data)


def _of_one(operation: Callable[[Doubles], Any]) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        with np.errstate(all="ignore"):
            return operation(doubles(args[0]))

    return apply


def _of_two(operation: Callable[[Doubles, Doubles], Any]) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        with np.errstate(all="ignore"):
            return operation(doubles(args[0]), doubles(args[1]))

    return apply


def _cotangent(angles: Doubles) -> Doubles:
    return 1.0 / np.tan(angles)


_ONE: Final[dict[str, tuple[Callable[[Doubles], Any], dict[str, Any]]]] = {
    "exp": (np.exp, {"EXP(0)": 1.0}),
    "ln": (np.log, {"LN(1)": 0.0, "LOG(1)": 0.0}),
    "log2": (np.log2, {"LOG2(8)": 3.0}),
    "log10": (np.log10, {"LOG10(1000)": 3.0}),
    "sqrt": (np.sqrt, {"SQRT(2.25)": 1.5, "SQRT(-1)": "NaN"}),
    "sin": (np.sin, {"SIN(0)": 0.0}),
    "cos": (np.cos, {"COS(0)": 1.0}),
    "tan": (np.tan, {"TAN(0)": 0.0}),
    "cot": (_cotangent, {"COT(0)": "Infinity"}),
    "asin": (np.arcsin, {"ASIN(0)": 0.0}),
    "acos": (np.arccos, {"ACOS(1)": 0.0}),
    "atan": (np.arctan, {"ATAN(0)": 0.0}),
    "sinh": (np.sinh, {"SINH(0)": 0.0}),
    "cosh": (np.cosh, {"COSH(0)": 1.0}),
    "tanh": (np.tanh, {"TANH(0)": 0.0}),
    "degrees": (np.degrees, {"DEGREES(0)": 0.0}),
    "radians": (np.radians, {"RADIANS(0)": 0.0}),
}
_TWO: Final[dict[str, tuple[Callable[[Doubles, Doubles], Any], dict[str, Any]]]] = {
    "power": (np.power, {"POWER(2, 10)": 1024.0, "POW(2, -1)": 0.5}),
    "atan2": (np.arctan2, {"ATAN2(0, 1)": 0.0}),
    "hypot": (np.hypot, {"HYPOT(3, 4)": 5.0}),
}
_ALIASES: Final = {"ln": ("log",), "power": ("pow",)}

for _name, (_operation, _examples) in _ONE.items():
    MATHEMATICS.strict(
        _name,
        takes_scaled=True,
        aliases=_ALIASES.get(_name, ()),
        parameters=(number(),),
        result=DOUBLE,
        examples=_examples,
    )(_of_one(_operation))
for _name, (_operation_of_two, _examples) in _TWO.items():
    MATHEMATICS.strict(
        _name,
        takes_scaled=True,
        aliases=_ALIASES.get(_name, ()),
        parameters=(number("a"), number("b")),
        result=DOUBLE,
        examples=_examples,
    )(_of_two(_operation_of_two))


@MATHEMATICS.strict(
    "isnan", takes_scaled=True, parameters=(number(),), result=INT, examples={"IS_NAN(1.5)": 0, "ISNAN(0.0 / 0)": 1}
)
def _is_nan(_type: SqlType, args: Sequence[Vector]) -> Any:
    return np.isnan(doubles(args[0])).astype(np.int32)


@MATHEMATICS.strict(
    "isinfinite", takes_scaled=True, parameters=(number(),), result=INT, examples={"ISINFINITE(1.0 / 0)": 1}
)
def _is_infinite(_type: SqlType, args: Sequence[Vector]) -> Any:
    return np.isinf(doubles(args[0])).astype(np.int32)


@MATHEMATICS.strict(
    "isfinite", takes_scaled=True, parameters=(number(),), result=INT, examples={"ISFINITE(1.0 / 0)": 0}
)
def _is_finite(_type: SqlType, args: Sequence[Vector]) -> Any:
    return np.isfinite(doubles(args[0])).astype(np.int32)


@MATHEMATICS.strict(
    "ifnotfinite",
    takes_scaled=True,
    parameters=(number(), number("default")),
    result=DOUBLE,
    examples={"IFNOTFINITE(1.0 / 0, -1)": -1.0},
)
def _if_not_finite(_type: SqlType, args: Sequence[Vector]) -> Any:
    values = doubles(args[0])
    return np.where(np.isfinite(values), values, doubles(args[1]))
