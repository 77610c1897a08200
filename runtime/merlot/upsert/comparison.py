"""Comparison columns: values as i64 that order like the stored values, and times to live in their units.

NULL (the smallest i64) stands for null, and so does LONG's smallest value, which is its default for null. Times written
by a pattern are compared as milliseconds. The largest value so far never depends on when somebody reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.kernels.upsert import NULL
from merlot.spec.schema import FieldSpec
from merlot.values.datetime_format import EpochFormat, PatternFormat
from merlot.values.durations import duration_ms
from merlot.values.types import TypeName

Longs = NDArray[np.int64]

NOTHING: Final = NULL
"""Largest value seen before the first value; as a bound, nothing is below it."""
LARGEST: Final = (1 << 63) - 1
_LARGEST_FINITE: Final = int(np.array([np.finfo(np.float64).max]).view(np.int64)[0])
_WHOLE: Final = (TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP, TypeName.BOOLEAN)
_FLOATING: Final = (TypeName.FLOAT, TypeName.DOUBLE)
_TEXTS: Final = (TypeName.STRING,)


@dataclass(frozen=True)
class ComparisonColumn:
    """A column by which rows of a key are compared."""

    field: FieldSpec

    def __post_init__(self) -> None:
        is_text_time = self.field.type in _TEXTS and self.field.time_format is not None
        if self.field.multi_value or not (self.field.type in (*_WHOLE, *_FLOATING) or is_text_time):
            raise InvalidInputError(
                f"comparison column must be a number or a time column={self.field.name} type={self.field.type}"
            )

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.field.name

    @property
    def is_plain(self) -> bool:
        """True if values are compared as they are stored."""
        return not self._reads_text and not self.is_floating

    @property
    def is_floating(self) -> bool:
        """True if values are doubles, whose i64 keep their order but not their distances."""
        return self.field.type in _FLOATING

    def values(self, rows: pa.Table) -> Longs:
        """Return the values of rows; raise InvalidInputError for text that is no time."""
        column = rows.column(self.field.name)
        if self._reads_text:
            return _by_distinct(column, self._millis)
        if self.is_floating:
            numbers = np.asarray(pc.fill_null(column, 0).cast(pa.float64()))
            values = ordered(numbers)
        else:
            filled = pc.fill_null(column.cast(pa.int64()), 0) if column.null_count else column.cast(pa.int64())
            values = np.asarray(filled)
        if column.null_count:
            values = np.where(np.asarray(pc.is_null(column)), NULL, values)
        return values

    def filled(self, rows: pa.Table, values: Longs) -> pa.Table:
        """Fill these values into the rows where the column is null; a NULL leaves it null."""
        place = rows.schema.get_field_index(self.field.name)
        if place < 0 or not rows.column(place).null_count:
            return rows
        if self._reads_text:
            assert self.field.time_format is not None
            write = self.field.time_format.from_millis
            given = pa.array([None if value == NULL else write(value) for value in values.tolist()])
        else:
            given = pa.array(ordered_back(values) if self.is_floating else values, mask=values == NULL)
        column = pc.coalesce(rows.column(place), given.cast(rows.column(place).type))
        return rows.set_column(place, rows.schema.field(place), column)

    def to_live(self, text: str) -> float:
        """Return a time to live in units of the values, rounded up, at most LARGEST; raise InvalidInputError if they
        have no such unit."""
        if text.isdecimal():
            return int(text)
        if self.field.time_format is None:
            raise InvalidInputError(f"comparison column is no time, write a bare number column={self.name} ttl={text}")
        return min(LARGEST, -(-duration_ms(text) // self._step_ms))

    def limits(self, sent_ms: Longs, skew_ms: int) -> Longs:
        """Return, for each row, the greatest value that the largest value may become by it. sent_ms: times at which the
        rows were sent; -1: unknown, so every finite value is allowed."""
        step = self._step_ms
        limits = np.minimum(sent_ms + skew_ms, LARGEST // step.denominator) * step.denominator // step.numerator
        if self.is_floating:
            limits = ordered(limits.astype(np.float64))
        return np.where(sent_ms < 0, self.largest, limits)

    @property
    def largest(self) -> int:
        """Largest value from which a time to live can be measured; infinity and NaN are none."""
        return _LARGEST_FINITE if self.is_floating else LARGEST

    def below(self, values: Longs, distance: float | None) -> Longs:
        """Return the values minus a distance; NOTHING where there is no distance or no value."""
        if distance is None:
            return np.full_like(values, NOTHING)
        if self.is_floating:
            bounds = ordered(ordered_back(values) - distance)
        else:
            bounds = np.where(values < NOTHING + int(distance), NOTHING, values - int(distance))
        return np.where(values == NOTHING, NOTHING, bounds)

    @property
    def _reads_text(self) -> bool:
        return self.field.type in _TEXTS or isinstance(self.field.time_format, PatternFormat)

    @property
    def _step_ms(self) -> Fraction:
        time_format = self.field.time_format
        return time_format.step_ms if isinstance(time_format, EpochFormat) and not self._reads_text else Fraction(1)

    def _millis(self, value: int | str) -> int:
        assert self.field.time_format is not None
        return self.field.time_format.to_millis(value)


def ordered(numbers: NDArray[np.float64]) -> Longs:
    """Map doubles to i64 of the same order: -0.0 is 0.0, NaN comes last."""
    bits = np.where(np.isnan(numbers), np.nan, numbers + 0.0).view(np.int64)
    values: Longs = bits ^ (bits >> 63 & LARGEST)
    return values


def ordered_back(values: Longs) -> NDArray[np.float64]:
    """Invert `ordered`."""
    return (values ^ (values >> 63 & LARGEST)).view(np.float64)


def _by_distinct(column: pa.ChunkedArray, read: Callable[[int | str], int]) -> Longs:
    """Parse each distinct value once."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    instants = [NULL if value is None else read(value) for value in encoded.dictionary.to_pylist()]
    ids = np.asarray(pc.fill_null(encoded.indices, len(instants)))
    values: Longs = np.array([*instants, NULL], np.int64)[ids]
    return values
