"""Date patterns of Joda-Time (`yyyyMMdd HH:mm:ss.SSS`), compiled once to a regular expression and a formatter.

Letters: G C Y x w e E y D M d a K h H k m s S z Z; others are refused, and so is `zzzz`, the long name of a zone. Text
in quotes is literal. Z is an offset, ZZ an offset with a colon, ZZZ the id of a zone. Texts are English.

A number takes as many digits as there are, up to the digits of its greatest value, or the number of its letters if that
is more. A century and a fraction of a second take at most as many digits as they have letters. A year takes up to 9
digits; directly before another number, it takes as many as it has letters. Two letters read two digits as a year of
1946 to 2045. Joda takes the year it runs in, the 80 years before it and the 19 after it; here that year is 2026, since
a text must not become another instant as years go by. `datetime_fields` gives missing fields their values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from merlot.errors import InvalidInputError
from merlot.values.datetime_fields import assemble
from merlot.values.time_zones import short_names, zone_id, zone_of

MAX_LETTERS: Final = 1_000
"""Longest pattern: queries name patterns, and compiling 10,000 letters takes half a second."""
FIRST_SHORT_YEAR: Final = 1946
"""First of the hundred years that `yy` stands for."""
MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ERAS: Final = ("BC", "AD")
HALVES: Final = ("AM", "PM")
LETTERS: Final = "GCYxweEyDMdaKhHkmsSzZ"
_YEARS: Final = "yYx"
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_MOST_DIGITS: Final = {"e": 1, "D": 3}
"""Most digits of numbers that are neither years, centuries nor fractions; 2 if the letter is not listed."""
_SIGNED: Final = frozenset("yxC")
_OFFSET: Final = (
    r"(?>[Zz]|[+-](?:[01]\d|2[0-3])"
    r"(?::[0-5]\d(?::[0-5]\d(?:[.,]\d{1,3})?)?|[0-5]\d(?:[0-5]\d(?:\d{1,3})?)?|(?![:\d])))"
)
_ZONE_ID: Final = r"[A-Za-z][\w/+:-]*|[+-]\d{2}:?\d{2}"
_SHORT_ZONES: Final = {
    **dict.fromkeys(("UTC", "UT", "GMT"), "UTC"),
    **dict.fromkeys(("EST", "EDT"), "America/New_York"),
    **dict.fromkeys(("CST", "CDT"), "America/Chicago"),
    **dict.fromkeys(("MST", "MDT"), "America/Denver"),
    **dict.fromkeys(("PST", "PDT"), "America/Los_Angeles"),
}
"""All names that Joda reads for the letter z."""

_NUMBERS: Final[dict[str, Callable[[datetime], int]]] = {
    "C": lambda moment: moment.year // 100,
    "y": lambda moment: moment.year,
    "Y": lambda moment: moment.year,
    "x": lambda moment: moment.isocalendar().year,
    "w": lambda moment: moment.isocalendar().week,
    "e": datetime.isoweekday,
    "M": lambda moment: moment.month,
    "d": lambda moment: moment.day,
    "D": lambda moment: moment.timetuple().tm_yday,
    "H": lambda moment: moment.hour,
    "k": lambda moment: moment.hour or 24,
    "K": lambda moment: moment.hour % 12,
    "h": lambda moment: moment.hour % 12 or 12,
    "m": lambda moment: moment.minute,
    "s": lambda moment: moment.second,
}


@dataclass(frozen=True, slots=True)
class Token:
    """A run of one letter, or literal text (letter is empty)."""

    letter: str
    width: int
    literal: str

    @property
    def is_number(self) -> bool:
        return self.letter not in ("", *"GaEzZ") and not (self.letter == "M" and self.width > 2)

    @property
    def is_short_year(self) -> bool:
        return self.letter in tuple(_YEARS) and self.width == 2


@dataclass(frozen=True, slots=True)
class DateTimePattern:
    """A compiled pattern."""

    text: str
    tokens: tuple[Token, ...]
    expression: re.Pattern[str]

    @classmethod
    def compile(cls, text: str) -> Self:
        """Compile a pattern. Raise InvalidInputError for letters that are not supported, and for too many letters."""
        if len(text) > MAX_LETTERS:
            raise InvalidInputError(f"date pattern of more than {MAX_LETTERS} letters: {text[:40]!r}…")
        tokens = _tokenize(text)
        followers = (*tokens[1:], Token("", 0, ""))
        parts = [
            _expression(token, is_before_number=next_.is_number) for token, next_ in zip(tokens, followers, strict=True)
        ]
        return cls(text, tokens, re.compile("".join(parts), re.ASCII))

    def check_zone(self, zone: tzinfo) -> None:
        """Raise InvalidInputError if the pattern cannot be written in a time zone."""
        if any(token.letter == "z" for token in self.tokens) and isinstance(zone, ZoneInfo) and not short_names(zone):
            raise InvalidInputError(
                f"time zone {zone_id(zone)!r} has no short name, letter 'z' of date pattern {self.text!r}; "
                "write Z for its offset or ZZZ for its id"
            )

    def parse(self, text: str, zone: tzinfo) -> datetime:
        """Read text as an aware datetime. Raise InvalidInputError."""
        match = self.expression.fullmatch(text)
        if match is None:
            raise InvalidInputError(f"{text!r} does not follow the date pattern {self.text!r}")
        try:
            return self._instant(match.groups(), zone)
        except (ValueError, OverflowError) as error:
            raise InvalidInputError(f"{text!r} is no date of pattern {self.text!r}: {error}") from None

    def format(self, moment: datetime) -> str:
        """Write a datetime in its own time zone."""
        return "".join(_format(token, moment) for token in self.tokens)

    def _instant(self, texts: Iterable[str], zone: tzinfo) -> datetime:
        values = []
        offset = None
        for token, text in zip((token for token in self.tokens if token.letter), texts, strict=True):
            if token.letter == "z" or (token.letter == "Z" and token.width > 2):
                zone = _named_zone(_SHORT_ZONES.get(text, text) if token.letter == "z" else text)
            elif token.letter == "Z":
                offset = _offset(text)
            else:
                values.append((token.letter, _value(token, text)))
        return assemble(values).replace(tzinfo=offset or zone)


def _tokenize(text: str) -> tuple[Token, ...]:
    tokens = []
    end = 0
    for match in _TOKEN.finditer(text):
        if match.start() != end:
            break
        end = match.end()
        letter = match[2] or ""
        if letter and letter not in LETTERS:
            raise InvalidInputError(f"letter {letter!r} is not supported in date pattern {text!r}; use {LETTERS}")
        if letter == "z" and len(match[0]) > 3:
            raise InvalidInputError(
                f"{match[0]!r}, the long name of a time zone, is not supported in date pattern {text!r}; "
                "write z for its short name or ZZZ for its id"
            )
        literal = (match[1].replace("''", "'") or "'") if match[1] is not None else match[0]
        tokens.append(Token(letter, len(match[0]) if letter else 0, "" if letter else literal))
    if end != len(text) or not any(token.letter for token in tokens):
        raise InvalidInputError(f"not a date pattern: {text!r}; write one like yyyyMMdd or yyyy-MM-dd HH:mm:ss")
    return tuple(tokens)


def _expression(token: Token, *, is_before_number: bool) -> str:
    """Return the regular expression of a token, with a group for a letter. Quantifiers are possessive, as Joda never
    backtracks."""
    names = _names(token)
    if not token.letter:
        return re.escape(token.literal)
    if token.letter == "z":
        return f"({_any_of(_SHORT_ZONES)})"
    if token.letter == "Z":
        return f"({_ZONE_ID})" if token.width > 2 else f"({_OFFSET})"
    if names:
        return f"({_any_of(form(name) for name in names for form in (str, str.lower, str.upper))})"
    if token.is_short_year:
        return r"(\d{2})" if is_before_number else r"([+-]?\d++)"
    if token.letter in _YEARS:
        most = token.width if is_before_number else max(9, token.width)
    elif token.letter in "CS":
        most = token.width
    else:
        most = max(token.width, _MOST_DIGITS.get(token.letter, 2))
    return rf"({'[+-]?' if token.letter in _SIGNED else ''}\d{{1,{most}}}+)"


def _any_of(texts: Iterable[str]) -> str:
    return f"(?>{'|'.join(sorted(set(texts), key=lambda text: (-len(text), text)))})"


def _names(token: Token) -> tuple[str, ...]:
    """Return the texts that a field of names is read from, long and short."""
    match token.letter:
        case "G":
            return (*ERAS, "BCE", "CE")
        case "a":
            return HALVES
        case "E":
            return (*WEEKDAYS, *(name[:3] for name in WEEKDAYS))
        case "M" if token.width > 2:
            return (*MONTHS, *(name[:3] for name in MONTHS))
    return ()


def _value(token: Token, text: str) -> int:
    match token.letter:
        case "G":
            return int(text.upper() in ("AD", "CE"))
        case "a":
            return HALVES.index(text.upper())
        case "E":
            return 1 + next(place for place, name in enumerate(WEEKDAYS) if name[:3] == text[:3].capitalize())
        case "M" if token.width > 2:
            return 1 + next(place for place, name in enumerate(MONTHS) if name[:3] == text[:3].capitalize())
        case "S":
            return int(text[:3].ljust(3, "0"))
        case _ if token.is_short_year and len(text) == 2 and text.isdigit():
            return FIRST_SHORT_YEAR + (int(text) - FIRST_SHORT_YEAR) % 100
    return int(text)


def _offset(text: str) -> tzinfo:
    digits = re.sub(r"[+:.,-]", "", text)
    if digits in "Zz":
        return timezone(timedelta(0))
    hours, minutes, seconds = (int(digits[place : place + 2] or 0) for place in (0, 2, 4))
    millis = int(digits[6:].ljust(3, "0"))
    size = timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=millis)
    return timezone(-size if text[0] == "-" else size)


def _named_zone(name: str) -> tzinfo:
    try:
        return zone_of(name)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(f"unknown time zone {name!r}") from None


def _format(token: Token, moment: datetime) -> str:
    match token.letter:
        case "":
            return token.literal
        case "G":
            return ERAS[1]
        case "M" if token.width > 2:
            return named(token, MONTHS)[moment.month - 1]
        case "E":
            return named(token, WEEKDAYS)[moment.weekday()]
        case "a":
            return HALVES[moment.hour // 12]
        case "z":
            return zone_name(moment)
        case "Z" if token.width > 2:
            return zone_id(moment.tzinfo)
        case "Z":
            offset = moment.strftime("%z")
            return f"{offset[:3]}:{offset[3:5]}" if token.width > 1 else offset[:5]
        case "S":
            return f"{moment.microsecond:06}"[: token.width].ljust(token.width, "0")
    number = _NUMBERS[token.letter](moment)
    return str(number % 100 if token.is_short_year else number).zfill(token.width)


def named(token: Token, names: tuple[str, ...]) -> list[str]:
    """Return the names in the length that the letters ask for."""
    return [name if token.width > 3 else name[:3] for name in names]


def zone_name(moment: datetime) -> str:
    """Return the short name of a datetime's zone; `check_zone` made sure that it has one."""
    if not isinstance(moment.tzinfo, ZoneInfo):
        return "UTC"
    standard, summer = short_names(moment.tzinfo) or ("", "")
    return summer if moment.dst() else standard
