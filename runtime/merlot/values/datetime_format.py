"""Date-time formats of columns, as Pinot writes them, both ways between a stored value and epoch milliseconds.

Accepted: `TIMESTAMP`; `EPOCH|DAYS`, `EPOCH|SECONDS|5`; `SIMPLE_DATE_FORMAT|yyyyMMdd|UTC`; and the older colon form
`1:MILLISECONDS:EPOCH`, `1:DAYS:SIMPLE_DATE_FORMAT:yyyyMMdd tz(Europe/Paris)` (Pinot class DateTimeFormatSpec).
Units are those of Java's TimeUnit. DATETIMECONVERT also writes counts of WEEKS, MONTHS and YEARS, which nothing reads.
Instants before 1970 round down, not towards zero. Patterns are in `datetime_pattern`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from merlot.errors import InvalidInputError
from merlot.values.datetime_pattern import DateTimePattern
from merlot.values.number_text import BLANKS, decimal_of, is_integer
from merlot.values.periods import DAY_MS
from merlot.values.time_units import NANOS_OF_MILLI, UNIT_NANOS
from merlot.values.time_zones import zone_of

WRITTEN_UNITS: Final = {
    "WEEKS": "EPOCH|DAYS|7",
    "MONTHS": "SIMPLE_DATE_FORMAT|yyyyMM",
    "YEARS": "SIMPLE_DATE_FORMAT|yyyy",
}
"""Units that can be written but not read, and a format that can be read instead."""
MAX_DIGITS = 30
"""Most digits of a count of units; a larger count is no instant of any calendar."""
FORMS = "TIMESTAMP, EPOCH|DAYS or SIMPLE_DATE_FORMAT|yyyyMMdd"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CALENDAR_COUNT = re.compile(
    r"(?P<size>[1-9][0-9]{0,8}):(?P<unit>UNITS):EPOCH|EPOCH\|(?P<unit2>UNITS)(?:\|(?P<size2>[1-9][0-9]{0,8}))?".replace(
        "UNITS", "|".join(WRITTEN_UNITS)
    )
)
_TZ = re.compile(r"^(?P<pattern>.*?)\s*tz\((?P<zone>[^)]+)\)$")


class DateTimeFormat(Protocol):
    """The way in which a column writes an instant."""

    def to_millis(self, value: int | str) -> int:
        """Return the epoch milliseconds of a stored value. Raise InvalidInputError."""
        ...

    def from_millis(self, millis: int) -> int | str:
        """Return the stored value of an instant, rounded down to what the format can hold."""
        ...


@dataclass(frozen=True, slots=True)
class EpochFormat:
    """A count of `size` units since 1970."""

    unit: str
    size: int = 1

    @property
    def step_ns(self) -> int:
        """Nanoseconds between two neighbouring values."""
        return UNIT_NANOS[self.unit] * self.size

    @property
    def step_ms(self) -> Fraction:
        """Milliseconds between two neighbouring values; below 1 for MICROSECONDS and NANOSECONDS."""
        return Fraction(self.step_ns, NANOS_OF_MILLI)

    def to_millis(self, value: int | str) -> int:
        number = value if isinstance(value, int) else _whole(value, self.unit)
        return number * self.step_ns // NANOS_OF_MILLI

    def from_millis(self, millis: int) -> int:
        return millis * NANOS_OF_MILLI // self.step_ns


@dataclass(frozen=True, slots=True)
class CalendarCount:
    """A count of `size` WEEKS, MONTHS or YEARS since 1970, which DATETIMECONVERT writes."""

    unit: str
    size: int


@dataclass(frozen=True, slots=True)
class TimestampFormat:
    """Milliseconds since 1970; reads text too: `yyyy-MM-dd HH:mm:ss[.SSS]` or ISO 8601, UTC by default."""

    def to_millis(self, value: int | str) -> int:
        return value if isinstance(value, int) else parse_timestamp(value)

    def from_millis(self, millis: int) -> int:
        return millis


@dataclass(frozen=True, slots=True)
class PatternFormat:
    """A Java date pattern in a time zone."""

    pattern: DateTimePattern
    zone: ZoneInfo

    def to_millis(self, value: int | str) -> int:
        return millis_of(self.pattern.parse(str(value), self.zone))

    def from_millis(self, millis: int) -> str:
        return self.pattern.format(datetime_of(millis).astimezone(self.zone))

    def from_day(self, day: int) -> str:
        """Return the stored value of a day since 1970: the day of that name, at midnight in the zone."""
        return self.pattern.format(datetime_of(day * DAY_MS).replace(tzinfo=self.zone))


def parse(text: str) -> DateTimeFormat:
    """Read a format. Raise InvalidInputError, which says what would be right."""
    if "|" in text or text in ("TIMESTAMP", "EPOCH", "SIMPLE_DATE_FORMAT"):
        return _parse_pipes(text)
    if ":" in text:
        return _parse_colons(text)
    raise InvalidInputError(f"unknown date-time format {text!r}; write {FORMS}")


def parse_target(text: str) -> DateTimeFormat | CalendarCount:
    """Read a format that values are written in. Raise InvalidInputError."""
    match = _CALENDAR_COUNT.fullmatch(text)
    if match is None:
        return parse(text)
    return CalendarCount(match["unit"] or match["unit2"], int(match["size"] or match["size2"] or 1))


def parse_timestamp(text: str) -> int:
    """Return the epoch milliseconds of timestamp text. Raise InvalidInputError."""
    stripped = text.strip(BLANKS)
    if is_integer(stripped) and len(stripped) <= MAX_DIGITS:
        return int(stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise InvalidInputError(
            f"not a timestamp: {text!r}; write milliseconds or '2013-01-31 23:59:59', UTC"
        ) from None
    return millis_of(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def millis_of(moment: datetime) -> int:
    """Return the epoch milliseconds of an aware datetime, rounded down, without the error of a float."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def datetime_of(millis: int) -> datetime:
    """Return the UTC datetime of an instant. Raise InvalidInputError outside of years 1 to 9999."""
    try:
        return _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        raise InvalidInputError(f"instant outside years 1 to 9999 millis={millis}") from None


def _whole(text: str, unit: str) -> int:
    """Read `12`, `12.0` or `1.2e1`; refuse a fraction of a unit, which would be lost."""
    try:
        number = decimal_of(text)
        if abs(number.adjusted()) > MAX_DIGITS or number != number.to_integral_value():
            raise ValueError(text)
    except ValueError:
        raise InvalidInputError(f"not a whole number of {unit.lower()} value={text!r}") from None
    return int(number)


def _parse_pipes(text: str) -> DateTimeFormat:
    kind, *arguments = (part.strip() for part in text.split("|"))
    match kind, arguments:
        case "TIMESTAMP", []:
            return TimestampFormat()
        case "EPOCH", []:
            return EpochFormat("MILLISECONDS")
        case "EPOCH", [unit]:
            return _epoch(text, unit, "1")
        case "EPOCH", [unit, size]:
            return _epoch(text, unit, size)
        case "SIMPLE_DATE_FORMAT", []:
            return _pattern("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "UTC")
        case "SIMPLE_DATE_FORMAT", [pattern]:
            return _pattern(pattern, "UTC")
        case "SIMPLE_DATE_FORMAT", [pattern, zone]:
            return _pattern(pattern, zone)
        case _:
            raise InvalidInputError(f"unknown date-time format {text!r}; write {FORMS}")


def _parse_colons(text: str) -> DateTimeFormat:
    match text.split(":", 3):
        case [size, unit, "EPOCH"]:
            return _epoch(text, unit, size)
        case [_, "MILLISECONDS", "TIMESTAMP"]:
            return TimestampFormat()
        case [_, _, "SIMPLE_DATE_FORMAT", pattern]:
            zoned = _TZ.match(pattern)
            return _pattern(zoned["pattern"], zoned["zone"]) if zoned else _pattern(pattern, "UTC")
        case _:
            raise InvalidInputError(f"unknown date-time format {text!r}; write {FORMS}")


def _epoch(text: str, unit: str, size: str) -> EpochFormat:
    if unit in WRITTEN_UNITS:
        raise InvalidInputError(
            f"{unit} in {text!r} can only be the new format of DATETIMECONVERT, as nothing reads them; "
            f"write {WRITTEN_UNITS[unit]}"
        )
    if unit not in UNIT_NANOS:
        raise InvalidInputError(f"unknown unit {unit!r} in {text!r}; one of {', '.join(UNIT_NANOS)}")
    if not size.isdecimal() or len(size) > 9 or int(size) < 1:
        raise InvalidInputError(f"size must be a whole number above 0, of 9 digits at most, in {text!r:.100}")
    return EpochFormat(unit, int(size))


def _pattern(pattern: str, zone: str) -> PatternFormat:
    try:
        date_format = PatternFormat(DateTimePattern.compile(pattern), zone_of(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInputError(f"unknown time zone {zone!r:.100}; write one like UTC or America/New_York") from None
    date_format.pattern.check_zone(date_format.zone)
    return date_format
