"""Instants of a time column's values: which are in a window, and what they become when time is rounded down."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import InvalidInputError
from merlot.merge.columns import Array, Column, Rows, Values
from merlot.merge.plan import Window
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


def rows_by_window(column: Column, windows: Sequence[Window]) -> list[Rows]:
    """Rows of a time column by the window that their time is in, ascending; those in none are left out. Windows are in
    order and apart. Raises InvalidInputError if a value is no instant."""
    distinct = column if _step_ms(column.field) else column.coded()
    millis = _millis(distinct.field, distinct.values)
    starts, ends = (np.array(edges, np.int64) for edges in zip(*windows, strict=True))
    places = np.searchsorted(starts, millis, "right")
    # 0 is no window.
    places[(places > 0) & (millis >= ends[places - 1])] = 0
    numbers = places.astype(np.min_scalar_type(len(windows)))
    of_rows = numbers if distinct.ids is None else numbers[distinct.ids]
    order = np.argsort(of_rows, kind="stable").astype(np.uint32)
    bounds = np.cumsum(np.bincount(of_rows, minlength=len(windows) + 1))
    return [order[start:stop] for start, stop in pairwise(bounds.tolist())]


def rounded(column: Column, period: Period) -> Column:
    """The column with each instant rounded down to the start of its period, as `time_rounding` has it."""
    distinct = column.coded()
    return distinct.with_dictionary(_round(distinct.field, distinct.values, period))


def _round(field: FieldSpec, values: Values, period: Period) -> Values:
    step = _step_ms(field)
    if step and isinstance(values, np.ndarray):
        return _round_numbers(values, step, period)
    stored: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
    date_format = _format(field)
    found = [time_rounding.round_value(date_format, value, period) for value in stored]
    if isinstance(values, np.ndarray):
        return np.array([int(one) for one in found], values.dtype)
    return pa.array([str(one) for one in found], values.type)


def _round_numbers(values: Array, step: int, period: Period) -> Array:
    """What the type cannot hold stays as it is, and so do months of years that no calendar has."""
    millis = _scaled(values, step)
    floors = _floor(millis, period)
    found = floors // step
    is_kept = _is_clipped(values, step) | (floors > millis) | (found < np.iinfo(values.dtype).min)
    if period.months:
        is_kept |= (millis < _FIRST_MS) | (millis > _LAST_MS)
    return np.where(is_kept, values, found).astype(values.dtype)


def _floor(millis: Millis, period: Period) -> Millis:
    if period.months:
        months = millis.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
        starts = months // period.months * period.months
        return starts.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64)
    floors: Millis = millis // period.fixed_ms * period.fixed_ms
    return floors


def _millis(field: FieldSpec, values: Values) -> Millis:
    """Instants of values; what 64 bits of milliseconds do not hold becomes the nearest that they do."""
    step = _step_ms(field)
    if step and isinstance(values, np.ndarray):
        return _scaled(values, step)
    date_format = _format(field)
    stored: Sequence[Any] = values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()
    try:
        found = [date_format.to_millis(value) for value in stored]
    except InvalidInputError as error:
        raise InvalidInputError(f"cannot merge by time column={field.name}: {error}") from error
    return np.array([min(max(millis, _LIMITS.min), _LIMITS.max) for millis in found], np.int64)


def _scaled(values: Array, step: int) -> Millis:
    return np.clip(values.astype(np.int64, copy=False), _LIMITS.min // step + 1, _LIMITS.max // step) * step


def _is_clipped(values: Array, step: int) -> NDArray[np.bool_]:
    wide = values.astype(np.int64, copy=False)
    return (wide <= _LIMITS.min // step + 1) | (wide > _LIMITS.max // step)


def _step_ms(field: FieldSpec) -> int:
    """Milliseconds between neighbouring values of a column of numbers; 0 of one that is read by a pattern."""
    match _format(field):
        case EpochFormat() as epoch:
            return epoch.step_ms
        case TimestampFormat():
            return 1
        case _:
            return 0


def _format(field: FieldSpec) -> DateTimeFormat:
    found = field.time_format
    assert found is not None, "a time column has a format"
    return found
