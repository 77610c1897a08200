"""Rounding of doubles by numpy is that of the decimals they are written as."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from merlot.functions.registry import BY_NAME
from merlot.tree.types import DOUBLE, INT
from merlot.vectors.decimals import exactly
from merlot.vectors.vector import Vector

SCALES = st.integers(-12, 15)
ANY = st.floats(allow_nan=False, allow_infinity=False)
WRITTEN = st.tuples(st.integers(-(10**17), 10**17), st.integers(0, 18)).map(lambda pair: pair[0] / 10 ** pair[1])
NEAR = st.tuples(WRITTEN, st.integers(-2, 2)).map(lambda pair: _neighbour(*pair))


def _neighbour(value: float, steps: int) -> float:
    for _ in range(abs(steps)):
        value = float(np.nextafter(value, np.inf if steps > 0 else -np.inf))
    return value


def rounded(function: str, values: list[float], scale: int) -> list[float]:
    apply = BY_NAME[function].apply
    assert apply is not None
    answers: list[float] = apply(DOUBLE, [Vector(DOUBLE, np.array(values)), Vector(INT, np.array(scale))]).tolist()
    return answers


def wanted(value: float, scale: int, mode: str) -> float:
    with exactly():
        return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-scale), rounding=mode))


@given(st.lists(WRITTEN | NEAR | ANY, min_size=1, max_size=20), SCALES)
def test_rounding_is_that_of_the_decimal(values: list[float], scale: int) -> None:
    assert rounded("rounddecimal", values, scale) == [wanted(value, scale, ROUND_HALF_UP) for value in values]
    assert rounded("truncate", values, scale) == [wanted(value, scale, ROUND_DOWN) for value in values]


def test_halves_round_away_from_zero() -> None:
    halves = [(2 * number + 1) / 200 for number in range(-3000, 3000)]
    assert rounded("rounddecimal", halves, 2) == [wanted(half, 2, ROUND_HALF_UP) for half in halves]
