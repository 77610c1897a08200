"""Fields of dates and times that calendars and clocks show at instants. Dates are proleptic Gregorian, weeks those of
ISO 8601.

Local times are milliseconds since 1970 as if they were UTC. The changes of a time zone are known for some thousand
years. Instants outside are moved by multiples of 400 years, after which the calendar repeats, and their years are moved
back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merlot.functions.zones import CYCLE_MS, zone_clock
from merlot.values.periods import DAY_MS

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LocalTimes:
    """Local times (n,), which are `cycles` times 400 years too late; None: no time is."""

    local: Longs
    cycles: Longs | None

    @property
    def days(self) -> Longs:
        """Days since 1970."""
        return self.local // DAY_MS

    @property
    def of_day(self) -> Longs:
        """Milliseconds since midnight."""
        return self.local % DAY_MS

    def year(self) -> Longs:
        return self._shifted(year_of(self.days))

    def week_year(self) -> Longs:
        """Year of the ISO week."""
        return self._shifted(year_of(_thursday(self.days)))

    def _shifted(self, years: Longs) -> Longs:
        return years if self.cycles is None else years - 400 * self.cycles


def local_times(millis: Longs, zone: str) -> LocalTimes:
    """Return what the clocks of a time zone show at instants."""
    if zone == "UTC":
        return LocalTimes(millis, None)
    clock = zone_clock(zone)
    cycles = clock.cycles_off(millis)
    return LocalTimes(clock.local(millis + cycles * CYCLE_MS), cycles)


def months_of(days: Longs) -> Longs:
    """Return months since January 1970."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def first_day(months: Longs) -> Longs:
    """Return the first days of months, in days since 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def year_of(days: Longs) -> Longs:
    return months_of(days) // 12 + 1970


def month(days: Longs) -> Longs:
    """Return the month, 1 to 12."""
    return months_of(days) % 12 + 1


def quarter(days: Longs) -> Longs:
    """Return the quarter, 1 to 4."""
    return months_of(days) % 12 // 3 + 1


def day_of_month(days: Longs) -> Longs:
    """Return the day of the month, 1 to 31."""
    return days - first_day(months_of(days)) + 1


def day_of_year(days: Longs) -> Longs:
    """Return the day of the year, 1 to 366."""
    months = months_of(days)
    return days - first_day(months - months % 12) + 1


def day_of_week(days: Longs) -> Longs:
    """Return the day of the week, from 1 for Monday to 7 for Sunday."""
    return (days + 3) % 7 + 1


def week(days: Longs) -> Longs:
    """Return the ISO week, 1 to 53."""
    return (day_of_year(_thursday(days)) - 1) // 7 + 1


def _thursday(days: Longs) -> Longs:
    """Return the Thursday of each day's week: its year is the year of the week."""
    return days - day_of_week(days) + 4
