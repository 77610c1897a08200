"""Derived columns: a column of times cut to a unit of the calendar, stored beside it. The names are those of Pinot's
timestamp index, `$ts$DAY`; `DATETRUNC('DAY', ts)` is the same one, and every spelling of it becomes that name here.
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


class Derived(NamedTuple):
    """One derived column."""

    column: str
    """That it is computed from."""
    granularity: Granularity

    @property
    def name(self) -> str:
        return f"${self.column}${self.granularity}"


class Written(NamedTuple):
    """A derived column as somebody wrote it."""

    derived: Derived
    unit: str | None
    """The unit of its column's numbers, where that was written, too."""


_NAMED: Final = re.compile(rf"\$({COLUMN})\$([A-Z]+)")
_ARGUMENT: Final = r"""(?:"((?:[^"]|"")+)"|([^\s"',()]+))"""
_CALL: Final = re.compile(
    rf"""date_?trunc\(\s*'([A-Za-z]+)'\s*,\s*{_ARGUMENT}\s*(?:,\s*'([A-Za-z]+)'\s*)?\)""", re.IGNORECASE
)
PATTERN: Final = rf"^({COLUMN}|\${COLUMN}\$[A-Z]+|[A-Za-z_]+\( *'[A-Za-z]+' *, *{_ARGUMENT} *(, *'[A-Za-z]+' *)?\))$"
"""Of a dimension: a column, a derived column's name, or the function that it is."""


def read(text: str) -> Written | None:
    """The derived column that a text stands for; None if that is a plain column's name.

    Raises InvalidInputError for functions and units that there are none of."""
    named, called = _NAMED.fullmatch(text), _CALL.fullmatch(text)
    if named is not None:
        return Written(Derived(named[1], _granularity(named[2])), None)
    if called is None:
        if "(" in text and not is_name(text):
            raise InvalidInputError(not_ahead(text))
        return None
    column = called[3] if called[2] is None else called[2].replace('""', '"')
    return Written(Derived(column, _granularity(called[1])), None if called[4] is None else called[4].upper())


def not_ahead(text: str) -> str:
    """Say of a call, which may be a column's name as well, that it is neither."""
    return f"not a function that is computed ahead: {text:.100}; write DATETRUNC('DAY', column)"


def derived_of(name: str) -> Derived | None:
    """The derived column of a name as `Derived.name` makes it; None of any other."""
    found = _NAMED.fullmatch(name)
    if found is None or found[2] not in Granularity.__members__:
        return None
    return Derived(found[1], Granularity(found[2]))


def unit_of(type_: TypeName, format_: str | None) -> str | None:
    """The unit of a column's times as DATETRUNC calls it; None if the column holds no numbers of one unit."""
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
    found = Granularity.__members__.get(text.upper())
    if found is None:
        raise InvalidInputError(f"unknown granularity {text:.50}; one of {', '.join(Granularity)}")
    return found


def _named(text: Any) -> Any:
    """A dimension by its one name."""
    if not isinstance(text, str):
        return text
    try:
        written = read(text)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error
    return text if written is None else written.derived.name


DimensionName = Annotated[str, BeforeValidator(_named), Field(pattern=PATTERN, max_length=200)]
"""A column's name, or a derived column's."""
