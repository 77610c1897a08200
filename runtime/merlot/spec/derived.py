"""Derived columns: times truncated to a unit of the calendar, stored beside their column. They are named as in Pinot's
timestamp index, `$ts$DAY`. `DATETRUNC('DAY', ts)` denotes the same column; `read` accepts all its spellings.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, Field

from merlot.errors import InvalidInputError
from merlot.spec.column_names import COLUMN, is_name
from merlot.values import datetime_format
from merlot.values.datetime_format import EpochFormat, TimestampFormat
from merlot.values.types import TypeName


class Granularity(StrEnum):
    """Unit to which a time is truncated, in UTC; a week begins on Monday."""

    MILLISECOND = "MILLISECOND"
    SECOND = "SECOND"
    MINUTE = "MINUTE"
    HOUR = "HOUR"
    DAY = "DAY"
    WEEK = "WEEK"
    MONTH = "MONTH"
    QUARTER = "QUARTER"
    YEAR = "YEAR"


class DerivedColumn(NamedTuple):
    """Derived column."""

    column: str
    """Column that it is computed from."""
    granularity: Granularity

    @property
    def name(self) -> str:
        return f"${self.column}${self.granularity}"


class DerivedText(NamedTuple):
    """Derived column as a user wrote it."""

    derived: DerivedColumn
    unit: str | None
    """Unit of the source column's numbers, if the text names it."""


_NAMED: Final = re.compile(rf"\$({COLUMN})\$([A-Z]+)")
_ARGUMENT: Final = r"""(?:"((?:[^"]|"")+)"|([^\s"',()]+))"""
_CALL: Final = re.compile(
    rf"""date_?trunc\(\s*'([A-Za-z]+)'\s*,\s*{_ARGUMENT}\s*(?:,\s*'([A-Za-z]+)'\s*)?\)""", re.IGNORECASE
)
PATTERN: Final = rf"^({COLUMN}|\${COLUMN}\$[A-Z]+|[A-Za-z_]+\( *'[A-Za-z]+' *, *{_ARGUMENT} *(, *'[A-Za-z]+' *)?\))$"
"""Pattern of a dimension: a column, the name of a derived column, or the function call that denotes it."""


def read(text: str) -> DerivedText | None:
    """Return the derived column that a text denotes; None if the text is the name of a plain column.

    Raise InvalidInputError for an unknown function or unit."""
    named, called = _NAMED.fullmatch(text), _CALL.fullmatch(text)
    if named is not None:
        return DerivedText(DerivedColumn(named[1], _granularity(named[2])), None)
    if called is None:
        if "(" in text and not is_name(text):
            raise InvalidInputError(not_ahead(text))
        return None
    column = called[3] if called[2] is None else called[2].replace('""', '"')
    return DerivedText(DerivedColumn(column, _granularity(called[1])), None if called[4] is None else called[4].upper())


def not_ahead(text: str) -> str:
    """Return the message for a text that is neither a precomputed function nor a column."""
    return f"not a function that is computed ahead: {text:.100}; write DATETRUNC('DAY', column)"


def derived_of(name: str) -> DerivedColumn | None:
    """Return the derived column that has this name, as `DerivedColumn.name` builds it; None for any other name."""
    match = _NAMED.fullmatch(name)
    if match is None or match[2] not in Granularity.__members__:
        return None
    return DerivedColumn(match[1], Granularity(match[2]))


def unit_of(type_: TypeName, format_: str | None) -> str | None:
    """Return the unit of a column's times in DATETRUNC's words; None if the column holds no numbers of one unit."""
    if type_ is TypeName.TIMESTAMP:
        return "MILLISECONDS"
    if type_ not in (TypeName.INT, TypeName.LONG):
        return None
    if format_ is None:
        return "MILLISECONDS" if type_ is TypeName.LONG else None
    parsed = datetime_format.parse(format_)
    if isinstance(parsed, TimestampFormat):
        return "MILLISECONDS"
    return parsed.unit if isinstance(parsed, EpochFormat) and parsed.size == 1 else None


def _granularity(text: str) -> Granularity:
    granularity = Granularity.__members__.get(text.upper())
    if granularity is None:
        raise InvalidInputError(f"unknown granularity {text:.50}; one of {', '.join(Granularity)}")
    return granularity


def _named(text: Any) -> Any:
    """Return the canonical name of a dimension."""
    if not isinstance(text, str):
        return text
    try:
        written = read(text)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error
    return text if written is None else written.derived.name


DimensionName = Annotated[str, BeforeValidator(_named), Field(pattern=PATTERN, max_length=200)]
"""Name of a column or of a derived column."""
