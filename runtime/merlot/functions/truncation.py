"""Truncation of instants, which are whole numbers of a unit since the epoch, without leap seconds.

A result outside LONG is the nearest LONG, as in Java's TimeUnit: the default value of a null stays the least LONG.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.functions.function import Family, instant, word
from merlot.functions.time_words import TRUNC_UNITS, one_of, time_unit, zone_name
from merlot.functions.zones import CYCLE_MS, zone_clock
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.types import LONG, STRING, SqlType
from merlot.values.periods import DAY_MS
from merlot.values.time_units import UNIT_NANOS
from merlot.vectors.vector import Vector

Longs = NDArray[np.int64]

FIXED_MS = {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": DAY_MS, "WEEK": 7 * DAY_MS}
_OF_THE_CLOCK = ("MILLISECOND", "SECOND", "MINUTE", "HOUR")
"""Units that occur twice when a clock is set back. A day or a longer unit begins once."""
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_MONDAY_MS = 4 * DAY_MS
"""1970-01-05 was a Monday."""
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


TRUNCATION: Final = Family("Truncating instants")


def _completed(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Complete the arguments to unit, value, input unit, time zone, output unit (Pinot's
    DateTruncTransformFunction)."""
    unit = one_of(args[0], "datetrunc: unknown unit", TRUNC_UNITS)
    input_unit = time_unit("datetrunc", args[2]) if len(args) > 2 else "MILLISECONDS"
    zone = zone_name("datetrunc", args[3]) if len(args) > 3 else "UTC"
    output_unit = time_unit("datetrunc", args[4]) if len(args) > 4 else input_unit
    return (Literal(unit, STRING), args[1], *(Literal(word, STRING) for word in (input_unit, zone, output_unit)))


def _rising(call: Call) -> Expr | None:
    return call.args[1]


@TRUNCATION.strict(
    "datetrunc",
    parameters=(
        word("unit"),
        instant("at"),
        word("input unit", is_optional=True),
        word("time zone", is_optional=True),
        word("output unit", is_optional=True),
    ),
    result=LONG,
    complete=_completed,
    rising=_rising,
    examples={
        "DATETRUNC('DAY', 1700000000123)": 1699920000000,
        "DATETRUNC('MONTH', 1700000000, 'SECONDS', 'Asia/Kolkata', 'MILLISECONDS')": 1698777000000,
    },
)
def _datetrunc(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Truncate the value. The arguments are those that `_completed` returns."""
    unit, input_unit, zone, output_unit = (str(args[place].data.as_py()) for place in (0, 2, 3, 4))
    with np.errstate(over="ignore"):  # numpy warns of a constant that wraps, although it is not chosen.
        millis = convert_unit(np.asarray(args[1].data, np.int64), input_unit, "MILLISECONDS")
        truncated = truncate(millis, unit) if zone == "UTC" else _truncate_in_zone(millis, unit, zone)
        return convert_unit(truncated, "MILLISECONDS", output_unit)


def convert_unit(values: Longs, source: str, target: str) -> Longs:
    """Convert to whole units, rounded towards the past."""
    have, want = UNIT_NANOS[source], UNIT_NANOS[target]
    return scaled(values, have // want) if have >= want else values // (want // have)


def truncate(millis: Longs, unit: str) -> Longs:
    """Return the start of the unit that holds each instant, in UTC; weeks begin on Monday."""
    if unit in _MONTHS:
        return scaled(_first_days(millis // DAY_MS, _MONTHS[unit]), DAY_MS)
    size = FIXED_MS[unit]
    since = millis % size if unit != "WEEK" else (millis % size - _MONDAY_MS) % size
    return np.where(millis >= _LOWEST + since, millis - since, _LOWEST)


def _first_days(days: Longs, months_each: int) -> Longs:
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    months -= months % months_each
    firsts: Longs = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return firsts


def _truncate_in_zone(millis: Longs, unit: str, zone: str) -> Longs:
    """Truncate by the time zone's clocks. If they skip a start, it is the instant of the change. Each of two repeated
    hours has its own start; a day of 25 hours is one day."""
    if unit == "MILLISECOND":
        return millis
    flat = np.atleast_1d(millis)
    clock = zone_clock(zone)
    starts = truncate(clock.local(flat + clock.cycles_off(flat) * CYCLE_MS), unit)
    return at_local(starts, flat, zone, is_day=unit not in _OF_THE_CLOCK).reshape(np.shape(millis))


def at_local(starts: Longs, millis: Longs, zone: str, *, is_day: bool) -> Longs:
    """Return the instants at which a time zone's clocks show the starts.

    starts: local times that are not after what the clocks show at `millis`, moved by the cycles of `cycles_off`.
    If clocks show a start twice, the first instant is taken with `is_day`, else the last that is not after `millis`."""
    if zone == "UTC":
        return starts
    clock = zone_clock(zone)
    cycles = clock.cycles_off(millis)
    instants = (clock.first_at if is_day else clock.last_at)(starts, millis + cycles * CYCLE_MS)
    is_long = (cycles <= 0) | (instants >= _LOWEST + cycles * CYCLE_MS)
    return np.where(is_long, instants - cycles * CYCLE_MS, _LOWEST)


def scaled(values: Longs, factor: int) -> Longs:
    """Return the product, or the end of LONG that it lies beyond."""
    limit = _HIGHEST // factor
    if factor == 1 or not np.any((values > limit) | (values < -limit)):
        return values * factor
    return np.where(values > limit, _HIGHEST, np.where(values < -limit, _LOWEST, values * factor))
