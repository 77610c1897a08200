"""Constants that functions take as texts: words of a fixed set, units of time and time zones by their names."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfoNotFoundError

from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import STRING
from merlot.values.time_units import UNIT_NANOS
from merlot.values.time_zones import zone_of

TRUNC_UNITS = ("MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
TIME_UNITS = tuple(UNIT_NANOS)


def constant_text(arg: Expr) -> str:
    """Return the text of an argument that was checked to be a constant text."""
    assert isinstance(arg, Literal)
    return str(arg.value)


def one_of(arg: Expr, problem: str, words: Sequence[str]) -> str:
    """Return the constant in upper case if it is one of the words, in any case; raise SqlValidationError if not."""
    word = constant_text(arg).upper()
    if word not in words:
        raise SqlValidationError(f"{problem} '{word:.100}' expected={'|'.join(words)}")
    return word


def calendar_unit(function: str, arg: Expr) -> str:
    """Return a unit of the calendar, which may be in the plural; raise SqlValidationError."""
    singular = Literal(constant_text(arg).upper().removesuffix("S"), STRING)
    return one_of(singular, f"{function}: unknown unit", TRUNC_UNITS)


def time_unit(function: str, arg: Expr) -> str:
    """Return a unit of Java's TimeUnit; raise SqlValidationError."""
    return one_of(arg, f"{function}: unknown time unit", TIME_UNITS)


def zone_name(function: str, arg: Expr) -> str:
    """Return the constant, a time zone's name or offset; raise SqlValidationError if there is no such time zone."""
    zone = constant_text(arg)
    try:
        zone_of(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SqlValidationError(f"{function}: unknown time zone '{zone:.100}'") from error
    return zone
