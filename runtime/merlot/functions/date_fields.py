"""Fields of instants: YEAR, MONTH, …, MILLISECOND, in UTC or by a zone's clocks; also EXTRACT(YEAR FROM at).

TIMEZONEHOUR and TIMEZONEMINUTE are the hours and minutes of a zone's offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from merlot.functions import calendar
from merlot.functions.calendar import LocalTimes, Longs
from merlot.functions.function import Family, VectorFunction, instant, word
from merlot.functions.time_words import zone_name
from merlot.functions.zones import CYCLE_MS, zone_clock
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import INT, STRING, SqlType
from merlot.vectors.vector import Vector

DATE_FIELDS: Final = Family("Fields of instants")


def _of_days(field: Callable[[Longs], Longs]) -> Callable[[LocalTimes], Longs]:
    return lambda shown: field(shown.days)


def _of_time(size: int, count: int) -> Callable[[LocalTimes], Longs]:
    return lambda shown: shown.of_day // size % count


_FIELDS: Final[tuple[tuple[str, tuple[str, ...], Callable[[LocalTimes], Longs], int], ...]] = (
    ("year", (), LocalTimes.year, 2023),
    ("yearofweek", ("yow",), LocalTimes.week_year, 2023),
    ("quarter", (), _of_days(calendar.quarter), 4),
    ("monthofyear", ("month",), _of_days(calendar.month), 11),
    ("weekofyear", ("week",), _of_days(calendar.week), 46),
    ("dayofyear", ("doy",), _of_days(calendar.day_of_year), 318),
    ("dayofmonth", ("day",), _of_days(calendar.day_of_month), 14),
    ("dayofweek", ("dow",), _of_days(calendar.day_of_week), 2),
    ("hour", (), _of_time(3_600_000, 24), 22),
    ("minute", (), _of_time(60_000, 60), 13),
    ("second", (), _of_time(1_000, 60), 20),
    ("millisecond", (), _of_time(1, 1_000), 123),
)


FIELD_NAMES: Final = frozenset(key for name, aliases, _, _ in _FIELDS for key in (name, *aliases))
"""Names of fields that EXTRACT takes."""


def _applied(field: Callable[[LocalTimes], Longs]) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        millis = np.asarray(args[0].data, np.int64)
        shown = calendar.local_times(np.atleast_1d(millis), args[1].data.as_py())
        return field(shown).astype(np.int32).reshape(millis.shape)

    return apply


def _completed(function: str) -> Callable[[tuple[Expr, ...]], tuple[Expr, ...]]:
    """Return a function that completes the arguments to an instant and a time zone."""
    return lambda args: (args[0], Literal(zone_name(function, args[1]) if len(args) > 1 else "UTC", STRING))


for _name, _aliases, _field, _example in _FIELDS:
    DATE_FIELDS.strict(
        _name,
        aliases=_aliases,
        parameters=(instant(), word("time zone", is_optional=True)),
        result=INT,
        complete=_completed(_name),
        examples={f"{(*_aliases, _name)[0].upper()}(1700000000123)": _example},
    )(_applied(_field))


def _offset_completed(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Complete the arguments to a time zone and an instant, by default 1970-01-01T00:00Z."""
    zone = Literal(zone_name("timezone", args[0]), STRING)
    return zone, args[1] if len(args) > 1 else Literal(0, INT)


def _offsets(args: Sequence[Vector]) -> tuple[Longs, tuple[int, ...]]:
    millis = np.asarray(args[1].data, np.int64)
    flat = np.atleast_1d(millis)
    clock = zone_clock(args[0].data.as_py())
    near = flat + clock.cycles_off(flat) * CYCLE_MS
    return clock.local(near) - near, millis.shape


_ZONE: Final = (word("time zone"), replace(instant(), is_optional=True))


@DATE_FIELDS.strict(
    "timezonehour",
    parameters=_ZONE,
    result=INT,
    complete=_offset_completed,
    examples={"TIMEZONE_HOUR('Asia/Kolkata', 0)": 5},
)
def _timezone_hour(_type: SqlType, args: Sequence[Vector]) -> Any:
    offsets, shape = _offsets(args)
    return np.fix(offsets / 3_600_000).astype(np.int32).reshape(shape)


@DATE_FIELDS.strict(
    "timezoneminute",
    parameters=_ZONE,
    result=INT,
    complete=_offset_completed,
    examples={"TIMEZONEMINUTE('Asia/Kolkata', 0)": 30},
)
def _timezone_minute(_type: SqlType, args: Sequence[Vector]) -> Any:
    offsets, shape = _offsets(args)
    return np.fmod(np.fix(offsets / 60_000), 60).astype(np.int32).reshape(shape)
