"""Rounding of doubles by numpy is that of the decimals they are written as."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.functions.registry import BY_NAME
from merlot.tree.types import DOUBLE, INT, LONG
from merlot.vectors.decimals import exactly
from merlot.vectors.vector import Attempt, Vector

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


@pytest.mark.parametrize("function", ["rounddecimal", "truncate"])
@pytest.mark.parametrize("scale", [0, -1, -14, -18, -19, -20, -21])
def test_a_long_beyond_longs_when_rounded_fails(function: str, scale: int) -> None:
    half = 5 * 10**18
    values = [-(2**63), -9 * 10**18, -half, 1 - half, -7, -4, 0, 4, 7, half - 1, half, 2**63 - 1]
    apply = BY_NAME[function].apply
    assert apply is not None
    answer = apply(LONG, [Vector(LONG, np.array(values)), Vector(INT, np.array(scale))])
    attempt = answer if isinstance(answer, Attempt) else Attempt(answer, None)
    is_lost = np.zeros(len(values), bool) if attempt.failure is None else attempt.failure.rows
    mode = ROUND_HALF_UP if function == "rounddecimal" else ROUND_DOWN
    exact = [_rounded_long(value, scale, mode) for value in values]
    assert is_lost.tolist() == [not -(2**63) <= value < 2**63 for value in exact]
    assert attempt.data[~is_lost].tolist() == [value for value in exact if -(2**63) <= value < 2**63]


def _rounded_long(value: int, scale: int, mode: str) -> int:
    with exactly():
        return int(Decimal(value).quantize(Decimal(1).scaleb(-scale), rounding=mode))
