"""Column values in the footer's JSON, both ways. FORMAT.md §3.2."""

import math
import re
from decimal import Decimal
from typing import Any, Final

import numpy as np

from merlot.segment.metadata import JsonValue
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text

MAX_BOUND_LENGTH: Final = 512
"""Length, in characters (of BYTES in bytes), up to which a minimum or maximum is in the footer. It must be exact or
absent."""

_FLOATS = (TypeName.FLOAT, TypeName.DOUBLE)
_SPECIAL = ("NaN", "Infinity", "-Infinity")
# From the shortest digits of the float32, as a footer has them: read as a double they are more than the float32.
_LARGEST = {TypeName.FLOAT: float(str(np.finfo(np.float32).max)), TypeName.DOUBLE: math.inf}
_INT = (-(1 << 31), (1 << 31) - 1)
_LONG = (-(1 << 63), (1 << 63) - 1)
_BOUNDS = {TypeName.INT: _INT, TypeName.LONG: _LONG, TypeName.TIMESTAMP: _LONG, TypeName.BOOLEAN: (0, 1)}
PLAIN_DECIMAL: Final = r"^(0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.[0-9]*[1-9])$"
"""Pattern of the canonical text of each number, FORMAT.md §5.1."""
_DECIMAL = re.compile(PLAIN_DECIMAL)
_HEX = re.compile("(?:[0-9a-f]{2})*")


def to_json(type_name: TypeName, value: Any) -> JsonValue:
    """Return a stored value (number, str or bytes) as JSON."""
    if type_name in _FLOATS:
        return _float_to_json(value)
    if type_name is TypeName.BYTES:
        return bytes(value).hex()
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return plain_text(value)
    return int(value)


def from_json(type_name: TypeName, value: JsonValue) -> Any:
    """Return the stored value: int, float, str (BIG_DECIMAL too) or bytes."""
    if type_name in _FLOATS:
        return float(value)
    if type_name is TypeName.BYTES:
        return bytes.fromhex(str(value))
    return value


def is_value(type_name: TypeName, value: Any) -> bool:
    """Return True if JSON is a value of the type, as `to_json` writes it."""
    if type_name in _BOUNDS:
        low, high = _BOUNDS[type_name]
        return type(value) is int and low <= value <= high
    if type_name in _FLOATS:
        return value in _SPECIAL if isinstance(value, str) else abs(value) <= _LARGEST[type_name]
    if not isinstance(value, str):
        return False
    if type_name is TypeName.BYTES:
        return _HEX.fullmatch(value) is not None
    return type_name is not TypeName.BIG_DECIMAL or _DECIMAL.fullmatch(value) is not None


def _float_to_json(value: Any) -> JsonValue:
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    # A float32 is written with its own shortest digits, which read back as the same float32.
    return float(str(value)) if isinstance(value, np.float32) else number
