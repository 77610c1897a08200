"""Instants as counts of units since 1970, rounded towards zero as Java's TimeUnit does, and differences of instants.

A result outside LONG is the nearest LONG: the default value of a null stays the least LONG.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from merlot.functions.arithmetic import constant_number
from merlot.functions.calendar import Longs, first_day, months_of
from merlot.functions.conversion import cast_to
from merlot.functions.function import Binding, Family, VectorFunction, instant, whole, word
from merlot.functions.time_words import TIME_UNITS, calendar_unit, one_of, time_unit
from merlot.functions.truncation import FIXED_MS, scaled
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.types import LONG, STRING, TIMESTAMP, SqlType
from merlot.values.datetime_format import WRITTEN_UNITS
from merlot.values.periods import DAY_MS
from merlot.values.time_units import UNIT_NANOS
from merlot.vectors.vector import Attempt, Vector, failed

EPOCHS: Final = Family("Counts since 1970")
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def towards_zero(values: Longs, size: Any) -> Longs:
    """Return quotients rounded towards zero, by sizes that are not 0."""
    quotients: Longs = (values - np.fmod(values, size)) // size
    return quotients


def _longs(vector: Vector) -> Longs:
    return np.asarray(vector.data, np.int64)


def _rising(call: Call) -> Expr | None:
    """Return the first argument if its bucket, where there is one, is a positive constant."""
    bucket = constant_number(call.args[1]) if len(call.args) > 1 else 1
    return call.args[0] if bucket is not None and bucket > 0 else None


def _counted(unit_ms: int) -> VectorFunction:
    return lambda _type, args: towards_zero(_longs(args[0]), unit_ms)


def _bucketed(unit_ms: int, *, is_count: bool) -> VectorFunction:
    """Return a function that counts buckets of units, or gives the unit at which each bucket begins."""

    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        size = _longs(args[1])
        is_zero = np.broadcast_to(size == 0, np.broadcast_shapes(args[0].data.shape, size.shape))
        some = np.where(size == 0, 1, size)
        buckets = towards_zero(towards_zero(_longs(args[0]), unit_ms), some)
        return Attempt(buckets if is_count else buckets * some, failed(is_zero, "division by zero in a time bucket"))

    return apply


def _back(unit_ms: int) -> VectorFunction:
    return lambda _type, args: scaled(_longs(args[0]), unit_ms)


def _back_from_buckets(unit_ms: int) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        counts, sizes = _longs(args[0]), _longs(args[1])
        with np.errstate(over="ignore"):
            return scaled(_nearest(counts * sizes, counts.astype(np.float64) * sizes), unit_ms)

    return apply


def _nearest(exact: Longs, about: Any) -> Longs:
    """Return `exact`, results modulo 2**64, or the end of LONG that a result lies beyond. about: approximations of the
    results."""
    # Doubles do not tell the least LONG from results just below it, but numbers that are 2**64 apart.
    wraps = np.rint((about - exact.astype(np.float64)) / 2.0**64)
    return np.where(wraps > 0, _HIGHEST, np.where(wraps < 0, _LOWEST, exact))


for _unit, _size, _example in (
    ("seconds", 1_000, 1_700_000_000),
    ("minutes", 60_000, 28_333_333),
    ("hours", 3_600_000, 472_222),
    ("days", DAY_MS, 19_675),
):
    _at, _by = instant("millis"), whole("bucket")
    EPOCHS.strict(
        f"toepoch{_unit}",
        parameters=(_at,),
        result=LONG,
        rising=_rising,
        examples={f"TO_EPOCH_{_unit.upper()}(1700000000123)": _example},
    )(_counted(_size))
    EPOCHS.strict(
        f"toepoch{_unit}rounded",
        parameters=(_at, _by),
        result=LONG,
        rising=_rising,
        examples={f"TOEPOCH{_unit.upper()}ROUNDED(1700000000123, 10)": _example // 10 * 10},
    )(_bucketed(_size, is_count=False))
    EPOCHS.strict(
        f"toepoch{_unit}bucket",
        parameters=(_at, _by),
        result=LONG,
        rising=_rising,
        examples={f"TOEPOCH{_unit.upper()}BUCKET(1700000000123, 10)": _example // 10},
    )(_bucketed(_size, is_count=True))
    EPOCHS.strict(
        f"fromepoch{_unit}",
        parameters=(whole("count"),),
        result=LONG,
        rising=_rising,
        examples={f"FROMEPOCH{_unit.upper()}({_example})": _example * _size},
    )(_back(_size))
    EPOCHS.strict(
        f"fromepoch{_unit}bucket",
        parameters=(whole("count"), _by),
        result=LONG,
        rising=_rising,
        examples={f"FROMEPOCH{_unit.upper()}BUCKET(7, 10)": 70 * _size},
    )(_back_from_buckets(_size))


@EPOCHS.rewriting(
    "totimestamp",
    parameters=(instant("millis"),),
    result=TIMESTAMP,
    examples={"TOTIMESTAMP(1700000000123)": "2023-11-14 22:13:20.123"},
)
def _to_timestamp(_binding: Binding, args: tuple[Expr, ...]) -> Expr:
    return cast_to(args[0], TIMESTAMP)


@EPOCHS.rewriting(
    "fromtimestamp", parameters=(instant("at"),), result=LONG, examples={"FROMTIMESTAMP(TOTIMESTAMP(12))": 12}
)
def _from_timestamp(_binding: Binding, args: tuple[Expr, ...]) -> Expr:
    return cast_to(args[0], LONG)


def _units(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    new_unit = one_of(args[2], "timeconvert: unknown time unit", (*TIME_UNITS, *WRITTEN_UNITS))
    return args[0], Literal(time_unit("timeconvert", args[1]), STRING), Literal(new_unit, STRING)


@EPOCHS.strict(
    "timeconvert",
    parameters=(instant("count"), word("unit"), word("new unit")),
    result=LONG,
    complete=_units,
    rising=lambda call: call.args[0],
    examples={
        "TIMECONVERT(90, 'MINUTES', 'HOURS')": 1,
        "TIMECONVERT(-90, 'MINUTES', 'HOURS')": -1,
        "TIMECONVERT(19675, 'DAYS', 'MONTHS')": 646,
    },
)
def _time_convert(_type: SqlType, args: Sequence[Vector]) -> Any:
    have, want = (arg.data.as_py() for arg in args[1:])
    values = _longs(args[0])
    if want in WRITTEN_UNITS:
        return calendar_count(_in_unit(values, have, "MILLISECONDS"), want)
    return _in_unit(values, have, want)


def _in_unit(values: Longs, source: str, target: str) -> Longs:
    """Convert to whole units, rounded towards zero."""
    have, want = UNIT_NANOS[source], UNIT_NANOS[target]
    return scaled(values, have // want) if have >= want else towards_zero(values, want // have)


def calendar_count(millis: Longs, unit: str) -> Longs:
    """Count WEEKS, MONTHS or YEARS between 1970 and instants, rounded towards zero."""
    if unit == "WEEKS":
        return towards_zero(millis, 7 * DAY_MS)
    months_each = {"MONTHS": 1, "YEARS": 12}[unit]
    counts = months_of(millis // DAY_MS) // months_each
    begin = first_day(counts * months_each) * DAY_MS
    rounded: Longs = counts + ((counts < 0) & (begin != millis))
    return rounded


def epoch_count(millis: Longs, unit: str, size: int) -> Longs:
    """Count units of a size between 1970 and instants, rounded towards zero."""
    if unit in WRITTEN_UNITS:
        return towards_zero(calendar_count(millis, unit), size)
    return towards_zero(_in_unit(millis, "MILLISECONDS", unit), size)


def epoch_millis(counts: Longs, unit: str, size: int) -> Longs:
    """Return the instants of counts of units of a size, rounded towards zero."""
    return _in_unit(scaled(counts, size), unit, "MILLISECONDS")


def _unit_first(function: str) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
    return lambda args: (Literal(calendar_unit(function, args[0]), STRING), *args[1:])


@EPOCHS.strict(
    "timestampadd",
    aliases=("dateadd",),
    parameters=(word("unit"), whole("interval"), instant()),
    result=LONG,
    complete=_unit_first("timestampadd"),
    examples={
        "TIMESTAMPADD('DAY', 10, 1700000000123)": 1700864000123,
        "DATE_ADD('month', 1, FROMDATETIME('2024-01-31', 'yyyy-MM-dd'))": 1709164800000,
    },
)
def _timestamp_add(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Add units in UTC. In a month that is too short for the day, the result is its last day."""
    unit, interval, millis = args[0].data.as_py(), _longs(args[1]), _longs(args[2])
    with np.errstate(all="ignore"):
        if unit in _MONTHS:
            return _with_months(millis, interval, _MONTHS[unit])
        size = FIXED_MS[unit]
        return _nearest(millis + interval * size, millis.astype(np.float64) + interval.astype(np.float64) * size)


def _with_months(millis: Longs, interval: Longs, months_each: int) -> Longs:
    days = millis // DAY_MS
    months = months_of(days)
    later = months + interval * months_each
    first, following = first_day(later), first_day(later + 1)
    day = np.minimum(days - first_day(months), following - first - 1)
    about = millis.astype(np.float64) + interval.astype(np.float64) * months_each * 2_629_746_000
    return _nearest((first + day) * DAY_MS + millis % DAY_MS, about)


@EPOCHS.strict(
    "timestampdiff",
    aliases=("datediff",),
    parameters=(word("unit"), instant("from"), instant("to")),
    result=LONG,
    complete=_unit_first("timestampdiff"),
    examples={
        "TIMESTAMPDIFF('HOUR', 0, 7300000)": 2,
        "DATEDIFF('MONTH', FROMDATETIME('2024-01-31', 'yyyy-MM-dd'), FROMDATETIME('2024-02-29', 'yyyy-MM-dd'))": 1,
    },
)
def _timestamp_diff(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Count whole units from the first instant to the second, in UTC, rounded towards zero."""
    unit, start, end = args[0].data.as_py(), _longs(args[1]), _longs(args[2])
    with np.errstate(all="ignore"):
        if unit not in _MONTHS:
            return towards_zero(_nearest(end - start, end.astype(np.float64) - start), FIXED_MS[unit])
        early, late = np.minimum(start, end), np.maximum(start, end)
        months = months_of(late // DAY_MS) - months_of(early // DAY_MS)
        months = months - (_with_months(early, months, 1) > late)
        return np.where(start > end, -(months // _MONTHS[unit]), months // _MONTHS[unit])
