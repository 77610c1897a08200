"""Read a JSON document of Pinot's member by member; members that nobody read are noted at the end."""

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
"""Values that request nothing."""


class ConfigReader:
    """Object of the document and its path. Reading a member removes it; `notes` are shared by the whole document."""

    def __init__(self, content: Mapping[str, Any], path: str, notes: list[str]) -> None:
        self._content = dict(content)
        self.path = path
        self.notes = notes
        self._inner: list[ConfigReader] = []

    def take(self, name: str, default: Any = None) -> Any:
        """Return a member's value and count the member as read."""
        value = self._content.pop(name, None)
        return default if value is None else value

    def text(self, name: str) -> str:
        """Read a member as text; "" if it is absent."""
        return str(self.take(name, "")).strip()

    def number(self, name: str) -> float | None:
        """Read a member as a number, which Pinot's configs also write as text; None if it is absent."""
        text = self.text(name)
        try:
            value = float(text) if text else None
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise InvalidInputError(f"{self.path}.{name} is no number: {text!r:.40}")
        return value

    def whole(self, name: str) -> int | None:
        """Read a member as a whole number; None if it is absent."""
        value = self.number(name)
        if value is not None and value != int(value):
            raise InvalidInputError(f"{self.path}.{name} is no whole number: {value}")
        return None if value is None else int(value)

    def flag(self, name: str) -> bool:
        """Read a member as a boolean, which Pinot's configs also write as text."""
        return str(self.take(name, "")).lower() == "true"

    def names(self, name: str) -> list[str]:
        """Read a member as a list of texts."""
        value = self.take(name, [])
        if not isinstance(value, list):
            raise InvalidInputError(f"{self.path}.{name} is no list")
        return [str(item) for item in value]

    def texts(self, name: str) -> dict[str, str]:
        """Read a member as an object whose values are texts."""
        value = self.take(name, {})
        if not isinstance(value, dict):
            raise InvalidInputError(f"{self.path}.{name} is no object")
        return {key: str(item) for key, item in value.items()}

    def inner(self, name: str) -> ConfigReader:
        """Return a reader of a member that is an object; an empty reader if the member is absent."""
        value = self.take(name, {})
        if not isinstance(value, dict):
            raise InvalidInputError(f"{self.path}.{name} is no object")
        reader = ConfigReader(value, f"{self.path}.{name}" if self.path else name, self.notes)
        self._inner.append(reader)
        return reader

    def each(self, name: str) -> list[ConfigReader]:
        """Return readers of the items of a member that is a list of objects."""
        value = self.take(name, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise InvalidInputError(f"{self.path}.{name} is no list of objects")
        readers = [
            ConfigReader(item, f"{self.path}.{name}[{position}]", self.notes) for position, item in enumerate(value)
        ]
        self._inner += readers
        return readers

    def has(self, name: str) -> bool:
        """Return True if a member is present, not null and not read yet."""
        return self._content.get(name) is not None

    def members(self) -> list[str]:
        """Return the names of the members that have not been read yet."""
        return list(self._content)

    def note(self, name: str, text: str) -> None:
        """Add a note about a member."""
        self.notes.append(f"{self.path}.{name}: {text}" if self.path else f"{name}: {text}")

    def ignore(self, *names: str) -> None:
        """Discard members that repeat what the document says elsewhere, such as names and kinds."""
        for name in names:
            self.take(name)

    def as_is(self, name: str, reason: str, *values: str) -> None:
        """Read a member whose setting always has one of these values here (in any case of letters). Any other value is
        noted with the reason why it has no effect."""
        value = self.take(name)
        if value not in _NOTHING and str(value).upper() not in values:
            self.note(name, reason)

    def leave(self, reasons: Mapping[str, str]) -> None:
        """Read members that have no equivalent, and note the reason of each that requests something. reasons: by
        name."""
        for name, reason in reasons.items():
            if self.take(name) not in _NOTHING:
                self.note(name, reason)

    def close(self) -> None:
        """Note the members that nobody read, of this object and the objects within it."""
        for name, value in self._content.items():
            if value not in _NOTHING:
                self.note(name, "has no equivalent, left out")
        for reader in self._inner:
            reader.close()


def is_count(text: str) -> bool:
    """Return True for a whole number of at most 18 digits, which fits into a LONG."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def duration(seconds: float) -> str:
    """Return a duration in its largest whole unit, seconds rounded up. Raise InvalidInputError from 1e12 seconds on."""
    if not abs(seconds) < _LONGEST_S:
        raise InvalidInputError(f"too long a time seconds={seconds:g}")
    whole = max(1, -int(-seconds // 1))
    return next(f"{whole // size}{letter}" for letter, size in _UNITS if whole % size == 0)


def seconds_of(period: str) -> int:
    """Return the seconds of a period as Pinot writes it, such as 1d or 1h30m; raise InvalidInputError."""
    match = _PERIOD.fullmatch(period.strip())
    if match is None or not any(match.groups()):
        raise InvalidInputError(f"not a period: {period!r:.40}")
    return sum(int(number or 0) * size for number, size in zip(match.groups(), _PART_S, strict=True))


def unit_seconds(unit: str) -> float:
    """Return the seconds of a unit of time, such as DAYS; raise InvalidInputError."""
    nanos = UNIT_NANOS.get(unit.upper())
    if nanos is None:
        raise InvalidInputError(f"not a unit of time: {unit!r:.40}")
    return nanos / UNIT_NANOS["SECONDS"]


def without_empty(content: Mapping[str, Any]) -> Json:
    """Return the members that are not empty."""
    return {name: value for name, value in content.items() if value not in (None, "", [], {}, ())}
