"""Division, divisors and multiples: LONG, with an error on overflow unless the function answers 0. Remainders are
DOUBLE if a number is not whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from merlot.functions.arithmetic import exact_type, modulo, product
from merlot.functions.function import Family, number, whole
from merlot.functions.mathematics import doubles
from merlot.tree.types import DOUBLE, LONG, SqlType
from merlot.vectors.vector import INTEGERS, Attempt, Vector, failed

WHOLE_NUMBERS: Final = Family("Whole numbers")
_LOWEST: Final = np.iinfo(np.int64).min


def _quotients(args: Sequence[Vector]) -> tuple[Any, Any]:
    """Return the quotients, rounded down, and the rows that have none, whose quotients are 0."""
    if all(arg.type.base in INTEGERS for arg in args):
        left, right = (np.asarray(arg.data, np.int64) for arg in args)
        lost = (right == 0) | ((left == _LOWEST) & (right == -1))
        return np.where(lost, 0, left // np.where(lost, 1, right)), lost
    with np.errstate(all="ignore"):
        quotients = np.floor(doubles(args[0]) / doubles(args[1]))
    lost = ~((quotients >= -(2.0**63)) & (quotients < 2.0**63))
    return np.where(lost, 0, quotients).astype(np.int64), lost


@WHOLE_NUMBERS.strict(
    "intdiv", parameters=(number("a"), number("b")), result=LONG, examples={"INTDIV(7, 2)": 3, "INTDIV(-7, 2)": -4}
)
def _int_div(_type: SqlType, args: Sequence[Vector]) -> Any:
    quotients, lost = _quotients(args)
    return Attempt(quotients, failed(lost, "division by zero or LONG overflow function=intdiv"))


@WHOLE_NUMBERS.strict(
    "intdivorzero", parameters=(number("a"), number("b")), result=LONG, examples={"INTDIVORZERO(7, 0)": 0}
)
def _int_div_or_zero(_type: SqlType, args: Sequence[Vector]) -> Any:
    return _quotients(args)[0]


def _without_decimals(args: Any) -> SqlType:
    return DOUBLE if exact_type(args) != LONG else LONG


@WHOLE_NUMBERS.strict(
    "moduloorzero",
    parameters=(number("a"), number("b")),
    result=_without_decimals,
    examples={"MODULOORZERO(7, 4)": 3, "MODULO_OR_ZERO(7, 0)": 0},
)
def _modulo_or_zero(type_: SqlType, args: Sequence[Vector]) -> Any:
    if type_.base in INTEGERS:
        return np.where(np.asarray(args[1].data) == 0, 0, modulo(args[0].data, args[1].data).data)
    left, right = doubles(args[0]), doubles(args[1])
    with np.errstate(all="ignore"):
        return np.where(right == 0, 0.0, np.fmod(left, right))


@WHOLE_NUMBERS.strict(
    "positivemodulo",
    parameters=(number("a"), number("b")),
    result=_without_decimals,
    examples={"POSITIVEMODULO(-7, 4)": 1},
)
def _positive_modulo(type_: SqlType, args: Sequence[Vector]) -> Any:
    if type_.base in INTEGERS:
        rest = modulo(args[0].data, args[1].data)
        return Attempt(
            np.where(rest.data < 0, rest.data + np.abs(np.asarray(args[1].data, np.int64)), rest.data), rest.failure
        )
    left, right = doubles(args[0]), doubles(args[1])
    with np.errstate(all="ignore"):
        floats = np.fmod(left, right)
        return np.where(floats >= 0, floats, floats + np.abs(right))


@WHOLE_NUMBERS.strict("gcd", parameters=(whole("a"), whole("b")), result=LONG, examples={"GCD(12, -18)": 6})
def _gcd(_type: SqlType, args: Sequence[Vector]) -> Any:
    divisors = np.gcd(*(np.asarray(arg.data, np.int64) for arg in args))
    return Attempt(divisors, failed(divisors < 0, "LONG overflow function=gcd"))


@WHOLE_NUMBERS.strict(
    "lcm", parameters=(whole("a"), whole("b")), result=LONG, examples={"LCM(4, 6)": 12, "LCM(0, 6)": 0}
)
def _lcm(_type: SqlType, args: Sequence[Vector]) -> Any:
    left, right = (np.asarray(arg.data, np.int64) for arg in args)
    divisors = np.gcd(left, right)
    quotients = left // np.where(divisors == 0, 1, divisors)
    multiples = product(Vector(LONG, quotients), Vector(LONG, right))
    if not isinstance(multiples, Attempt):
        multiples = Attempt(multiples, None)
    lost = (multiples.data == _LOWEST) | (divisors < 0)
    if multiples.failure is not None:
        lost = lost | multiples.failure.rows
    return Attempt(np.abs(multiples.data), failed(lost, "LONG overflow function=lcm"))
