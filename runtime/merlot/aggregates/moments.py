"""VAR_POP, VAR_SAMP, STDDEV_POP, STDDEV_SAMP, SKEWNESS, KURTOSIS; with two arguments COVAR_POP, COVAR_SAMP, CORR.

States are counts, means and sums of powers or products of deviations: they merge without losing digits to cancellation.
With fewer values than needed (one, or two for a sample) the answer is NULL with null handling, else Pinot's -Infinity.
SKEWNESS and KURTOSIS need three and four values. With fewer they are NULL with null handling, else NaN, and so is the
correlation with a constant, which is undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.function import (
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Groups,
    Input,
    State,
    StateField,
    all_in_one,
)
from merlot.kernels import moments as kernels
from merlot.kernels.jit import read_only
from merlot.tree.nodes import Value
from merlot.tree.types import DOUBLE, SqlType
from merlot.vectors.scaled import doubles_of
from merlot.vectors.vector import Vector

Doubles = NDArray[np.float64]
_NO_VARIANCE: Final = 1e-19
"""Variance below which values count as equal, as in Pinot."""

_ONE: Final = ("count", "mean", "squares")
_FOUR: Final = ("count", "mean", "squares", "cubes", "fourths")
_TWO: Final = ("count", "mean_x", "mean_y", "squares_x", "squares_y", "products")


def doubles(values: Any) -> Doubles:
    """Return numbers of any type as doubles."""
    return doubles_of(values)


class MomentState(State):
    """Moments of one or two variables by group: a row of doubles each."""

    def __init__(self, num_groups: int, width: int) -> None:
        self._rows = np.zeros((num_groups, width))

    def grow(self, num_groups: int) -> None:
        if len(self._rows) < num_groups:
            larger = np.zeros((max(num_groups, 2 * len(self._rows)), self._rows.shape[1]))
            larger[: len(self._rows)] = self._rows
            self._rows = larger

    def takes_scaled(self) -> bool:
        return True

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        groups = all_in_one(groups, num_rows)
        if len(values) == 1:
            add = kernels.add_one if self._rows.shape[1] == len(_ONE) else kernels.add_four
            add(groups, read_only(doubles(values[0])), self._rows)
        else:
            kernels.add_two(groups, read_only(doubles(values[0])), read_only(doubles(values[1])), self._rows)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        others = np.stack([column.to_numpy() for column in columns], axis=1)
        _MERGES[len(columns)](groups, others, self._rows)

    def columns(self, groups: Chosen) -> list[pa.Array]:
        return [pa.array(np.ascontiguousarray(self._rows[groups, place])) for place in range(self._rows.shape[1])]


class MomentFunction(AggregationFunction):
    """Aggregate that is a function of moments."""

    def __init__(self, name: str, answer: Callable[..., Doubles], *, of_two: bool = False, least: int = 1) -> None:
        """Create the aggregate. answer: function of the state columns. least: number of values that an answer needs."""
        self.name = name
        self.parameters = (
            (AggregateParameter(name="x"), AggregateParameter(name="y")) if of_two else (AggregateParameter(name="x"),)
        )
        self._suffixes: tuple[str, ...] = _TWO if of_two else _ONE
        self._answer = answer
        self._least = least

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return DOUBLE

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return tuple(StateField(suffix, pa.float64()) for suffix in self._suffixes)

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        return MomentState(num_groups, len(self._suffixes))

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        states = [column.to_numpy() for column in columns]
        with np.errstate(all="ignore"):
            answers = np.where(states[0] < self._least, -np.inf, self._answer(*states))
        missing = (states[0] < self._least) | self._undefined(states)
        return Vector(call.result, answers, missing if call.nulls and missing.any() else None)

    def _undefined(self, states: Sequence[Doubles]) -> NDArray[np.bool_]:
        return np.zeros(len(states[0]), np.bool_)


class HighMoment(MomentFunction):
    """SKEWNESS and KURTOSIS: with too few values NaN, or NULL with null handling."""

    def __init__(self, name: str, answer: Callable[..., Doubles], *, least: int) -> None:
        super().__init__(name, answer, least=0)
        self._suffixes = _FOUR
        self._fewest = least

    def _undefined(self, states: Sequence[Doubles]) -> NDArray[np.bool_]:
        undefined: NDArray[np.bool_] = states[0] < self._fewest
        return undefined


class Correlation(MomentFunction):
    """CORR: undefined if one of its arguments is constant."""

    def _undefined(self, states: Sequence[Doubles]) -> NDArray[np.bool_]:
        undefined: NDArray[np.bool_] = (states[3] == 0) | (states[4] == 0)
        return undefined


def variance(*, is_sample: bool) -> Callable[..., Doubles]:
    """Return a function for the mean squared deviation."""
    return lambda count, _, squares: squares / (count - is_sample)


def deviation(*, is_sample: bool) -> Callable[..., Doubles]:
    """Return a function for the square root of the variance."""
    return lambda count, _, squares: np.sqrt(squares / (count - is_sample))


def covariance(*, is_sample: bool) -> Callable[..., Doubles]:
    """Return a function for the mean product of deviations."""
    return lambda count, *rest: rest[4] / (count - is_sample)


def correlation(*states: Doubles) -> Doubles:
    """Return the covariance divided by both deviations."""
    _, _, _, squares_x, squares_y, products = states
    result: Doubles = products / (np.sqrt(squares_x) * np.sqrt(squares_y))
    return result


def skewness(count: Doubles, _: Doubles, squares: Doubles, cubes: Doubles, _fourths: Doubles) -> Doubles:
    """Return the skewness of a sample; 0 if the values are nearly equal."""
    variance = squares / (count - 1)
    result = count * cubes / ((count - 1) * (count - 2) * np.sqrt(variance) * variance)
    return _of_several(count, variance, result, least=3)


def kurtosis(count: Doubles, _: Doubles, squares: Doubles, _cubes: Doubles, fourths: Doubles) -> Doubles:
    """Return the kurtosis of a sample, in excess of the normal distribution's; 0 if the values are nearly equal."""
    variance = squares / (count - 1)
    spread = count * (count + 1) * fourths - 3 * squares * squares * (count - 1)
    result = spread / ((count - 1) * (count - 2) * (count - 3) * variance * variance)
    return _of_several(count, variance, result, least=4)


def _of_several(count: Doubles, variance: Doubles, result: Doubles, *, least: int) -> Doubles:
    return np.where(count < least, np.nan, np.where(variance < _NO_VARIANCE, 0.0, result))


_MERGES: Final = {len(_ONE): kernels.merge_one, len(_TWO): kernels.merge_two, len(_FOUR): kernels.merge_four}

MOMENTS: Final = (
    MomentFunction("varpop", variance(is_sample=False)),
    MomentFunction("varsamp", variance(is_sample=True), least=2),
    MomentFunction("stddevpop", deviation(is_sample=False)),
    MomentFunction("stddevsamp", deviation(is_sample=True), least=2),
    MomentFunction("covarpop", covariance(is_sample=False), of_two=True),
    MomentFunction("covarsamp", covariance(is_sample=True), of_two=True, least=2),
    HighMoment("skewness", skewness, least=3),
    HighMoment("kurtosis", kurtosis, least=4),
    Correlation("corr", correlation, of_two=True),
)
