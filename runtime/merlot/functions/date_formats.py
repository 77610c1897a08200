"""Instants as texts of a pattern, texts as instants, and conversion between the formats of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np

from merlot.errors import InvalidInputError
from merlot.functions import calendar
from merlot.functions.arguments import as_whole
from merlot.functions.by_value import by_value
from merlot.functions.calendar import LocalTimes, Longs, first_day, months_of
from merlot.functions.date_texts import pattern_of, written
from merlot.functions.epochs import epoch_count, epoch_millis, towards_zero
from merlot.functions.function import Family, anything, instant, text, whole, word
from merlot.functions.time_words import constant_text, zone_name
from merlot.functions.truncation import at_local
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import LONG, STRING, TIMESTAMP, SqlType
from merlot.values.datetime_format import (
    CalendarCount,
    DateTimeFormat,
    EpochFormat,
    PatternFormat,
    TimestampFormat,
    parse,
    parse_target,
)
from merlot.values.datetime_pattern import DateTimePattern
from merlot.values.periods import DAY_MS
from merlot.values.time_units import NANOS_OF_MILLI, UNIT_NANOS
from merlot.values.time_zones import zone_of
from merlot.vectors.vector import Attempt, Vector

_Format = TypeVar("_Format")
DATE_FORMATS: Final = Family("Instants as texts")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_GRANULARITY: Final = re.compile(
    r"(?P<size>[1-9][0-9]{0,8}):(?P<unit>[A-Z]+)|(?P<unit2>[A-Z]+)(?:\|(?P<size2>[1-9][0-9]{0,8}))?"
)


def _checked_pattern(function: str, arg: Expr) -> DateTimePattern:
    try:
        return pattern_of(constant_text(arg))
    except InvalidInputError as error:
        raise SqlValidationError(f"{function}: {error}") from error


def _from_checked(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Raise SqlValidationError for a pattern or a zone that does not exist, and, if there is no default, for a constant
    that does not follow its pattern."""
    zone = zone_of(zone_name("fromdatetime", args[2])) if len(args) > 2 else UTC
    pattern = _checked_pattern("fromdatetime", args[1])
    try:
        if isinstance(args[0], Literal) and args[0].value is not None and len(args) < 4:
            pattern.parse(constant_text(args[0]), zone)
    except InvalidInputError as error:
        raise SqlValidationError(f"fromdatetime: {error}") from error
    return args


@DATE_FORMATS.strict(
    "fromdatetime",
    parameters=(text(), word("pattern"), word("time zone", is_optional=True), whole("default", is_optional=True)),
    result=LONG,
    complete=_from_checked,
    examples={
        "FROMDATETIME('2024-02-29', 'yyyy-MM-dd')": 1709164800000,
        "FROMDATETIME('29/02/2024 12', 'dd/MM/yyyy HH', 'Asia/Kolkata')": 1709188200000,
        "FROMDATETIME('soon', 'yyyy-MM-dd', 'UTC', 0)": 0,
    },
)
def _from_date_time(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return milliseconds; a text that does not follow the pattern fails, unless there is a default."""
    zone = zone_of(args[2].data.as_py()) if len(args) > 2 else UTC
    read = _read(args[0], pattern_of(args[1].data.as_py()), zone)
    if len(args) < 4 or read.failure is None:
        return read
    return np.where(read.failure.rows, np.asarray(args[3].data, np.int64), read.data)


def _read(texts: Vector, pattern: DateTimePattern, zone: tzinfo) -> Attempt:
    """Read each distinct text once."""

    def millis(value: str) -> int | None:
        try:
            return (pattern.parse(value, zone) - _EPOCH) // _MILLISECOND
        except InvalidInputError:
            return None

    return by_value(
        LONG, [texts], millis, f"text does not follow its pattern function=fromdatetime pattern={pattern.text}"
    )


def _to_checked(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Complete the arguments to an instant, a pattern and a time zone; raise SqlValidationError."""
    zone = zone_name("todatetime", args[2]) if len(args) > 2 else "UTC"
    try:
        _checked_pattern("todatetime", args[1]).check_zone(zone_of(zone))
    except InvalidInputError as error:
        raise SqlValidationError(f"todatetime: {error}") from error
    return *args[:2], Literal(zone, STRING)


@DATE_FORMATS.strict(
    "todatetime",
    parameters=(instant("millis"), word("pattern"), word("time zone", is_optional=True)),
    result=STRING,
    complete=_to_checked,
    examples={
        "TODATETIME(1700000000123, 'yyyy-MM-dd HH:mm:ss.SSS')": "2023-11-14 22:13:20.123",
        "TO_DATE_TIME(1700000000123, 'EEE d MMM yy, h:mm a Z', 'Asia/Kolkata')": "Wed 15 Nov 23, 3:43 AM +0530",
        "TODATETIME(1700000000123, 'HH:mm ZZZ', 'GMT+8')": "06:13 +08:00",
        "TODATETIME(1700000000123, 'xxxx-''W''ww-e z', 'America/New_York')": "2023-W46-2 EST",
    },
)
def _to_date_time(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Write instants as the clocks of the time zone show them."""
    millis = np.asarray(args[0].data, np.int64)
    flat = np.atleast_1d(millis)
    zone = args[2].data.as_py()
    texts = written(pattern_of(args[1].data.as_py()), flat, calendar.local_times(flat, zone), zone)
    return texts if millis.ndim else texts[0]


@lru_cache(maxsize=256)
def format_of(text: str) -> DateTimeFormat:
    return parse(text)


@lru_cache(maxsize=256)
def target_of(text: str) -> DateTimeFormat | CalendarCount:
    return parse_target(text)


def _checked(read: Callable[[str], _Format], arg: Expr) -> _Format:
    try:
        return read(constant_text(arg))
    except InvalidInputError as error:
        raise SqlValidationError(f"datetimeconvert: {error}") from error


def granularity_of(text: str) -> int:
    """Return the milliseconds of a granularity, at least 1; raise SqlValidationError."""
    size, unit = _granularity(text)
    if size * UNIT_NANOS[unit] < NANOS_OF_MILLI:
        raise SqlValidationError(f"datetimeconvert: granularity '{text}' is below a millisecond; write 1:MILLISECONDS")
    return size * UNIT_NANOS[unit] // NANOS_OF_MILLI


def _granularity(text: str) -> tuple[int, str]:
    """Return the size and unit of `15:MINUTES`, `MINUTES|15` or `MINUTES`; raise SqlValidationError."""
    match = _GRANULARITY.fullmatch(text)
    unit = (match["unit"] or match["unit2"]) if match else ""
    if match is None or unit not in UNIT_NANOS:
        advice = "7:DAYS, or DATETRUNC" if unit == "WEEKS" else "DATETRUNC" if unit in ("MONTHS", "YEARS") else "1:DAYS"
        raise SqlValidationError(
            f"datetimeconvert: no granularity '{text:.100}' expected={advice}, units {'|'.join(UNIT_NANOS)}"
        )
    return int(match["size"] or match["size2"] or 1), unit


def checked_conversion(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    source, target = _checked(format_of, args[1]), _checked(target_of, args[2])
    granularity = constant_text(args[3])
    _granularity(granularity)
    if len(args) == 4 and not isinstance(target, PatternFormat):
        granularity_of(granularity)
    if len(args) > 4:
        zone_name("datetimeconvert", args[4])
        if isinstance(target, TimestampFormat):
            raise SqlValidationError("datetimeconvert: buckets of a time zone are not of TIMESTAMP")
    kind = text().kind if isinstance(source, PatternFormat) else instant().kind
    time = as_whole(args[0]) if kind is instant().kind else args[0]
    if time.type.base not in kind.types:
        raise SqlValidationError(f"datetimeconvert needs {kind.words}, not {time.type}")
    return (time, *args[1:])


def _convert_type(args: Sequence[Expr]) -> SqlType:
    match target_of(constant_text(args[2])):
        case PatternFormat():
            return STRING
        case TimestampFormat():
            return TIMESTAMP
    return LONG


@DATE_FORMATS.strict(
    "datetimeconvert",
    parameters=(
        anything("time"),
        word("format"),
        word("new format"),
        word("granularity"),
        word("time zone of buckets", is_optional=True),
    ),
    result=_convert_type,
    complete=checked_conversion,
    examples={
        "DATETIMECONVERT(1700000000123, '1:MILLISECONDS:EPOCH', '1:SECONDS:EPOCH', '15:MINUTES')": 1699999200,
        "DATETIMECONVERT(1700000000, 'EPOCH|SECONDS', 'SIMPLE_DATE_FORMAT|yyyyMMdd HH:mm|Asia/Kolkata', '1:HOURS')": (
            "20231115 03:00"
        ),
        "DATE_TIME_CONVERT('20240229', '1:DAYS:SIMPLE_DATE_FORMAT:yyyyMMdd', '1:DAYS:EPOCH', '1:DAYS')": 19782,
        "DATETIMECONVERT(1700000000123456, '1:MICROSECONDS:EPOCH', '1:WEEKS:EPOCH', '7:DAYS')": 2810,
        "DATETIMECONVERT(1700000000123, 'EPOCH', '1:MILLISECONDS:EPOCH', '1:DAYS', 'America/New_York')": 1699938000000,
    },
)
def _date_time_convert(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Read times in a format, round them to a bucket, and write them in another format."""
    source, target = format_of(args[1].data.as_py()), target_of(args[2].data.as_py())
    size, unit = _granularity(args[3].data.as_py())
    read = millis_of(args[0], source)
    flat = np.atleast_1d(read.data)
    if isinstance(target, PatternFormat) or len(args) > 4:
        zone = args[4].data.as_py() if len(args) > 4 else str(getattr(target, "zone", "UTC"))
        shown = calendar.local_times(flat, zone)
        truncated = LocalTimes(_truncated(shown, size, unit), shown.cycles)
        if isinstance(target, PatternFormat):
            if str(target.zone) != zone:
                flat = at_local(truncated.local, flat, zone, is_day=unit == "DAYS")
                truncated = calendar.local_times(flat, str(target.zone))
            texts = written(target.pattern, flat, truncated, str(target.zone))
            return Attempt(texts if read.data.ndim else texts[0], read.failure)
        rounded = at_local(truncated.local, flat, zone, is_day=unit == "DAYS")
    else:
        bucket = granularity_of(args[3].data.as_py())
        rounded = towards_zero(flat, bucket) * bucket
    return Attempt(counted(rounded, target).reshape(read.data.shape), read.failure)


def counted(millis: Longs, target: DateTimeFormat | CalendarCount) -> Longs:
    """Return instants in a format that is no pattern."""
    if isinstance(target, EpochFormat | CalendarCount):
        return epoch_count(millis, target.unit, target.size)
    return millis


def millis_of(times: Vector, source: DateTimeFormat) -> Attempt:
    if isinstance(source, PatternFormat):
        return _read(times, source.pattern, source.zone)
    counts = np.asarray(times.data, np.int64)
    if isinstance(source, EpochFormat):
        counts = epoch_millis(counts, source.unit, source.size)
    return Attempt(counts, None)


def _truncated(shown: LocalTimes, size: int, unit: str) -> Longs:
    """Return the local times at which buckets of `size` units begin, counted from the start of the next longer unit.
    Units shorter than a millisecond change nothing, as in Pinot."""
    if unit == "DAYS":
        days = shown.days
        first = first_day(months_of(days))
        return (first + (days - first) // size * size) * DAY_MS
    if UNIT_NANOS[unit] < NANOS_OF_MILLI:
        return shown.local
    unit_ms = UNIT_NANOS[unit] // NANOS_OF_MILLI
    longer = {"MILLISECONDS": 1_000, "SECONDS": 60_000, "MINUTES": 3_600_000, "HOURS": DAY_MS}[unit]
    since = shown.local % longer
    return shown.local - since + since // (size * unit_ms) * (size * unit_ms)
