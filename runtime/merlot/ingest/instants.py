"""Columns of instants, all rows at once: between what a dateTime column stores and epoch milliseconds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.ingest import casts
from merlot.spec.datetime_format import DateTimeFormat, EpochFormat, TimestampFormat

DAY_MS = 86_400_000
FIRST_MS = -62_135_596_800_000
"""0001-01-01 00:00:00 UTC."""
LAST_MS = 253_402_300_799_999
"""9999-12-31 23:59:59.999 UTC."""


def to_millis(values: pa.Array, time_format: DateTimeFormat) -> pa.Array:
    """Epoch milliseconds (int64) of stored values; null where there is no instant within years 1 to 9999."""
    match time_format:
        case EpochFormat() if pa.types.is_integer(values.type):
            first, last = -(-FIRST_MS // time_format.step_ms), LAST_MS // time_format.step_ms
            return pc.multiply(_within(values.cast(pa.int64()), first, last), time_format.step_ms)
        case TimestampFormat() if pa.types.is_integer(values.type):
            return _within(values.cast(pa.int64()), FIRST_MS, LAST_MS)
        case _:
            return _within(casts.map_distinct(values, time_format.to_millis, pa.int64()).values, FIRST_MS, LAST_MS)


def to_format(millis: pa.Array, time_format: DateTimeFormat) -> pa.Array:
    """What a column of that format stores for instants: integers, or text for a pattern."""
    match time_format:
        case TimestampFormat():
            return millis
        case EpochFormat():
            return casts.floor_divide(millis, time_format.step_ms)
        case _:
            return casts.map_distinct(millis, time_format.from_millis, pa.string()).values


def misfits(values: pa.Array, time_format: DateTimeFormat) -> pa.Array:
    """True where a stored value is there but is no instant of the format; range is the time column's affair."""
    if pa.types.is_integer(values.type) and isinstance(time_format, EpochFormat | TimestampFormat):
        return pa.array(np.zeros(len(values), dtype=bool))
    return casts.map_distinct(values, time_format.to_millis, pa.int64()).bad


def days_of(millis: pa.Array) -> pa.Array:
    """UTC days since 1970 (int32), rounded down; the input has no nulls."""
    return casts.floor_divide(millis, DAY_MS).cast(pa.int32())


def _within(values: pa.Array, first: int, last: int) -> pa.Array:
    inside = pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))
    return pc.if_else(inside, values, pa.scalar(None, pa.int64()))
