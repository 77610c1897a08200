"""Instants written by a date pattern, a token at a time for all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.functions import calendar
from merlot.functions.calendar import LocalTimes, Longs
from merlot.functions.zones import CYCLE_MS, zone_clock
from merlot.values.datetime_format import datetime_of
from merlot.values.datetime_pattern import ERAS, HALVES, MONTHS, WEEKDAYS, DateTimePattern, Token, named, zone_name
from merlot.values.time_zones import zone_id, zone_of
from merlot.vectors import account

_DENSE: Final = 100_000
"""Span below which every number within it is spelled, without a search for those that occur."""
_LONGEST: Final = 32
"""Limit in bytes of the name of a month or a time zone."""
_FIELDS: Final[dict[str, Callable[[LocalTimes], Longs]]] = {
    "y": LocalTimes.year,
    "Y": lambda shown: np.abs(shown.year()),
    "C": lambda shown: np.abs(shown.year()) // 100,
    "x": LocalTimes.week_year,
    "w": lambda shown: calendar.week(shown.days),
    "e": lambda shown: calendar.day_of_week(shown.days),
    "M": lambda shown: calendar.month(shown.days),
    "d": lambda shown: calendar.day_of_month(shown.days),
    "D": lambda shown: calendar.day_of_year(shown.days),
    "H": lambda shown: shown.of_day // 3_600_000,
    "k": lambda shown: (shown.of_day // 3_600_000 + 23) % 24 + 1,
    "K": lambda shown: shown.of_day // 3_600_000 % 12,
    "h": lambda shown: (shown.of_day // 3_600_000 + 11) % 12 + 1,
    "m": lambda shown: shown.of_day // 60_000 % 60,
    "s": lambda shown: shown.of_day // 1_000 % 60,
}


@lru_cache(maxsize=256)
def pattern_of(text: str) -> DateTimePattern:
    """Return the compiled pattern; raise InvalidInputError."""
    return DateTimePattern.compile(text)


def written(pattern: DateTimePattern, millis: Longs, shown: LocalTimes, zone: str) -> pa.Array:
    """Return the texts of instants (n,). `shown` is what the clocks of the time zone show at them."""
    # Room for the parts of a text, and as much again for the joined texts.
    longest = sum([2 * max(_LONGEST, token.width, len(token.literal.encode())) for token in pattern.tokens])
    account.current().expect("", len(millis) * longest)
    parts = [_token(token, millis, shown, zone) for token in pattern.tokens]
    return pc.binary_join_element_wise(*parts, "") if len(parts) > 1 else pa.array(parts[0])


def _token(token: Token, millis: Longs, shown: LocalTimes, zone: str) -> Any:
    match token.letter:
        case "":
            return pa.repeat(pa.scalar(token.literal), len(millis))
        case _ if token.is_short_year:
            return _spelled(np.abs(_FIELDS[token.letter](shown)) % 100, 2)
        case "G":
            return _named(ERAS, (shown.year() > 0).astype(np.int64))
        case "M" if token.width > 2:
            return _named(named(token, MONTHS), calendar.month(shown.days) - 1)
        case "E":
            return _named(named(token, WEEKDAYS), calendar.day_of_week(shown.days) - 1)
        case "a":
            return _named(HALVES, shown.of_day // 43_200_000)
        case "z":
            return _zone_names(millis, zone)
        case "Z" if token.width > 2:
            return pa.repeat(pa.scalar(zone_id(zone_of(zone))), len(millis))
        case "Z":
            return _offsets(millis, shown, with_colon=token.width > 1)
        case "S":
            return _spelled(shown.of_day % 1_000, 3, cut=token.width)
    return _spelled(_FIELDS[token.letter](shown), token.width)


def _named(names: Sequence[str], places: Longs) -> pa.Array:
    return pa.array(names).take(pa.array(places))


def _spelled(numbers: Longs, width: int, cut: int = 0) -> pa.Array:
    """Spell numbers with at least `width` digits. `cut`, if not 0, is the length to which a fraction is cut, or
    padded with zeros after it."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if high - low < _DENSE:
        distinct, places = range(low, high + 1), numbers - low
    else:
        unique, places = np.unique(numbers, return_inverse=True)
        distinct = unique.tolist()
    texts = [str(number).zfill(width + (number < 0)) for number in distinct]
    return pa.array([text[:cut].ljust(cut, "0") if cut else text for text in texts]).take(pa.array(places))


def _offsets(millis: Longs, shown: LocalTimes, *, with_colon: bool) -> pa.Array:
    cycles = 0 if shown.cycles is None else shown.cycles * CYCLE_MS
    offsets, places = np.unique(shown.local - millis - cycles, return_inverse=True)
    texts = []
    for offset in offsets.tolist():
        hours, minutes = divmod(abs(offset) // 60_000, 60)
        texts.append(f"{'-' if offset < 0 else '+'}{hours:02}{':' if with_colon else ''}{minutes:02}")
    return pa.array(texts).take(pa.array(places))


def _zone_names(millis: Longs, zone: str) -> pa.Array:
    """Return short names of the time zone, looked up at one instant of each stretch between two changes of its
    clock."""
    clock = zone_clock(zone)
    moved = millis + clock.cycles_off(millis) * CYCLE_MS
    _, firsts, places = np.unique(clock.stretch(moved), return_index=True, return_inverse=True)
    time_zone = zone_of(zone)
    names = [zone_name(datetime_of(instant).astimezone(time_zone)) for instant in moved[firsts].tolist()]
    return pa.array(names, pa.string()).take(pa.array(places))
