"""Vectors, which are lists of numbers: their lengths, products and distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.functions.function import NUMBERS, Family, Lists, Parameter, VectorFunction
from merlot.functions.lists import ListValues
from merlot.tree.types import DOUBLE, INT, SqlType
from merlot.vectors.vector import Attempt, Vector, failed

DISTANCES: Final = Family("Vectors")
Doubles = NDArray[np.float64]
_ONE: Final = (Parameter(name="vector", kind=NUMBERS, is_list=True),)
_TWO: Final = (*_ONE, Parameter(name="other", kind=NUMBERS, is_list=True))
_A: Final = "JSONEXTRACTSCALAR('[3,4]', '$[*]', 'DOUBLE_ARRAY')"
_B: Final = "JSONEXTRACTSCALAR('[0,8]', '$[*]', 'DOUBLE_ARRAY')"


def _numbers(values: ListValues) -> Doubles:
    numbers: Doubles = values.flat.to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers


def _sums(numbers: Doubles, values: ListValues) -> Doubles:
    """Return the sum of each row's numbers."""
    return np.bincount(values.rows, numbers, len(values.lengths)).astype(np.float64, copy=False)


def _between(name: str, measure: Callable[[Doubles, Doubles, ListValues], Doubles]) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        num_rows = max((len(arg.data) for arg in args if not arg.is_constant), default=1)
        is_constant = all(arg.is_constant for arg in args)
        left, right = (ListValues.of(arg if is_constant else arg.spread(num_rows)) for arg in args)
        is_lost = left.lengths != right.lengths
        if is_lost.any():
            # Rows whose vectors differ in length fail; the other rows are measured without them.
            left, right = (side.without(is_lost) for side in (left, right))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            answers = measure(_numbers(left), _numbers(right), left)
        return Attempt(left.answer(answers), failed(left.answer(is_lost), f"vectors differ in length function={name}"))

    return apply


def _cosine(left: Doubles, right: Doubles, values: ListValues) -> Doubles:
    lengths = np.sqrt(_sums(left * left, values)) * np.sqrt(_sums(right * right, values))
    distances: Doubles = 1 - _sums(left * right, values) / lengths
    return distances


for _name, _aliases, _measure, _example in (
    ("cosinedistance", (), _cosine, 1 - 32 / 40),
    ("innerproduct", ("dotproduct",), lambda left, right, values: _sums(left * right, values), 32.0),
    ("l1distance", (), lambda left, right, values: _sums(np.abs(left - right), values), 7.0),
    ("l2distance", (), lambda left, right, values: np.sqrt(_sums((left - right) ** 2, values)), 5.0),
    ("euclideandistance", (), lambda left, right, values: _sums((left - right) ** 2, values), 25.0),
):
    DISTANCES.strict(
        _name,
        aliases=_aliases,
        parameters=_TWO,
        result=DOUBLE,
        lists=Lists.PASSED_WHOLE,
        examples={f"{_name.upper()}({_A}, {_B})": _example},
    )(_between(_name, _measure))


@DISTANCES.strict(
    "vectordims", parameters=_ONE, result=INT, lists=Lists.PASSED_WHOLE, examples={f"VECTOR_DIMS({_A})": 2}
)
def _dims(_type: SqlType, args: Sequence[Vector]) -> Any:
    values = ListValues.of(args[0])
    return values.answer(values.lengths.astype(np.int32))


@DISTANCES.strict(
    "vectornorm", parameters=_ONE, result=DOUBLE, lists=Lists.PASSED_WHOLE, examples={f"VECTOR_NORM({_A})": 5.0}
)
def _norm(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the square root of the sum of squares."""
    values = ListValues.of(args[0])
    numbers = _numbers(values)
    return values.answer(np.sqrt(_sums(numbers * numbers, values)))
