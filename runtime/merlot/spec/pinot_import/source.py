"""A JSON document of Pinot's that is taken apart: what nobody took is told at the end."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from merlot.errors import InvalidInputError
from merlot.values.time_units import UNIT_NANOS

Json = dict[str, Any]

OFFLINE: Final = "OFFLINE"
REALTIME: Final = "REALTIME"
_PERIOD: Final = re.compile(r"(?:(\d{1,12})d)?(?:(\d{1,12})h)?(?:(\d{1,12})m)?(?:(\d{1,12})s)?", re.IGNORECASE)
_PART_S: Final = (86_400, 3_600, 60, 1)
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_LONGEST_S: Final = 1e12
_MOST_DIGITS: Final = 18
_NOTHING: Final[tuple[object, ...]] = (None, "", [], {}, False)
"""Values that ask for nothing."""


class ConfigReader:
    """An object of the document, and where it is. `notes` are shared by the whole document."""

    def __init__(self, content: Mapping[str, Any], path: str, notes: list[str]) -> None:
        self._content = dict(content)
        self.path = path
        self.notes = notes
        self._inner: list[ConfigReader] = []

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a member, which counts as read."""
        value = self._content.pop(name, None)
        return default if value is None else value

    def text(self, name: str) -> str:
        """The same as text; "" if there is none."""
        return str(self.take(name, "")).strip()

    def number(self, name: str) -> float | None:
        """The same as a number, which Pinot's configs write as texts too; None if there is none."""
        text = self.text(name)
        try:
            found = float(text) if text else None
        except ValueError:
            found = math.nan
        if found is not None and not math.isfinite(found):
            raise InvalidInputError(f"{self.path}.{name} is no number: {text!r:.40}")
        return found

    def whole(self, name: str) -> int | None:
        """The same as a whole number."""
        found = self.number(name)
        if found is not None and found != int(found):
            raise InvalidInputError(f"{self.path}.{name} is no whole number: {found}")
        return None if found is None else int(found)

    def flag(self, name: str) -> bool:
        """The same as a truth, which Pinot's configs write as texts too."""
        return str(self.take(name, "")).lower() == "true"

    def names(self, name: str) -> list[str]:
        """The same as a list of texts."""
        value = self.take(name, [])
        if not isinstance(value, list):
            raise InvalidInputError(f"{self.path}.{name} is no list")
        return [str(one) for one in value]

    def texts(self, name: str) -> dict[str, str]:
        """The same as an object whose values are texts."""
        value = self.take(name, {})
        if not isinstance(value, dict):
            raise InvalidInputError(f"{self.path}.{name} is no object")
        return {key: str(one) for key, one in value.items()}

    def inner(self, name: str) -> ConfigReader:
        """A member that is an object; empty if it is not there."""
        value = self.take(name, {})
        if not isinstance(value, dict):
            raise InvalidInputError(f"{self.path}.{name} is no object")
        made = ConfigReader(value, f"{self.path}.{name}" if self.path else name, self.notes)
        self._inner.append(made)
        return made

    def each(self, name: str) -> list[ConfigReader]:
        """A member that is a list of objects."""
        value = self.take(name, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise InvalidInputError(f"{self.path}.{name} is no list of objects")
        made = [ConfigReader(one, f"{self.path}.{name}[{place}]", self.notes) for place, one in enumerate(value)]
        self._inner += made
        return made

    def has(self, name: str) -> bool:
        """Say whether a member is there that nobody read yet, and is not null."""
        return self._content.get(name) is not None

    def members(self) -> list[str]:
        """Names of what was not read yet."""
        return list(self._content)

    def note(self, name: str, text: str) -> None:
        """Say of a member what became of it."""
        self.notes.append(f"{self.path}.{name}: {text}" if self.path else f"{name}: {text}")

    def ignore(self, *names: str) -> None:
        """Read what the document says elsewhere: names and kinds."""
        for name in names:
            self.take(name)

    def as_is(self, name: str, reason: str, *values: str) -> None:
        """Read what holds in any case if it has one of the values (in any case of letters); say why it has no effect if
        it has another."""
        value = self.take(name)
        if value not in _NOTHING and str(value).upper() not in values:
            self.note(name, reason)

    def leave(self, reasons: Mapping[str, str]) -> None:
        """Read what has no equivalent, and say why, by name."""
        for name, reason in reasons.items():
            if self.take(name) not in _NOTHING:
                self.note(name, reason)

    def close(self) -> None:
        """Note what nobody read, here and below."""
        for name, value in self._content.items():
            if value not in _NOTHING:
                self.note(name, "has no equivalent, left out")
        for one in self._inner:
            one.close()


def is_count(text: str) -> bool:
    """Whether it is a whole number that a LONG can be."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def duration(seconds: float) -> str:
    """In the largest unit that fits; seconds are rounded up. InvalidInputError for one that nobody lives to see."""
    if not abs(seconds) < _LONGEST_S:
        raise InvalidInputError(f"too long a time seconds={seconds:g}")
    whole = max(1, -int(-seconds // 1))
    return next(f"{whole // size}{letter}" for letter, size in _UNITS if whole % size == 0)


def seconds_of(period: str) -> int:
    """Of a period as Pinot writes it: 1d, 1h30m. Raises InvalidInputError."""
    match = _PERIOD.fullmatch(period.strip())
    if match is None or not any(match.groups()):
        raise InvalidInputError(f"not a period: {period!r:.40}")
    return sum(int(number or 0) * size for number, size in zip(match.groups(), _PART_S, strict=True))


def unit_seconds(unit: str) -> float:
    """Seconds of a unit of time: DAYS. Raises InvalidInputError."""
    nanos = UNIT_NANOS.get(unit.upper())
    if nanos is None:
        raise InvalidInputError(f"not a unit of time: {unit!r:.40}")
    return nanos / UNIT_NANOS["SECONDS"]


def without_empty(content: Mapping[str, Any]) -> Json:
    """Members that say something."""
    return {name: value for name, value in content.items() if value not in (None, "", [], {}, ())}
