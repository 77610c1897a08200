"""Convert columns of instants, all rows at once, between a source's types, what a dateTime column stores, and epoch
milliseconds.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.ingest.arrays import (
    CastResult,
    all_good,
    floor_divide,
    keep,
    map_distinct,
    then,
)
from merlot.values.datetime_format import DateTimeFormat, EpochFormat, PatternFormat, TimestampFormat
from merlot.values.periods import DAY_MS
from merlot.values.time_units import NANOS_OF_MILLI, UNIT_NANOS

FIRST_MS = -62_135_596_800_000
"""0001-01-01 00:00:00 UTC."""
LAST_MS = 253_402_300_799_999
"""9999-12-31 23:59:59.999 UTC."""


LONG_RANGE = (-(2**63), 2**63 - 1)


def epoch_millis(column: pa.Array) -> CastResult:
    """Return instants as epoch milliseconds, rounded down, also before 1970. A timestamp without a zone is UTC; a date
    begins at midnight UTC. A value that 64 bits cannot hold is bad."""
    if pa.types.is_date32(column.type):
        return all_good(pc.multiply(column.cast(pa.int32()).cast(pa.int64()), DAY_MS))
    ticks = column.cast(pa.int64())
    if pa.types.is_date64(column.type):
        return all_good(ticks)
    if column.type.unit == "s":
        bound = LONG_RANGE[1] // 1000
        held = keep(ticks, pc.and_(pc.greater_equal(ticks, -bound), pc.less_equal(ticks, bound)), pa.int64())
        return CastResult(pc.multiply(held.values, 1000), held.bad)
    divisor = {"ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    return all_good(floor_divide(ticks, divisor))


def to_millis(values: pa.Array, time_format: DateTimeFormat) -> pa.Array:
    """Return stored values as epoch milliseconds (int64); null where there is no instant within years 1 to 9999."""
    match time_format:
        case EpochFormat() if pa.types.is_integer(values.type):
            step = time_format.step_ms
            first, last = max(-(-FIRST_MS // step), LONG_RANGE[0]), min(LAST_MS // step, LONG_RANGE[1])
            return _times(_within(values.cast(pa.int64()), first, last), step)
        case TimestampFormat() if pa.types.is_integer(values.type):
            return _within(values.cast(pa.int64()), FIRST_MS, LAST_MS)
        case _:
            return _within(_read(values, time_format).values, FIRST_MS, LAST_MS)


def to_format(source: pa.Array, time_format: DateTimeFormat) -> CastResult:
    """Return what a column of that format stores for timestamps or dates: integers, or text for a pattern. A date has
    no time zone: in a pattern of any zone it is that day."""
    if isinstance(time_format, PatternFormat) and pa.types.is_date(source.type):
        days = floor_divide(epoch_millis(source).values, DAY_MS)
        return map_distinct(days, time_format.from_day, pa.string())
    if isinstance(time_format, EpochFormat):
        return _counts(source, time_format.step_ns)
    millis = epoch_millis(source)
    match time_format:
        case TimestampFormat():
            return millis
        case _:
            return then(millis, map_distinct(millis.values, time_format.from_millis, pa.string()))


def _counts(source: pa.Array, step_ns: int) -> CastResult:
    """Count steps between 1970 and timestamps or dates, rounded down. Values that 64 bits cannot hold are bad."""
    ticks = source.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(source.type) else source.cast(pa.int64())
    steps = Fraction(_tick_ns(source.type), step_ns)
    bound = LONG_RANGE[1] // math.ceil(steps)
    held = keep(ticks, pc.and_(pc.greater_equal(ticks, -bound), pc.less_equal(ticks, bound)), pa.int64())
    return CastResult(_times(held.values, steps), held.bad)


def _tick_ns(kind: pa.DataType) -> int:
    if pa.types.is_date32(kind):
        return UNIT_NANOS["DAYS"]
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    return {"s": UNIT_NANOS["SECONDS"], "ms": NANOS_OF_MILLI, "us": UNIT_NANOS["MICROSECONDS"], "ns": 1}[unit]


def _times(values: pa.Array, factor: Fraction) -> pa.Array:
    """Multiply and round down. The products fit in 64 bits, and no intermediate result overflows."""
    if factor.denominator == 1:
        return pc.multiply(values, factor.numerator)
    wholes = floor_divide(values, factor.denominator)
    rests = pc.subtract(values, pc.multiply(wholes, factor.denominator))
    return pc.add(
        pc.multiply(wholes, factor.numerator), floor_divide(pc.multiply(rests, factor.numerator), factor.denominator)
    )


def misfits(values: pa.Array, time_format: DateTimeFormat) -> pa.Array:
    """Return True where a stored text is no instant of the format, or one that 64 bits of milliseconds cannot hold.
    Integers of an epoch format or of a timestamp are not checked: only the time column's years are, elsewhere."""
    if pa.types.is_integer(values.type) and isinstance(time_format, EpochFormat | TimestampFormat):
        return pa.array(np.zeros(len(values), dtype=bool))
    return _read(values, time_format).bad


def _read(values: pa.Array, time_format: DateTimeFormat) -> CastResult:
    def read(value: int | str) -> int:
        millis = time_format.to_millis(value)
        if not LONG_RANGE[0] <= millis <= LONG_RANGE[1]:
            raise OverflowError(value)
        return millis

    return map_distinct(values, read, pa.int64())


def days_of(millis: pa.Array) -> pa.Array:
    """Return UTC days since 1970 (int32), rounded down; the input has no nulls."""
    return floor_divide(millis, DAY_MS).cast(pa.int32())


def _within(values: pa.Array, first: int, last: int) -> pa.Array:
    inside = pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))
    return pc.if_else(inside, values, pa.scalar(None, pa.int64()))
