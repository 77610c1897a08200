"""Schedules of repeated work: cron text of five fields, or a period such as `10m`. UTC.

Cron is Unix's: minute, hour, day of month, month, day of week; `*`, lists, ranges, steps, English names, 7 for Sunday,
and `@hourly` and the like. If both kinds of day are restricted, either is enough.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from merlot.errors import InvalidInputError
from merlot.values import periods

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_ITEM = re.compile(r"^(?P<range>\*|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d+))?$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEARCH_DAYS = 366 * 40 + 1
"""Days to search for the next moment: February 29th is each day of the week at least once in forty years."""


@dataclass(frozen=True, slots=True)
class PeriodicSchedule:
    """A schedule with one moment in each period, counted from 1970."""

    period: periods.Period

    def next(self, after_ms: int) -> int:
        """Return the first moment after `after_ms`."""
        return self.period.next(after_ms)


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule by minutes, hours and days."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_either_day: bool
    """True if both kinds of day are restricted; then either is enough."""

    def next(self, after_ms: int) -> int:
        """Return the first moment after `after_ms`."""
        start = _EPOCH + timedelta(minutes=after_ms // 60_000 + 1)
        midnight = start.replace(hour=0, minute=0)
        for number in range(_SEARCH_DAYS):
            day = midnight + timedelta(days=number)
            if not self._is_on(day):
                continue
            for hour, minute in itertools.product(self.hours, self.minutes):
                moment = day + timedelta(hours=hour, minutes=minute)
                if moment >= start:
                    return (moment - _EPOCH) // timedelta(milliseconds=1)
        raise InvalidInputError("schedule never comes true")

    def _is_on(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (of_month or of_week) if self.is_either_day else (of_month and of_week)


Schedule = PeriodicSchedule | Cron


def parse(text: str) -> Schedule:
    """Read cron text or a period. Raise InvalidInputError, which says what would be right."""
    text = text.strip()
    if re.match(periods.PERIOD, text):
        period = periods.parse(text)
        if period.is_zero:
            raise InvalidInputError(f'"{text}" is no time at all; write one such as 10m')
        return PeriodicSchedule(period)
    fields = _MACROS.get(text.lower(), text).lower().split()
    if len(fields) in (6, 7):
        raise InvalidInputError(f'"{text}" has {len(fields)} fields; cron has five, without seconds and years')
    if len(fields) != len(_FIELDS):
        raise InvalidInputError(f'"{text}" is no schedule; write cron such as "0 3 * * *", or a period such as 10m')
    minutes, hours, days, months, weekdays = (
        _field(field, *limits) for field, limits in zip(fields, _FIELDS, strict=True)
    )
    is_either_day = not fields[2].startswith("*") and not fields[4].startswith("*")
    sundays = frozenset(day % 7 for day in weekdays)
    cron = Cron(tuple(sorted(minutes)), tuple(sorted(hours)), days, months, sundays, is_either_day)
    try:
        cron.next(0)
    except InvalidInputError:
        raise InvalidInputError(f'"{text}" names a day that no month of it has') from None
    return cron


def _field(text: str, name: str, least: int, most: int) -> frozenset[int]:
    return frozenset(value for item in text.split(",") for value in _item(item, name, least, most))


def _item(text: str, name: str, least: int, most: int) -> range:
    match = _ITEM.match(text)
    if match is None:
        raise InvalidInputError(f'"{text}" is no {name} of a cron schedule')
    step = int(match["step"] or 1)
    if match["range"] == "*":
        low, high = least, most
    else:
        low = _number(match["low"], name)
        high = _number(match["high"], name) if match["high"] else most if match["step"] else low
    if not (least <= low <= high <= most) or step < 1:
        raise InvalidInputError(f'"{text}" is no {name}: from {least} to {most}')
    return range(low, high + 1, step)


def _number(text: str, name: str) -> int:
    names = {
        "month": dict(zip(_MONTHS, range(1, 13), strict=True)),
        "day of week": dict(zip(_DAYS, range(7), strict=True)),
    }
    if text.isdecimal():
        return int(text)
    try:
        return names[name][text]
    except KeyError:
        raise InvalidInputError(f'"{text}" is no {name}') from None
