"""Column values in the footer's JSON, both ways. FORMAT.md §3.2."""

import math
from decimal import Decimal
from typing import Any, Final

import numpy as np

from merlot.segment.metadata import JsonValue
from merlot.spec.types import TypeName
from merlot.vectors.decimals import plain_text

MAX_BOUND_LENGTH: Final = 512
"""A longer minimum or maximum is left out of the footer: it must be exact or absent."""

_FLOATS = (TypeName.FLOAT, TypeName.DOUBLE)


def to_json(type_name: TypeName, value: Any) -> JsonValue:
    """A stored value (number, str or bytes) as JSON."""
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
    """The stored value: int, float, str (BIG_DECIMAL too) or bytes."""
    if type_name in _FLOATS:
        return float(value)
    if type_name is TypeName.BYTES:
        return bytes.fromhex(str(value))
    return value


def _float_to_json(value: Any) -> JsonValue:
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    # A float32 is written with its own shortest digits, which read back as the same float32.
    return float(str(value)) if isinstance(value, np.float32) else number
