"""DATETRUNC against `zoneinfo`, by a definition of its own: the start of a unit is where clocks show its first time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest

from merlot.functions.registry import BY_NAME
from merlot.functions.time_words import TIME_UNITS, TRUNC_UNITS
from merlot.functions.truncation import convert_unit, truncate
from merlot.functions.zones import zone_clock
from merlot.tree.nodes import Literal
from merlot.tree.types import LONG, STRING
from merlot.vectors.errors import UnsupportedQueryError
from merlot.vectors.vector import Vector, constant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_LONG_HOURS = ("MILLISECOND", "SECOND", "MINUTE", "HOUR")
_ZONES = sorted(zone for zone in available_timezones() if zone not in ("localtime", "Factory"))
_ODD_ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",  # half an hour
    "America/Havana",  # midnight comes twice
    "America/Sao_Paulo",  # midnight is skipped
    "Pacific/Apia",  # 2011-12-30 is skipped
    "America/Juneau",  # a day comes twice
    "Asia/Manila",
    "Africa/Casablanca",
    "Europe/Dublin",  # its winter is the exception
    "Asia/Kathmandu",
    "Africa/Monrovia",  # 44.5 minutes
    "Antarctica/Troll",  # two hours
)


def datetrunc(unit: str, millis: list[int], zone: str) -> list[int]:
    words = [constant(Literal(word, STRING)) for word in (unit, "MILLISECONDS", zone, "MILLISECONDS")]
    values = Vector(LONG, np.array(millis, np.int64))
    apply = BY_NAME["datetrunc"].apply
    assert apply is not None
    answer: list[int] = apply(LONG, [words[0], values, *words[1:]]).tolist()
    return answer


def floor(shown: datetime, unit: str) -> datetime:
    """The first time of the unit, of a clock's time without a zone."""
    if unit == "MILLISECOND":
        return shown.replace(microsecond=shown.microsecond // 1000 * 1000)
    shown = shown.replace(microsecond=0)
    if unit == "SECOND":
        return shown
    shown = shown.replace(second=0)
    if unit == "MINUTE":
        return shown
    shown = shown.replace(minute=0)
    if unit == "HOUR":
        return shown
    shown = shown.replace(hour=0)
    match unit:
        case "WEEK":
            return shown - timedelta(days=shown.weekday())
        case "MONTH":
            return shown.replace(day=1)
        case "QUARTER":
            return shown.replace(day=1, month=(shown.month - 1) // 3 * 3 + 1)
        case "YEAR":
            return shown.replace(day=1, month=1)
    return shown


def start_of(unit: str, millis: int, zone: ZoneInfo) -> int:
    instant = _EPOCH + millis * _MILLI
    wanted = floor(instant.astimezone(zone).replace(tzinfo=None), unit)
    found = []
    for fold in (0, 1):
        at = wanted.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if at.astimezone(zone).replace(tzinfo=None, fold=0) == wanted and at <= instant:
            found.append((at - _EPOCH) // _MILLI)
    if found:
        return max(found) if unit in _LONG_HOURS else min(found)
    return _change(instant, wanted, zone)


def _change(instant: datetime, wanted: datetime, zone: ZoneInfo) -> int:
    """Where clocks skip a time: the first instant at which they show a later one."""
    low, high = int((instant - _EPOCH) / _MILLI) - 370 * 86_400_000, (instant - _EPOCH) // _MILLI
    while high - low > 1:
        middle = (low + high) // 2
        shown = (_EPOCH + middle * _MILLI).astimezone(zone).replace(tzinfo=None)
        low, high = (middle, high) if shown < wanted else (low, middle)
    return high


def near_changes(zone: str, seed: int) -> Iterator[int]:
    """Instants around the zone's changes, of all of its history and of the far future."""
    generator = random.Random(f"{zone} {seed}")
    changes = zone_clock(zone)._changes.tolist()
    last = (datetime(9998, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLI
    for change in generator.sample(changes, min(len(changes), 12)):
        for delta in (-7_200_000, -3_600_000, -1, 0, 1, 1_799_999, 1_800_000, 3_599_999, 3_600_000, 43_200_000):
            yield min(change + delta, last)
        yield change + generator.randrange(-(10**7), 10**7)
    for _ in range(12):
        yield generator.randrange((datetime(2, 6, 1, tzinfo=UTC) - _EPOCH) // _MILLI, last)


@pytest.mark.parametrize("zone", _ODD_ZONES)
def test_every_start_is_where_the_zones_clocks_show_it(zone: str) -> None:
    millis = list(near_changes(zone, 1))
    for unit in TRUNC_UNITS:
        expected = [start_of(unit, one, ZoneInfo(zone)) for one in millis]
        assert datetrunc(unit, millis, zone) == expected, unit


def test_every_zone_of_this_machine_has_zoneinfos_starts() -> None:
    for zone in _ZONES:
        millis = list(near_changes(zone, 2))[::7]
        for unit in ("HOUR", "DAY", "YEAR"):
            expected = [start_of(unit, one, ZoneInfo(zone)) for one in millis]
            assert datetrunc(unit, millis, zone) == expected, (zone, unit)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Etc/UTC", "Africa/Monrovia"])
@pytest.mark.parametrize("unit", TRUNC_UNITS)
def test_the_calendar_goes_on_to_both_ends_of_long(zone: str, unit: str) -> None:
    """400 years are a whole number of weeks: whatever holds now, holds then."""
    cycle = 146_097 * 86_400_000
    now = [1_700_000_000_123 + number * 5_000_000_000 for number in range(40)]
    then = [one + cycle * 700_000 for one in now]
    assert datetrunc(unit, then, zone) == [one + cycle * 700_000 for one in datetrunc(unit, now, zone)]
    long_ago = [one - cycle * 300_000 for one in now]
    ancient = [one - cycle * 20 for one in now]
    shift = cycle * (300_000 - 20)
    assert datetrunc(unit, long_ago, zone) == [one - shift for one in datetrunc(unit, ancient, zone)]
    ends = [_LOWEST, _LOWEST + 1, _HIGHEST]
    first, second, last = datetrunc(unit, ends, zone)
    assert first == _LOWEST
    assert second == (_LOWEST + 1 if unit == "MILLISECOND" else _LOWEST)
    assert _HIGHEST - 367 * 86_400_000 < last <= _HIGHEST


def test_units_past_the_ends_of_long_are_the_ends() -> None:
    values = np.array([_LOWEST, -(10**15), -1, 0, 1, 10**15, _HIGHEST], np.int64)
    nanos = {"NANOSECONDS": 1, "MICROSECONDS": 10**3, "MILLISECONDS": 10**6, "SECONDS": 10**9}
    nanos |= {"MINUTES": 60 * 10**9, "HOURS": 3600 * 10**9, "DAYS": 86_400 * 10**9}
    for source in TIME_UNITS:
        for target in TIME_UNITS:
            exact = [value * nanos[source] // nanos[target] for value in values.tolist()]
            expected = [min(max(one, _LOWEST), _HIGHEST) for one in exact]
            assert convert_unit(values, source, target).tolist() == expected, (source, target)


def test_utc_has_the_starts_of_a_zone_without_changes() -> None:
    generator = random.Random(7)
    millis = [generator.randrange(_LOWEST, _HIGHEST) for _ in range(500)]
    for unit in TRUNC_UNITS:
        assert truncate(np.array(millis, np.int64), unit).tolist() == datetrunc(unit, millis, "Etc/UTC"), unit


def test_a_zone_that_a_server_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedQueryError, match="unknown time zone name=Mars/Olympus"):
        zone_clock("Mars/Olympus")
