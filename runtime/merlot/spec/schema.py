"""Columns of a table: types, roles, date-time formats and default null values.

Default null values are Pinot's (`FieldSpec.java`). A model checks each field on its own; rules between fields are in
`rules.table`.
"""

import re
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final, Self

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from merlot.errors import InvalidInputError
from merlot.spec.column_names import ColumnName
from merlot.spec.model import SpecModel
from merlot.values import datetime_format, scalars
from merlot.values.scalars import FieldValue
from merlot.values.time_units import UNIT_NANOS
from merlot.values.types import TypeName

Scalar = Annotated[bool | int | float | str, WithJsonSchema({"x-kubernetes-preserve-unknown-fields": True})]

COLUMN_TYPES = tuple(name for name in TypeName if name is not TypeName.UNKNOWN)
WIDER_TYPES: Final[dict[TypeName, frozenset[TypeName]]] = {
    TypeName.INT: frozenset({TypeName.LONG, TypeName.DOUBLE, TypeName.BIG_DECIMAL}),
    TypeName.LONG: frozenset({TypeName.BIG_DECIMAL}),
    TypeName.FLOAT: frozenset({TypeName.DOUBLE}),
}
"""Types that hold every value of the key. LONG to DOUBLE would round; to STRING would change order and arithmetic."""

DEFAULT_MAX_LENGTH = 512
_UNITS = "|".join(UNIT_NANOS)
_GRANULARITY = re.compile(rf"(?:[1-9]\d*:(?:{_UNITS})|(?:{_UNITS})(?:\|[1-9]\d*)?)", re.ASCII)


class FieldRole(StrEnum):
    """Purpose of a column; decides its default null value."""

    DIMENSION = "dimension"
    METRIC = "metric"
    DATE_TIME = "dateTime"


class FieldSpec(SpecModel):
    """Column of a table."""

    name: ColumnName
    """Name of the column, as SQL uses it."""
    type: Annotated[TypeName, WithJsonSchema({"type": "string", "enum": [str(name) for name in COLUMN_TYPES]})]
    """Data type of a value."""
    role: FieldRole = FieldRole.DIMENSION
    """Purpose of the column: to filter and group by (dimension), to aggregate (metric), or a time (dateTime)."""
    multi_value: bool = False
    """True if a row holds a list of values."""
    format: str | None = None
    """Format of the times of a dateTime column: TIMESTAMP (the default of that type), EPOCH|DAYS,
    SIMPLE_DATE_FORMAT|yyyyMMdd, or Pinot's older 1:MILLISECONDS:EPOCH."""
    granularity: str | None = None
    """Distance between neighbouring values of a dateTime column, such as DAYS|1; informative."""
    default_null_value: Scalar | None = None
    """Value that stands for null in storage and in answers; if left out, the type and the role decide it."""
    max_length: int | None = Field(None, ge=1, le=2_147_483_647)
    """Longest STRING value in characters, or BYTES value in bytes; 512 if left out. Ingestion cuts longer values, and
    counts them in its report. A value of JSON or of a dateTime column is never cut: a longer one makes its row a bad
    row. JSON has no limit if left out."""
    description: str | None = None
    """Meaning of the column."""

    @field_validator("type")
    @classmethod
    def _type_is_for_columns(cls, value: TypeName) -> TypeName:
        if value is TypeName.UNKNOWN:
            raise ValueError(f"a column cannot be UNKNOWN; one of {', '.join(COLUMN_TYPES)}")
        return value

    @field_validator("granularity")
    @classmethod
    def _granularity_is_known(cls, value: str | None) -> str | None:
        if value is not None and not _GRANULARITY.fullmatch(value):
            units = ", ".join(UNIT_NANOS)
            raise ValueError(f"unknown granularity {value!r}; write one like DAYS|1 or 1:DAYS, of {units}")
        return value

    @model_validator(mode="after")
    def _check_format_and_default(self) -> Self:
        problems = [*self._format_problems(), *self._default_problems()]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _format_problems(self) -> list[str]:
        if self.role is not FieldRole.DATE_TIME or self.format is None:
            return []
        try:
            parsed = datetime_format.parse(self.format)
        except InvalidInputError as error:
            return [f".format: {error}"]
        if isinstance(parsed, datetime_format.PatternFormat) and self.type is TypeName.TIMESTAMP:
            return [".format: a TIMESTAMP column has format TIMESTAMP; remove it, or make the column STRING"]
        return []

    def _default_problems(self) -> list[str]:
        if self.default_null_value is None:
            return []
        try:
            scalars.parse(self.type, self.default_null_value)
        except InvalidInputError as error:
            return [f".defaultNullValue: {error}"]
        return []

    @cached_property
    def default_value(self) -> FieldValue:
        """Python value that stands for null; for a multi-value column, its only element."""
        if self.default_null_value is not None:
            return scalars.parse(self.type, self.default_null_value)
        if self.role is FieldRole.METRIC:
            return scalars.METRIC_DEFAULTS[self.type]
        return scalars.DIMENSION_DEFAULTS[self.type]

    @property
    def longest(self) -> int | None:
        """Length of the longest value: `max_length` or its default; None if there is no limit."""
        if self.max_length is None and self.type is not TypeName.JSON:
            return DEFAULT_MAX_LENGTH
        return self.max_length

    @cached_property
    def time_format(self) -> datetime_format.DateTimeFormat | None:
        """Format of the column's times; None unless it is a dateTime column."""
        if self.role is not FieldRole.DATE_TIME:
            return None
        return datetime_format.parse(self.format or "TIMESTAMP")


class TableSchema(SpecModel):
    """Columns of a table, in the order in which `SELECT *` shows them."""

    fields: tuple[FieldSpec, ...] = Field(min_length=1, max_length=2000)
    """Columns of the table."""
    primary_key: tuple[ColumnName, ...] = ()
    """Columns that identify a row; upserts replace rows by them."""

    def field(self, name: str) -> FieldSpec | None:
        """Return the column with that name, case-sensitively, or None."""
        return self._by_name.get(name)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def _by_name(self) -> dict[str, FieldSpec]:
        return {field.name: field for field in self.fields}
