"""Compute instants of a time column's values: the values in a window, and values rounded down to a period."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.merge.columns import Array, MergeColumn, Rows
from merlot.merge.plan import Window
from merlot.segment.concat import Values
from merlot.spec import time_rounding
from merlot.spec.schema import FieldSpec
from merlot.values.datetime_format import DateTimeFormat, EpochFormat, TimestampFormat
from merlot.values.periods import Period

Millis = NDArray[np.int64]
_LIMITS: Final = np.iinfo(np.int64)
_FIRST_MS: Final = -62_135_596_800_000
"""0001-01-01 00:00:00 UTC."""
_LAST_MS: Final = 253_402_300_799_999
"""9999-12-31 23:59:59.999 UTC."""


def rows_by_window(column: MergeColumn, windows: Sequence[Window]) -> list[Rows]:
    """Group the rows of a time column by window, ascending; rows in no window are left out.

    windows: disjoint, in order. Raises InvalidInputError if a value is no instant."""
    distinct = column if _step_ms(column.field) is not None else column.coded()
    millis = _millis(distinct.field, distinct.values)
    starts, ends = (np.array(edges, np.int64) for edges in zip(*windows, strict=True))
    places = np.searchsorted(starts, millis, "right")
    # 0 stands for no window.
    places[(places > 0) & (millis >= ends[places - 1])] = 0
    numbers = places.astype(np.min_scalar_type(len(windows)))
    of_rows = numbers if distinct.ids is None else numbers[distinct.ids]
    order = np.argsort(of_rows, kind="stable").astype(np.uint32)
    bounds = np.cumsum(np.bincount(of_rows, minlength=len(windows) + 1))
    return [order[start:stop] for start, stop in pairwise(bounds.tolist())]


def rounded(column: MergeColumn, period: Period) -> MergeColumn:
    """Round each instant down to the start of its period, as `time_rounding` does."""
    distinct = column.coded()
    return distinct.with_dictionary(_round(distinct.field, distinct.values, period))


def _round(field: FieldSpec, values: Values, period: Period) -> Values:
    step = _step_ms(field)
    if step is not None and isinstance(values, np.ndarray):
        return _round_numbers(values, step, period)
    stored: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
    date_format = _format(field)
    times = [time_rounding.round_value(date_format, value, period) for value in stored]
    if isinstance(values, np.ndarray):
        return np.array([int(time) for time in times], values.dtype)
    return pa.array([str(time) for time in times], values.type)


def _round_numbers(values: Array, step: Fraction, period: Period) -> Array:
    """Round numbers. A value stays unchanged if its type cannot hold the result, or if the period is in months and the
    year is not 1 to 9999."""
    millis = _scaled(values, step)
    floors = _floor(millis, period)
    times = _times(floors, 1 / step)
    is_kept = _is_clipped(values, step) | (floors > millis) | (times < np.iinfo(values.dtype).min) | (times > values)
    if period.months:
        is_kept |= (millis < _FIRST_MS) | (millis > _LAST_MS)
    return np.where(is_kept, values, times).astype(values.dtype)


def _floor(millis: Millis, period: Period) -> Millis:
    if period.months:
        months = millis.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
        starts = months // period.months * period.months
        return starts.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
    floors: Millis = millis // period.fixed_ms * period.fixed_ms
    return floors


def _millis(field: FieldSpec, values: Values) -> Millis:
    """Return the instants of values; an instant beyond 64 bits of milliseconds becomes the nearest within."""
    step = _step_ms(field)
    if step is not None and isinstance(values, np.ndarray):
        return _scaled(values, step)
    date_format = _format(field)
    stored: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
    try:
        instants = [date_format.to_millis(value) for value in stored]
    except InvalidInputError as error:
        raise InvalidInputError(f"cannot merge by time column={field.name}: {error}") from error
    return np.array([min(max(millis, _LIMITS.min), _LIMITS.max) for millis in instants], np.int64)


def _scaled(values: Array, step: Fraction) -> Millis:
    return _times(np.clip(values.astype(np.int64, copy=False), *_convertible_bounds(step)), step)


def _times(numbers: Millis, factor: Fraction) -> Millis:
    """Return the products, rounded down."""
    if factor.denominator == 1:
        return numbers * factor.numerator
    wholes, rests = np.divmod(numbers, factor.denominator)
    products: Millis = wholes * factor.numerator + rests * factor.numerator // factor.denominator
    return products


def _is_clipped(values: Array, step: Fraction) -> NDArray[np.bool_]:
    wide = values.astype(np.int64, copy=False)
    least, most = _convertible_bounds(step)
    return (wide <= least) | (wide > most)


def _convertible_bounds(step: Fraction) -> tuple[int, int]:
    """Return the least and the greatest value whose milliseconds fit into 64 bits."""
    return _within_long(_LIMITS.min // step + 1), _within_long(_LIMITS.max // step)


def _within_long(number: int) -> int:
    return min(max(number, _LIMITS.min), _LIMITS.max)


def _step_ms(field: FieldSpec) -> Fraction | None:
    """Return the milliseconds between neighbouring values of a column of numbers; None for a column that is read by a
    pattern."""
    match _format(field):
        case EpochFormat() as epoch:
            return epoch.step_ms
        case TimestampFormat():
            return Fraction(1)
        case _:
            return None


def _format(field: FieldSpec) -> DateTimeFormat:
    time_format = field.time_format
    assert time_format is not None, "a time column has a format"
    return time_format
