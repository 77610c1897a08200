"""SUM, SUM0 and SUMLONG, and the sums that other aggregates and rollups use.

Sums of whole numbers are exact and travel as two 64-bit halves (high * 2**32 + low, 0 <= low < 2**32). Sums of floats
are compensated and travel with their rounding error. Sums of BIG_DECIMAL are exact, as text. All are rounded once, at
the end. Null handling adds the count of values, since the sum of no values is then NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates import counts
from merlot.aggregates.function import (
    INTEGERS,
    UNKNOWN,
    AggregateCall,
    AggregateParameter,
    AggregationFunction,
    Chosen,
    Groups,
    Input,
    Known,
    Several,
    State,
    StateField,
    all_in_one,
    chosen,
    grown,
    nothing,
)
from merlot.aggregates.scalar_forms import SUM_OVERFLOW, ScalarAggregate, ScalarLongSum, ScalarSum
from merlot.errors import CorruptionError
from merlot.kernels import aggregate as kernels
from merlot.tree.nodes import Value
from merlot.tree.types import DOUBLE, LONG, SqlType
from merlot.values.types import TypeName
from merlot.vectors.decimals import exactly
from merlot.vectors.errors import QueryArithmeticError
from merlot.vectors.exact import computed
from merlot.vectors.scaled import Scaled, bounded, scaled_of, texts_of
from merlot.vectors.vector import Vector

FEW_SUMS: Final = 16
"""Up to this many sums are put together as Python's integers, which is cheaper than array operations for so few."""
LOW_MASK: Final = np.int64(0xFFFFFFFF)
_LIMB_BITS: Final = 32
_LONG_BOUNDS: Final = (-(1 << 63), (1 << 63) - 1)


def exact_sum(values: NDArray[Any]) -> int:
    """Return the sum of whole numbers, i32 or i64, at most 2**31 of them."""
    if values.dtype.itemsize < 8:
        return int(kernels.sum_int(values))
    halves = np.zeros(2, np.int64)
    kernels.sum_halves(values, halves)
    high, low = halves.tolist()
    return int((high << 32) + low)


class IntegerSum(State):
    """Exact sum of whole numbers. A sum is one i64 while only rows with groups were added and bounds rule overflow out,
    and two halves from then on."""

    def __init__(self, num_groups: int, first_input: Input = UNKNOWN) -> None:
        self._input = first_input
        low, high = first_input.bounds() or _LONG_BOUNDS
        self._magnitude = 1 << max(low, ~low, high, ~high).bit_length()
        self._num_left = (1 << 62) // self._magnitude
        """Number of values that certainly still fit. Values are counted as they come, because with lists as keys a doc
        comes several times."""
        self._sums = np.zeros(num_groups, np.int64)
        self._lows: NDArray[np.int64] | None = None

    def grow(self, num_groups: int) -> None:
        self._sums = grown(self._sums, num_groups)
        if self._lows is not None:
            self._lows = grown(self._lows, num_groups)

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        numbers = values[0]
        if numbers.dtype == np.bool_:
            numbers = numbers.astype(np.int64)
        if groups is None:
            lows = self._widened()
            total = exact_sum(numbers)
            self._sums[0] += total >> 32
            lows[0] += total & int(LOW_MASK)
        elif self._lows is None and len(numbers) <= self._num_left:
            self._num_left -= len(numbers)
            if kernels.sum_int_groups(groups, numbers, self._sums) >= self._magnitude:
                raise CorruptionError(f"value out of its bounds summed={self._input} limit={self._magnitude}")
        else:
            wide = numbers.astype(np.int64, copy=False)
            kernels.sum_halves_groups(groups, wide, self._sums, self._widened())

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        lows = self._widened()
        kernels.sum_int_groups(groups, columns[0].to_numpy(), self._sums)
        kernels.sum_int_groups(groups, columns[1].to_numpy(), lows)

    def columns(self, groups: Chosen) -> list[pa.Array]:
        return [pa.array(half) for half in self.halves(groups)]

    def narrow(self) -> NDArray[np.int64] | None:
        """Return the sum of each group while sums are one i64 each; None if they are two halves."""
        return self._sums if self._lows is None else None

    def halves(self, groups: Chosen) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the high and low halves of the sums of chosen groups."""
        lows = chosen(self._widened(), groups)
        return chosen(self._sums, groups) + (lows >> 32), lows & LOW_MASK

    def _widened(self) -> NDArray[np.int64]:
        """Return the low halves, after moving the high halves to `_sums`."""
        if self._lows is None:
            self._lows = self._sums & LOW_MASK
            self._sums >>= 32
        return self._lows


class FloatSum(State):
    """Compensated sum of floats."""

    def __init__(self, num_groups: int) -> None:
        self._sums = np.zeros(num_groups, np.float64)
        self._errors = np.zeros(num_groups, np.float64)

    def grow(self, num_groups: int) -> None:
        self._sums = grown(self._sums, num_groups)
        self._errors = grown(self._errors, num_groups)

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        wide = values[0].astype(np.float64, copy=False)
        if groups is None:
            state = np.array([self._sums[0], self._errors[0]])
            kernels.sum_float(wide, state)
            self._sums[0], self._errors[0] = state
        else:
            kernels.sum_float_groups(groups, wide, self._sums, self._errors)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        sums, errors = (column.to_numpy() for column in columns)
        kernels.sum_float_groups(groups, sums, self._sums, self._errors)
        # The error of an infinite sum is NaN, and has no meaning.
        kernels.sum_float_groups(groups, np.where(np.isfinite(errors), errors, 0.0), self._sums, self._errors)

    def columns(self, groups: Chosen) -> list[pa.Array]:
        return [pa.array(chosen(self._sums, groups)), pa.array(chosen(self._errors, groups))]


class DecimalSum(State):
    """Exact sum of BIG_DECIMAL: of whole numbers by scale, or of Decimal objects if 64 bits do not hold the values."""

    def __init__(self, num_groups: int) -> None:
        self._num_groups = num_groups
        self._scaled: dict[tuple[int, int], IntegerSum] = {}
        """Sums by scale, and by the number of bits of the added numbers, since chunks may have different bounds."""
        self._others: NDArray[Any] | None = None

    def grow(self, num_groups: int) -> None:
        self._num_groups = max(self._num_groups, num_groups)
        for part in self._scaled.values():
            part.grow(num_groups)
        if self._others is not None:
            self._others = grown(self._others, num_groups)

    def takes_scaled(self) -> bool:
        return True

    def add(self, values: Sequence[Any], groups: Groups | None, num_rows: int) -> None:
        numbers = values[0]
        if isinstance(numbers, Scaled):
            self._sum_of(numbers).add([numbers.values], groups, num_rows)
            return
        if self._others is None:
            self._others = np.full(self._num_groups, 0, dtype=object)
        with exactly():
            np.add.at(self._others, all_in_one(groups, num_rows), numbers)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> None:
        numbers = scaled_of(columns[0])
        if numbers is not None:
            # Batches of states have different bounds, so all states of a scale share one sum with the widest bounds.
            every = Scaled(numbers.values, numbers.scale, *_LONG_BOUNDS)
            self._sum_of(every).add([numbers.values], groups, len(groups))
            return
        self.add([np.array([Decimal(text) for text in columns[0].to_pylist()], dtype=object)], groups, len(groups))

    def columns(self, groups: Chosen) -> list[pa.Array]:
        texts = self._texts(groups)
        return [pa.array([str(value) for value in self._exact(groups)], pa.string()) if texts is None else texts]

    def _sum_of(self, numbers: Scaled) -> IntegerSum:
        num_bits = max(numbers.low, ~numbers.low, numbers.high, ~numbers.high).bit_length()
        key = (numbers.scale, num_bits)
        part = self._scaled.get(key)
        if part is None:
            bounds = -(1 << num_bits), (1 << num_bits) - 1
            part = self._scaled[key] = IntegerSum(self._num_groups, Known(bounds))
        return part

    def _texts(self, groups: Chosen) -> pa.Array | None:
        """Return the texts of the sums if 64 bits hold them; else None."""
        if self._others is not None:
            return None
        total = Scaled(np.zeros(len(groups), np.int64), 0, 0, 0)
        for (scale, _), part in self._scaled.items():
            sums = _narrow(part, groups)
            added = None if sums is None else computed("plus", (total, bounded(sums, scale)))
            if added is None:
                return None
            total = added
        return texts_of(total.values, total.scale)

    def _exact(self, groups: Chosen) -> list[Decimal]:
        sums = [Decimal(0)] * len(groups) if self._others is None else list(self._others[groups])
        with exactly():
            for (scale, _), total in self._scaled.items():
                halves = zip(*(half.tolist() for half in total.halves(groups)), strict=True)
                for number, (high, low) in enumerate(halves):
                    sums[number] += Decimal((high << 32) + low).scaleb(-scale)
        return sums


def _narrow(total: IntegerSum, groups: Chosen) -> NDArray[np.int64] | None:
    """Return the sums of the chosen groups; None if 64 bits do not hold one of them."""
    sums = total.narrow()
    if sums is not None:
        return chosen(sums, groups)
    high, low = total.halves(groups)
    return (high << 32) + low if np.all((high < 1 << 31) & (high >= -(1 << 31))) else None


def sum_texts(texts: pa.Array, groups: Groups, num_groups: int) -> tuple[list[int], int]:
    """Return the exact sums, by group, of plain decimal texts as segments store them, and their number of fraction
    digits: a sum is the whole number divided by 10 to the power of that.

    Each distinct number is split into limbs of 32 bits, whose sums are exact in 64 bits; Python adds the limbs of each
    group."""
    encoded = texts.dictionary_encode()
    distinct: list[str] = encoded.dictionary.to_pylist()
    scale = max((len(text.partition(".")[2]) for text in distinct), default=0)
    ids = encoded.indices.to_numpy()
    totals = np.zeros(num_groups, object)
    with exactly():  # int() of a text refuses more than 4,300 digits
        numbers = [int(Decimal(text).scaleb(scale)) for text in distinct]
    for limb, digits in enumerate(_limbs(numbers)):
        sums = np.zeros(num_groups, np.int64)
        kernels.sum_int_groups(groups, digits[ids], sums)
        totals += sums.astype(object) << (_LIMB_BITS * limb)
    whole: list[int] = totals.tolist()
    return whole, scale


def _limbs(numbers: list[int]) -> list[NDArray[np.int64]]:
    """Split numbers so that number = sum of limb[k] * 2**(32 k); all but the last limb are not negative."""
    limbs = []
    while any(not -(1 << 31) <= number < 1 << 31 for number in numbers):
        limbs.append(np.array([number & ((1 << _LIMB_BITS) - 1) for number in numbers], np.int64))
        numbers = [number >> _LIMB_BITS for number in numbers]
    return [*limbs, np.array(numbers, np.int64)]


def sum_fields(type_: SqlType) -> tuple[StateField, ...]:
    """Return the columns of a sum of values of this type."""
    if type_.base in INTEGERS:
        return StateField("high", pa.int64()), StateField("low", pa.int64())
    if type_.base is TypeName.BIG_DECIMAL:
        return (StateField("decimal", pa.string()),)
    return StateField("sum", pa.float64()), StateField("error", pa.float64())


def sum_state(type_: SqlType, num_groups: int, first_input: Input = UNKNOWN) -> State:
    """Return the state of a sum of values of this type."""
    if type_.base in INTEGERS:
        return IntegerSum(num_groups, first_input)
    return DecimalSum(num_groups) if type_.base is TypeName.BIG_DECIMAL else FloatSum(num_groups)


def rounded(type_: SqlType, columns: Sequence[pa.Array]) -> NDArray[np.float64]:
    """Return sums of values of this type as doubles."""
    if type_.base is TypeName.BIG_DECIMAL:
        return _as_doubles(columns[0])
    first, second = columns[0].to_numpy(), columns[1].to_numpy()
    if type_.base not in INTEGERS:
        with np.errstate(all="ignore"):
            return np.asarray(np.where(np.isfinite(first), first + second, first))
    if len(first) > FEW_SUMS and np.all((first < 1 << 31) & (first >= -(1 << 31))):
        return np.asarray((first << 32) + second).astype(np.float64)
    exact = [(high << 32) + low for high, low in zip(first.tolist(), second.tolist(), strict=True)]
    return np.array([float(value) for value in exact], np.float64)


def _as_doubles(texts: pa.Array) -> NDArray[np.float64]:
    """Return the doubles nearest to decimal texts."""
    try:
        return np.asarray(texts.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:  # past what doubles hold: Python says infinity
        return np.array([float(Decimal(text)) for text in texts.to_pylist()], np.float64)


class Sum(AggregationFunction):
    """SUM: the sum of everything that counts as a number, as a DOUBLE."""

    name = "sum"
    parameters: tuple[AggregateParameter, ...] = (AggregateParameter(name="x"),)
    is_light = True
    scalar_form: ScalarAggregate | None = ScalarSum()

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return DOUBLE

    def fields(self, call: AggregateCall) -> tuple[StateField, ...]:
        return sum_fields(call.types[0]) + ((counts.FIELD,) if call.nulls else ())

    def start(self, call: AggregateCall, num_groups: int, inputs: Sequence[Input] = ()) -> State:
        total = sum_state(call.types[0], num_groups, *inputs)
        if not call.nulls:
            return total
        return Several([(total, len(sum_fields(call.types[0]))), (counts.CountState(num_groups), 1)])

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        width = len(sum_fields(call.types[0]))
        empty = nothing(call, columns[width].to_numpy()) if call.nulls else None
        return Vector(call.result, self._total(call.types[0], columns), empty)

    def _total(self, type_: SqlType, columns: Sequence[pa.Array]) -> NDArray[Any]:
        return rounded(type_, columns)


class SumOrZero(Sum):
    """SUM0: SUM that is 0 without values, with and without null handling."""

    name = "sum0"
    scalar_form = None

    def finish(self, call: AggregateCall, columns: Sequence[pa.Array]) -> Vector:
        return Vector(call.result, self._total(call.types[0], columns))


class SumLong(Sum):
    """SUMLONG: the exact sum of whole numbers; a sum that 64 bits cannot hold is an error."""

    name = "sumlong"
    aliases = ("sumint",)
    parameters = (AggregateParameter(name="x", takes=INTEGERS),)
    is_light = False
    scalar_form = ScalarLongSum()

    def result(self, types: Sequence[SqlType], constants: Sequence[Value]) -> SqlType:
        return LONG

    def _total(self, type_: SqlType, columns: Sequence[pa.Array]) -> NDArray[Any]:
        high, low = columns[0].to_numpy(), columns[1].to_numpy()
        if np.any((high >= 1 << 31) | (high < -(1 << 31))):
            raise QueryArithmeticError(SUM_OVERFLOW)
        return np.asarray((high << 32) + low)
