"""Values of columns as Python objects: reading them from manifests, and the values that stand for null.

INT, LONG → int; FLOAT, DOUBLE → float; BOOLEAN → bool; TIMESTAMP → int (epoch milliseconds); STRING, JSON → str; BYTES
→ bytes (hex in manifests); BIG_DECIMAL → Decimal.
"""

import json
import math
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation

from merlot.errors import InvalidInputError
from merlot.values.datetime_format import parse_timestamp
from merlot.values.number_text import decimal_of, double_of, is_integer
from merlot.values.types import TypeName

FieldValue = int | float | bool | str | bytes | Decimal

INTEGER_RANGES = {TypeName.INT: (-(2**31), 2**31 - 1), TypeName.LONG: (-(2**63), 2**63 - 1)}

DIMENSION_DEFAULTS: Mapping[TypeName, FieldValue] = {
    TypeName.INT: -(2**31),
    TypeName.LONG: -(2**63),
    TypeName.FLOAT: -math.inf,
    TypeName.DOUBLE: -math.inf,
    TypeName.BIG_DECIMAL: Decimal(0),
    TypeName.BOOLEAN: False,
    TypeName.TIMESTAMP: 0,
    TypeName.STRING: "null",
    TypeName.JSON: "null",
    TypeName.BYTES: b"",
}
METRIC_DEFAULTS: Mapping[TypeName, FieldValue] = {
    TypeName.INT: 0,
    TypeName.LONG: 0,
    TypeName.FLOAT: 0.0,
    TypeName.DOUBLE: 0.0,
    TypeName.BIG_DECIMAL: Decimal(0),
    TypeName.STRING: "null",
    TypeName.BYTES: b"",
}
METRIC_TYPES = tuple(METRIC_DEFAULTS)
DATE_TIME_TYPES = (TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP, TypeName.STRING)


def parse(type_name: TypeName, value: bool | int | float | str) -> FieldValue:
    """Read a manifest's scalar as a value of a type. Raise InvalidInputError."""
    try:
        return _PARSERS[type_name](value)
    except (ValueError, TypeError, InvalidOperation, OverflowError, RecursionError, InvalidInputError):
        raise InvalidInputError(f"{value!r:.100} is no {type_name}; write {_EXAMPLES[type_name]}") from None


def _integer(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError("not an integer")
        if isinstance(value, str) and not is_integer(value):
            raise ValueError("not an integer")
        number = int(value)
        if not low <= number <= high:
            raise ValueError("out of range")
        return number

    return read


def _double(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("not a number")
    return double_of(value) if isinstance(value, str) else float(value)


def _float(value: object) -> float:
    """Return the nearest 32-bit value, so that what is declared is what is stored."""
    rounded: float = struct.unpack("<f", struct.pack("<f", _double(value)))[0]
    return rounded


def _decimal(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("not a number")
    number = decimal_of(str(value))
    if not number.is_finite():
        raise ValueError("not finite")
    return number


def _boolean(value: object) -> bool:
    match value:
        case bool():
            return value
        case 0 | 1:
            return bool(value)
        case str() if value.lower() in ("true", "false"):
            return value.lower() == "true"
        case _:
            raise ValueError("not a boolean")


def _timestamp(value: object) -> int:
    millis = parse_timestamp(value) if isinstance(value, str) else value
    return _integer(*INTEGER_RANGES[TypeName.LONG])(millis)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _json(value: object) -> str:
    text = _string(value)
    json.loads(text, parse_constant=_no_constant)
    return text


def _no_constant(text: str) -> None:
    """Refuse NaN and Infinity, which Python reads but JSON does not have."""
    raise ValueError(text)


def _bytes(value: object) -> bytes:
    return bytes.fromhex(_string(value))


_PARSERS: Mapping[TypeName, Callable[[object], FieldValue]] = {
    TypeName.INT: _integer(*INTEGER_RANGES[TypeName.INT]),
    TypeName.LONG: _integer(*INTEGER_RANGES[TypeName.LONG]),
    TypeName.FLOAT: _float,
    TypeName.DOUBLE: _double,
    TypeName.BIG_DECIMAL: _decimal,
    TypeName.BOOLEAN: _boolean,
    TypeName.TIMESTAMP: _timestamp,
    TypeName.STRING: _string,
    TypeName.JSON: _json,
    TypeName.BYTES: _bytes,
}
_EXAMPLES: Mapping[TypeName, str] = {
    TypeName.INT: "a whole number between -2^31 and 2^31-1",
    TypeName.LONG: "a whole number between -2^63 and 2^63-1",
    TypeName.FLOAT: "a number, or '-Infinity' in quotes",
    TypeName.DOUBLE: "a number, or '-Infinity' in quotes",
    TypeName.BIG_DECIMAL: "a number in quotes, such as '12.50'",
    TypeName.BOOLEAN: "true or false",
    TypeName.TIMESTAMP: "milliseconds or '2013-01-31 23:59:59', UTC",
    TypeName.STRING: "text in quotes",
    TypeName.JSON: "JSON in quotes, such as '{}'",
    TypeName.BYTES: "hex digits in quotes, such as 'deadbeef'",
}
