"""Round values of a dateTime column down to a period, in the column's own zone, unit and pattern.

A rounded value lies in the same period in UTC as the original value, so the row stays in its bucket, and rounding again
changes nothing. `problem` says which columns cannot be rounded like this; a manifest that asks for it is refused. A few
values of other columns cannot be rounded either, and keep their time: for instance those of years when the zone's
offset had seconds, or at the end of their type's range.
"""

from __future__ import annotations

import functools
import math
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from merlot.errors import InvalidInputError
from merlot.spec.schema import FieldSpec
from merlot.values.datetime_format import (
    DateTimeFormat,
    EpochFormat,
    PatternFormat,
    TimestampFormat,
    datetime_of,
    millis_of,
)
from merlot.values.datetime_pattern import FIRST_SHORT_YEAR
from merlot.values.periods import DAY_MS, Period
from merlot.values.types import TypeName

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_WEEK_MS: Final = 7 * DAY_MS
_LEAST_MONTH_MS: Final = 28 * DAY_MS
_LAST_KNOWN_YEAR: Final = 2037
_FIRST_SHORT_YEAR_MS: Final = millis_of(datetime(FIRST_SHORT_YEAR, 1, 1, tzinfo=UTC))
_UNITS: Final = (
    ("yY", Period("12mo", months=12)),
    ("M", Period("1mo", months=1)),
    ("dD", Period("1d", fixed_ms=DAY_MS)),
    ("HhKk", Period("1h", fixed_ms=_HOUR_MS)),
    ("m", Period("1m", fixed_ms=_MINUTE_MS)),
    ("s", Period("1s", fixed_ms=1_000)),
    ("S", Period("1ms", fixed_ms=1)),
)
"""Letters of a pattern, from the coarsest, each with the distance between the times that it can distinguish."""
_NOT_ROUNDED: Final = "GCxwez"
"""Letters of patterns whose times are never rounded."""
_PROBES: Final = tuple(
    datetime.fromisoformat(text).replace(tzinfo=UTC)
    for text in (
        *("2013-12-31 23:58:57.987", "2004-02-29 11:07:06.050", "2001-01-01 00:00:00.000"),
        *("2040-10-10 12:30:00.100", "2016-05-09 01:02:03.004"),
    )
)


def problem(field: FieldSpec, period: Period) -> str | None:
    """Return why values of a dateTime column cannot be rounded down to a period; None if they can."""
    match field.time_format:
        case EpochFormat() as epoch:
            return _epoch_problem(epoch, period)
        case PatternFormat() as pattern:
            return _pattern_problem(field, pattern, period)
        case TimestampFormat() if field.type is TypeName.STRING:
            return "texts of format TIMESTAMP are written in many ways, of which rounding would make one"
        case _:
            return None


def is_moving(field: FieldSpec, period: Period) -> bool:
    """Return True if rounding changes the time of a value, instead of only its spelling."""
    return not _unit_of(field.time_format).is_multiple_of(period)


def round_value(time_format: DateTimeFormat, value: int | str, period: Period) -> int | str:
    """Return a stored value rounded down, or its time in the pattern's usual spelling if it cannot be rounded. Raise
    InvalidInputError if it is no instant."""
    if not isinstance(time_format, PatternFormat):
        return time_format.from_millis(period.floor(time_format.to_millis(value)))
    moment = _wall_clock(time_format, value)
    rewritten = time_format.pattern.format(moment)
    try:
        rounded = time_format.pattern.format(datetime_of(period.floor(millis_of(moment))))
        start_ms, millis = time_format.to_millis(rounded), time_format.to_millis(value)
    except InvalidInputError:
        return rewritten
    return rounded if period.floor(start_ms) == period.floor(millis) else rewritten


def _wall_clock(time_format: PatternFormat, value: int | str) -> datetime:
    """Return the local time in the column's zone, labeled as UTC; for a text with an offset, the instant in UTC."""
    return time_format.pattern.parse(str(value), UTC).astimezone(UTC)


def _epoch_problem(epoch: EpochFormat, period: Period) -> str | None:
    step_ms = epoch.step_ms
    if period.months:
        is_exact = DAY_MS % step_ms == 0
    else:
        is_exact = step_ms % period.fixed_ms == 0 or period.fixed_ms % step_ms == 0
    if is_exact:
        return None
    size = "" if epoch.size == 1 else f"{epoch.size} "
    return f"periods of {period} do not begin at whole multiples of {size}{epoch.unit}, all that the column can hold"


def _pattern_problem(field: FieldSpec, pattern: PatternFormat, period: Period) -> str | None:
    unit = _unit_of(pattern)
    unsupported = [letter for letter in _NOT_ROUNDED if _has_letter(pattern, letter)]
    if unsupported:
        return f"the pattern {pattern.pattern.text!r} has the letter {unsupported[0]}, by which no times are rounded"
    for probe in _PROBES:
        loss = _round_trip_problem(field, pattern, datetime_of(unit.floor(millis_of(probe))))
        if loss is not None:
            return loss
    text = pattern.pattern.text
    is_moved = is_moving(field, period)
    if is_moved and not period.is_multiple_of(unit):
        return f"periods of {period} do not begin at times that the pattern {text!r} can write"
    has_short_year = any(token.is_short_year for token in pattern.pattern.tokens)
    if has_short_year and period.floor(_FIRST_SHORT_YEAR_MS) != _FIRST_SHORT_YEAR_MS:
        return f"years of two digits begin with {FIRST_SHORT_YEAR}, which no period of {period} begins with"
    offsets = offsets_ms(pattern.zone)
    if _has_letter(pattern, "Z"):
        if offsets != {0}:
            return f"times with an offset (Z) are rounded in UTC only, and the column is in {pattern.zone.key}"
        if not is_moved and unit.nominal_ms > _MINUTE_MS:
            return f"the pattern {text!r} has an offset (Z) and no minutes, so not all that is read can be written"
        return None
    if is_moved and not _are_in_one_period(offsets, unit, period):
        return f"{period} in {pattern.zone.key} may lie in two buckets, which are in UTC"
    return None


def _round_trip_problem(field: FieldSpec, pattern: PatternFormat, moment: datetime) -> str | None:
    text = pattern.pattern.format(moment)
    try:
        stored: int | str = text if field.type is TypeName.STRING else int(text)
        restored = _wall_clock(pattern, stored)
    except (InvalidInputError, ValueError):
        restored = None
    if restored == moment:
        return None
    shown = "nothing" if restored is None else f"{restored:%Y-%m-%d %H:%M:%S}"
    return f"{moment:%Y-%m-%d %H:%M:%S} is written as {text!r} by {pattern.pattern.text!r}, and read again as {shown}"


def _are_in_one_period(offsets: frozenset[int], unit: Period, period: Period) -> bool:
    """Return True if all values that are rounded to the same value, in a zone with these offsets, lie in one period of
    UTC.

    That is so if the periods of the zone are those of UTC. It is also so if each unit begins later than in UTC, but
    before the next unit of UTC: a day in America."""
    if not period.months and all(offset % period.fixed_ms == 0 for offset in offsets):
        return True
    unit_ms = _LEAST_MONTH_MS if unit.months else unit.fixed_ms
    return all(-unit_ms < offset <= 0 for offset in offsets)


@functools.lru_cache(maxsize=128)
def offsets_ms(zone: ZoneInfo) -> frozenset[int]:
    """Return the UTC offsets in milliseconds that a zone has, sampled weekly from 1970 to 2037; east is positive."""
    last_ms = millis_of(datetime(_LAST_KNOWN_YEAR, 12, 31, tzinfo=UTC))
    offsets = {datetime_of(millis).astimezone(zone).utcoffset() for millis in range(0, last_ms, _WEEK_MS)}
    return frozenset(round(offset.total_seconds() * 1000) for offset in offsets if offset is not None)


def _unit_of(time_format: DateTimeFormat | None) -> Period:
    """Return the least distance between two times that a format can distinguish."""
    match time_format:
        case EpochFormat() as epoch:
            return Period(f"{epoch.size} {epoch.unit}", fixed_ms=math.ceil(epoch.step_ms))
        case PatternFormat() as pattern:
            letters = {token.letter for token in pattern.pattern.tokens}
            return next((unit for names, unit in reversed(_UNITS) if letters & set(names)), _UNITS[0][1])
        case _:
            return Period("1ms", fixed_ms=1)


def _has_letter(pattern: PatternFormat, letter: str) -> bool:
    return any(token.letter == letter for token in pattern.pattern.tokens)
