"""Messages of the engine about numbers that do not fit, in Pinot's types and in plain words. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from merlot.aggregates.scalar_forms import SUM_ADVICE

_TYPES: Final = {
    "INT8": "INT",
    "INT16": "INT",
    "INT32": "INT",
    "INT64": "LONG",
    "INT128": "LONG",
    "HUGEINT": "LONG",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "TIMESTAMP": "TIMESTAMP",
    "VARCHAR": "STRING",
}
_TYPE: Final = r"(?P<type>[A-Z]+[0-9]*)(?:\([0-9, ]*\))?"
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (
        re.compile(r"Type INT128 with value (?P<value>\S+) can't be cast .* destination type INT64"),
        lambda match: f"SUM is out of range of LONG value={match['value']}: {SUM_ADVICE}",
    ),
    (
        re.compile(rf"Overflow in (?P<what>[a-z]+) of {_TYPE}"),
        lambda match: f"{_type(match)} overflow in {match['what']}",
    ),
    (re.compile(rf"Overflow in {_TYPE} (?P<what>[a-z]+)"), lambda match: f"{_type(match)} overflow in {match['what']}"),
    (re.compile(r"Overflow in negation"), lambda _: "overflow in negation"),
    (re.compile(r"Overflow on (?P<what>[a-z_]+)\("), lambda match: f"overflow in {match['what'].upper()}"),
    (
        re.compile(rf"Type [A-Z0-9(), ]+ with value (?P<value>\S+) can't be cast .* destination type {_TYPE}"),
        lambda match: f"number is out of range of {_type(match)} value={match['value']}",
    ),
    (
        re.compile(rf"Could not (?:convert|cast)\D* (?P<value>['\"].*['\"]|\S+) to {_TYPE}"),
        lambda match: f"value is no {_type(match)} value={match['value']}",
    ),
    (re.compile(r"Timestamp microseconds out of range"), lambda _: "time is out of range of TIMESTAMP"),
    (
        re.compile(r"(?P<what>[A-Z_]+) is out of range"),
        lambda match: f"{match['what']} is out of range",
    ),
)
DOES_NOT_FIT: Final = "a number is out of range"


def of_number(text: str) -> str:
    """Return the message for an engine's error about a number."""
    for pattern, say in _FORMS:
        match = pattern.search(text)
        if match is not None:
            return say(match)
    return DOES_NOT_FIT


def _type(match: re.Match[str]) -> str:
    return "BIG_DECIMAL" if match["type"] == "DECIMAL" else _TYPES.get(match["type"], "number")
