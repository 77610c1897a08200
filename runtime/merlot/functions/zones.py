"""Time zones as tables: what a zone's clocks show at an instant, and when they show a time. Exact for every LONG.

The changes come from the zone's TZif file (RFC 8536), once `zoneinfo` has read it without error; for an offset, the
file is made. Years after the file's last change follow its rule, which repeats every 400 years with the calendar.
Before its first change a zone has one offset.
"""

from __future__ import annotations

import struct
from calendar import isleap
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from merlot.values.periods import DAY_MS
from merlot.values.time_zones import fixed_zone, zone_of
from merlot.vectors.errors import UnsupportedQueryError

Longs = NDArray[np.int64]

CYCLE_MS = 146_097 * DAY_MS
"""Milliseconds of 400 years, after which the Gregorian calendar repeats, weekdays included."""
_HEADER = struct.Struct(">4s1s15x6l")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_PROBE = timedelta(days=3)
"""Interval shorter than the time between two changes by any rule."""
_NEAR = (-2, -1, 0, 1, 2)
"""Steps from the stretch of a guessed instant to those in which clocks may show a time. A guess is wrong by less than
two days, and two days have at most two changes."""


class ZoneClock:
    """Offsets of one time zone. Instants and times are milliseconds since 1970, local times as if they were UTC.

    changes_ms: (n,), ascending; offsets_ms: (n + 1,), before the first change and after each."""

    def __init__(self, changes_ms: Longs, offsets_ms: Longs, *, has_rule: bool) -> None:
        self._changes = changes_ms
        self._offsets = offsets_ms
        first, last = (int(changes_ms[0]), int(changes_ms[-1])) if len(changes_ms) else (0, 0)
        self._oldest = first - 2 * CYCLE_MS
        self._newest = last if has_rule else max(0, last + 2 * CYCLE_MS)

    def cycles_off(self, instants: Longs) -> Longs:
        """Return how many cycles of 400 years to add to each instant to move it into the years of the table."""
        late = np.where(instants > self._newest, -((instants - self._newest) // CYCLE_MS + 1), 0)
        return np.where(instants < self._oldest, -((instants - self._oldest) // CYCLE_MS), late)

    def local(self, instants: Longs) -> Longs:
        """Return what clocks show at instants."""
        return instants + self._offsets[self.stretch(instants)]

    def first_at(self, times: Longs, instants: Longs) -> Longs:
        """Return the first instant at which clocks show each time; for a time that they skip, the instant of the
        change.

        instants: upper bounds of the results, at which clocks show no earlier time."""
        return self._at(times, instants, wants_last=False)

    def last_at(self, times: Longs, instants: Longs) -> Longs:
        """Return the last such instant that is not after the bound."""
        return self._at(times, instants, wants_last=True)

    def stretch(self, instants: Longs) -> Longs:
        """Return the number of the stretch between two changes in which each instant lies."""
        return np.searchsorted(self._changes, instants, side="right")

    def _at(self, times: Longs, instants: Longs, *, wants_last: bool) -> Longs:
        bounds = np.concatenate([[np.iinfo(np.int64).min], self._changes, [np.iinfo(np.int64).max]])
        here = self.stretch(times - self._offsets[self.stretch(instants)])
        chosen = np.full(len(times), np.iinfo(np.int64).min)
        skipped = chosen.copy()
        for step in _NEAR if wants_last else reversed(_NEAR):
            place = np.clip(here + step, 0, len(self._offsets) - 1)
            at = times - self._offsets[place]
            begins, ends = bounds[place], bounds[place + 1]
            chosen = np.where((at >= begins) & (at < ends) & (at <= instants), at, chosen)
            is_gap = (at < begins) & (times - self._offsets[np.maximum(place - 1, 0)] >= begins) & (place > 0)
            skipped = np.where(is_gap, begins, skipped)
        return np.where(chosen > np.iinfo(np.int64).min, chosen, skipped)


@lru_cache(maxsize=64)
def zone_clock(name: str) -> ZoneClock:
    """Return the clock of a time zone, by a name that `zone_of` takes; raise UnsupportedQueryError if this machine does
    not know it."""
    try:
        zone = zone_of(name)
        content = fixed_zone(name) or _content(zone.key)
    except (ZoneInfoNotFoundError, ValueError, OSError, ModuleNotFoundError) as error:
        raise UnsupportedQueryError(f"unknown time zone name={name}") from error
    changes, offsets, has_rule = _read(content)
    if has_rule:
        later, later_offsets = _by_rule(zone, changes[-1] if changes else 0)
        changes, offsets = changes + later, offsets + later_offsets
    return ZoneClock(np.array(changes, np.int64) * 1000, np.array(offsets, np.int64) * 1000, has_rule=has_rule)


def _content(name: str) -> bytes:
    for folder in TZPATH:
        path = Path(folder) / name
        if path.is_file():
            return path.read_bytes()
    return files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes()


def _read(content: bytes) -> tuple[list[int], list[int], bool]:
    """Return the seconds of the changes, the offsets before, between and after them, and True if a rule goes on after
    the last."""
    _, version, *counts = _HEADER.unpack_from(content)
    size, start = 4, _HEADER.size
    if version >= b"2":
        start += _block_size(counts, size)
        _, _, *counts = _HEADER.unpack_from(content, start)
        size, start = 8, start + _HEADER.size
    num_changes, num_types = counts[3], counts[4]
    changes = np.frombuffer(content, f">i{size}", num_changes, start).tolist()
    kinds = np.frombuffer(content, np.uint8, num_changes, start + num_changes * size).tolist()
    types = start + num_changes * (size + 1)
    local_types = [struct.unpack_from(">lB", content, types + 6 * number) for number in range(num_types)]
    first = next((offset for offset, is_summer in local_types if not is_summer), local_types[0][0])
    footer = content[start + _block_size(counts, size) :] if version >= b"2" else b""
    return changes, [first, *(local_types[kind][0] for kind in kinds)], b"," in footer


def _block_size(counts: list[int], size: int) -> int:
    num_utc, num_standard, num_leaps, num_changes, num_types, num_chars = counts
    return num_changes * (size + 1) + num_types * 6 + num_chars + num_leaps * (size + 4) + num_standard + num_utc


def _by_rule(zone: ZoneInfo, start: int) -> tuple[list[int], list[int]]:
    """Return the changes, and offsets after them, of 402 years after a second. Years of the same length that begin on
    the same weekday have their changes at the same times."""
    first = (_EPOCH + timedelta(seconds=start)).year
    changes: list[int] = []
    offsets: list[int] = []
    changes_by_kind: dict[tuple[bool, int], list[tuple[int, int]]] = {}
    for year in range(first, first + 403):
        begin = datetime(year, 1, 1, tzinfo=UTC)
        kind = isleap(year), begin.weekday()
        if kind not in changes_by_kind:
            changes_by_kind[kind] = _changes_of(zone, year + 400)
        for after, offset in changes_by_kind[kind]:
            change = (begin - _EPOCH) // _SECOND + after
            if change > start:
                changes.append(change)
                offsets.append(offset)
    return changes, offsets


def _changes_of(zone: ZoneInfo, year: int) -> list[tuple[int, int]]:
    """Return the changes of a year, in seconds since it began, and the offsets after them. Offsets are probed every few
    days."""
    begin = low = datetime(year, 1, 1, tzinfo=UTC)
    offset = _offset(zone, low)
    changes: list[tuple[int, int]] = []
    while low.year == year:
        high = min(low + _PROBE, begin.replace(year=year + 1))
        if _offset(zone, high) != offset:
            change = _change(zone, low, high)
            offset = _offset(zone, change)
            changes.append(((change - begin) // _SECOND, offset))
        low = high
    return changes


def _change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Return the second after `low`, up to `high`, from which on the offset is different."""
    before = _offset(zone, low)
    first, last = 0, (high - low) // _SECOND
    while last - first > 1:
        middle = (first + last) // 2
        if _offset(zone, low + timedelta(seconds=middle)) == before:
            first = middle
        else:
            last = middle
    return low + timedelta(seconds=last)


def _offset(zone: ZoneInfo, instant: datetime) -> int:
    shown = instant.astimezone(zone).utcoffset()
    assert shown is not None
    return shown // _SECOND
