"""What the engine says of numbers that do not fit, in Pinot's types and in plain words. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from merlot.aggregates.one_row import SUM_ADVICE

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
        lambda found: f"SUM is out of range of LONG value={found['value']}: {SUM_ADVICE}",
    ),
    (
        re.compile(rf"Overflow in (?P<what>[a-z]+) of {_TYPE}"),
        lambda found: f"{_type(found)} overflow in {found['what']}",
    ),
    (re.compile(rf"Overflow in {_TYPE} (?P<what>[a-z]+)"), lambda found: f"{_type(found)} overflow in {found['what']}"),
    (re.compile(r"Overflow in negation"), lambda _: "overflow in negation"),
    (re.compile(r"Overflow on (?P<what>[a-z_]+)\("), lambda found: f"overflow in {found['what'].upper()}"),
    (
        re.compile(rf"Type [A-Z0-9(), ]+ with value (?P<value>\S+) can't be cast .* destination type {_TYPE}"),
        lambda found: f"number is out of range of {_type(found)} value={found['value']}",
    ),
    (
        re.compile(rf"Could not (?:convert|cast)\D* (?P<value>['\"].*['\"]|\S+) to {_TYPE}"),
        lambda found: f"value is no {_type(found)} value={found['value']}",
    ),
    (re.compile(r"Timestamp microseconds out of range"), lambda _: "time is out of range of TIMESTAMP"),
    (
        re.compile(r"(?P<what>[A-Z_]+) is out of range"),
        lambda found: f"{found['what']} is out of range",
    ),
)
DOES_NOT_FIT: Final = "a number is out of range"


def of_number(text: str) -> str:
    """Of an error about a number."""
    for pattern, say in _FORMS:
        found = pattern.search(text)
        if found is not None:
            return say(found)
    return DOES_NOT_FIT


def _type(found: re.Match[str]) -> str:
    return "BIG_DECIMAL" if found["type"] == "DECIMAL" else _TYPES.get(found["type"], "number")
