"""Result and expression types: Pinot's column data types, single-valued or `_ARRAY`."""

from __future__ import annotations

from dataclasses import dataclass

from merlot.errors import InvalidInputError
from merlot.values.types import TypeName


@dataclass(frozen=True, slots=True)
class SqlType:
    """A base type, or an array of it (multi-value columns)."""

    base: TypeName
    is_array: bool = False

    def __str__(self) -> str:
        return f"{self.base}_ARRAY" if self.is_array else str(self.base)

    @property
    def is_integer(self) -> bool:
        return not self.is_array and self.base in (TypeName.INT, TypeName.LONG)

    @property
    def is_numeric(self) -> bool:
        return not self.is_array and self.base in _NUMERIC

    @classmethod
    def parse(cls, text: str) -> SqlType:
        """Read `LONG` or `LONG_ARRAY`. Raise InvalidInputError for other texts."""
        base = text.removesuffix("_ARRAY")
        if base not in TypeName.__members__:
            raise InvalidInputError(f"unknown type type={text}")
        return cls(TypeName(base), text.endswith("_ARRAY"))


_NUMERIC = frozenset({TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL})

INT = SqlType(TypeName.INT)
LONG = SqlType(TypeName.LONG)
FLOAT = SqlType(TypeName.FLOAT)
DOUBLE = SqlType(TypeName.DOUBLE)
BIG_DECIMAL = SqlType(TypeName.BIG_DECIMAL)
BOOLEAN = SqlType(TypeName.BOOLEAN)
TIMESTAMP = SqlType(TypeName.TIMESTAMP)
STRING = SqlType(TypeName.STRING)
JSON = SqlType(TypeName.JSON)
BYTES = SqlType(TypeName.BYTES)
UNKNOWN = SqlType(TypeName.UNKNOWN)
