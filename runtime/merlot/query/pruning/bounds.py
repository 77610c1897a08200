"""Least and greatest value of a column: from JSON, in a footer or a record, to values that constants are compared
with.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np

from merlot.errors import CorruptionError
from merlot.query.pruning.ranges import Bound, Bounds
from merlot.values.types import TypeName

_WHOLE: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP, TypeName.BOOLEAN})
_FLOATS: Final = frozenset({TypeName.FLOAT, TypeName.DOUBLE})
_TEXT: Final = frozenset({TypeName.STRING, TypeName.JSON})
_WIDEST: Final = 1 << 63


def bounds_of(stored: TypeName, declared: TypeName, low: Any, high: Any) -> Bounds | None:
    """Return the bounds of a column of type `stored` whose values are read as `declared`; None if they are unknown.

    Raises CorruptionError for bounds that no footer has: values of another kind, or reversed."""
    if low is None or high is None or not _is_same_kind(stored, declared):
        return None
    least, greatest = _value(stored, low), _value(stored, high)
    if least != least or greatest != greatest:
        return None  # NaN, the largest of all: the greatest number is not known
    if declared in _FLOATS and stored in _WHOLE:
        least, greatest = float(least), float(greatest)
    if not least <= greatest:  # type: ignore[operator]  # both are of one type
        raise CorruptionError(f"bounds are reversed low={low!r:.40} high={high!r:.40}")
    return least, greatest


def _is_same_kind(stored: TypeName, declared: TypeName) -> bool:
    if stored is declared:
        return True
    numbers = _WHOLE | _FLOATS
    return stored in numbers and declared in numbers and not (stored in _FLOATS and declared in _WHOLE)


def _value(type_: TypeName, value: Any) -> Bound:
    if type_ in _WHOLE and isinstance(value, int) and -_WIDEST <= value < _WIDEST:
        return int(value)
    if type_ in _FLOATS and (isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity")):
        return _float(type_, value)
    if isinstance(value, str):
        if type_ in _TEXT:
            return value
        if type_ is TypeName.BYTES:
            return _bytes(value)
        if type_ is TypeName.BIG_DECIMAL:
            return _decimal(value)
    raise CorruptionError(f"bound is no value of its column type={type_} value={value!r:.40}")


def _float(type_: TypeName, value: float | str) -> float:
    """Return the number that a bound of a FLOAT or DOUBLE stands for. A FLOAT is written with a float32's shortest
    digits: read as a float64 they would be another number."""
    try:
        with np.errstate(over="raise"):
            return float(np.float32(float(value)) if type_ is TypeName.FLOAT else float(value))
    except (OverflowError, FloatingPointError) as error:
        raise CorruptionError(f"bound is beyond its column's type type={type_} value={value!r:.40}") from error


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise CorruptionError(f"bound is not hexadecimal value={text!r:.40}") from error


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise CorruptionError(f"bound is not a number value={text!r:.40}") from error
    if not math.isfinite(value):
        raise CorruptionError(f"bound is not a number value={text!r:.40}")
    return value
