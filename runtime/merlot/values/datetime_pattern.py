"""Java date patterns (`yyyyMMdd HH:mm:ss.SSS`), compiled once to a regular expression and a formatter.

Letters: y M d D H h m s S a E Z, quoted text as in Java. Z is an offset, ZZ one with a colon, ZZZ the name of a zone.
Weeks and eras are refused: a wrong date would be worse.
Month and day names are English. Fields that a pattern lacks are the first of their range (`yyyyMM` is the 1st, 00:00).
`yy` is a year of 1946 to 2045: Java takes 80 years back and 20 ahead of the day it runs on; of 2026, since a text must
not become another instant as years go by.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Self
from zoneinfo import ZoneInfoNotFoundError

from merlot.errors import InvalidInputError
from merlot.values.time_zones import zone_of

FIRST_SHORT_YEAR = 1946
"""First of the hundred years that `yy` stands for."""
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_NUMERIC = frozenset("yMdDHhmsS")
_TEXT_EXPRESSION = {
    "a": "(?P<a>[AaPp][Mm])",
    "E": r"[A-Za-z]+",
    "Z": r"(?P<Z>Z|[+-]\d{2}:?\d{2})",
    "M": "(?P<Mname>[A-Za-z]+)",
}


@dataclass(frozen=True, slots=True)
class _Token:
    """A run of one letter, or literal text (letter is empty)."""

    letter: str
    width: int
    literal: str

    @property
    def is_number(self) -> bool:
        return self.letter in _NUMERIC and not (self.letter == "M" and self.width > 2)


@dataclass(frozen=True, slots=True)
class DateTimePattern:
    """A compiled pattern."""

    text: str
    tokens: tuple[_Token, ...]
    expression: re.Pattern[str]

    @classmethod
    def compile(cls, text: str) -> Self:
        """Compile a pattern; raises InvalidInputError for letters that are not supported."""
        tokens = _tokenize(text)
        parts = []
        for position, token in enumerate(tokens):
            following = tokens[position + 1] if position + 1 < len(tokens) else None
            parts.append(_expression(token, is_fixed=following is not None and following.is_number))
        try:
            return cls(text, tokens, re.compile("".join(parts), re.ASCII))
        except re.error:
            raise InvalidInputError(f"a letter occurs twice in date pattern {text!r}") from None

    def parse(self, text: str, zone: tzinfo) -> datetime:
        """Read text as an aware datetime; raises InvalidInputError."""
        match = self.expression.fullmatch(text)
        if match is None:
            raise InvalidInputError(f"{text!r} does not follow the date pattern {self.text!r}")
        try:
            return _assemble({key: value for key, value in match.groupdict().items() if value is not None}, zone)
        except (ValueError, OverflowError) as error:
            raise InvalidInputError(f"{text!r} is no date of pattern {self.text!r}: {error}") from None

    def format(self, moment: datetime) -> str:
        """Write a datetime, in its own time zone."""
        return "".join(_format(token, moment) for token in self.tokens)


def _tokenize(text: str) -> tuple[_Token, ...]:
    tokens = []
    end = 0
    for match in _TOKEN.finditer(text):
        if match.start() != end:
            break
        end = match.end()
        letter = match[2] or ""
        if letter and letter not in _NUMERIC | _TEXT_EXPRESSION.keys():
            raise InvalidInputError(f"letter {letter!r} is not supported in date pattern {text!r}; use yMdDHhmsSaEZ")
        literal = (match[1].replace("''", "'") or "'") if match[1] is not None else match[0]
        tokens.append(_Token(letter, len(match[0]) if letter else 0, "" if letter else literal))
    if end != len(text) or not any(token.letter for token in tokens):
        raise InvalidInputError(f"not a date pattern: {text!r}; write one like yyyyMMdd or yyyy-MM-dd HH:mm:ss")
    return tuple(tokens)


def _expression(token: _Token, *, is_fixed: bool) -> str:
    """A number directly before another number has exactly its width; else it may be longer, as in Java."""
    if not token.letter:
        return re.escape(token.literal)
    if token.letter == "Z" and token.width > 2:
        return r"(?P<zone>[A-Za-z][\w/+:-]*|[+-]\d{2}:?\d{2})"
    if not token.is_number:
        return _TEXT_EXPRESSION[token.letter]
    if is_fixed or (token.letter == "y" and token.width == 2):
        return rf"(?P<{token.letter}{'y' if token.letter == 'y' and token.width == 2 else ''}>\d{{{token.width}}})"
    return rf"(?P<{token.letter}>\d{{1,9}})"


def _assemble(fields: Mapping[str, str], zone: tzinfo) -> datetime:
    year = int(fields["y"]) if "y" in fields else _year_of(int(fields["yy"])) if "yy" in fields else 1970
    month = int(fields.get("M", "1"))
    if "Mname" in fields:
        month = next(
            (n for n, name in enumerate(MONTHS, 1) if fields["Mname"].lower() in (name.lower(), name[:3].lower())), 0
        )
    hour = int(fields.get("H", "0"))
    if "h" in fields:
        hour = int(fields["h"]) % 12 + (12 if fields.get("a", "am").lower() == "pm" else 0)
    micros = int(fields.get("S", "0")[:6].ljust(6, "0"))
    moment = datetime(  # noqa: DTZ001 the zone is set below
        year, month, int(fields.get("d", "1")), hour, int(fields.get("m", "0")), int(fields.get("s", "0")), micros
    )
    if "D" in fields:
        moment = moment.replace(month=1, day=1) + timedelta(days=int(fields["D"]) - 1)
    if "zone" in fields:
        return moment.replace(tzinfo=_named_zone(fields["zone"]))
    return moment.replace(tzinfo=_offset(fields["Z"]) if "Z" in fields else zone)


def _year_of(two_digits: int) -> int:
    return FIRST_SHORT_YEAR + (two_digits - FIRST_SHORT_YEAR) % 100


def _offset(text: str) -> tzinfo:
    zone = datetime.strptime(text, "%z").tzinfo
    assert zone is not None
    return zone


def _named_zone(name: str) -> tzinfo:
    try:
        return zone_of(name)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(f"unknown time zone {name!r}") from None


def _format(token: _Token, moment: datetime) -> str:
    match token.letter:
        case "":
            return token.literal
        case "y" if token.width == 2:
            return f"{moment.year % 100:02}"
        case "M" if token.width > 2:
            name = MONTHS[moment.month - 1]
            return name if token.width > 3 else name[:3]
        case "E":
            name = WEEKDAYS[moment.weekday()]
            return name if token.width > 3 else name[:3]
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "Z" if token.width > 2:
            return str(moment.tzinfo)
        case "Z":
            offset = moment.strftime("%z")
            return f"{offset[:3]}:{offset[3:5]}" if token.width > 1 else offset[:5]
        case "S":
            return f"{moment.microsecond:06}"[: token.width].ljust(token.width, "0")
        case letter:
            return str(_number(letter, moment)).zfill(token.width)


def _number(letter: str, moment: datetime) -> int:
    match letter:
        case "y":
            return moment.year
        case "M":
            return moment.month
        case "d":
            return moment.day
        case "D":
            return moment.timetuple().tm_yday
        case "H":
            return moment.hour
        case "h":
            return (moment.hour + 11) % 12 + 1
        case "m":
            return moment.minute
        case _:
            return moment.second
