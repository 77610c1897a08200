"""Read constants, and convert them from one type to another without loss of meaning.

Integers are INT or LONG by size, larger ones BIG_DECIMAL. Numbers with a point or exponent are DOUBLE, or BIG_DECIMAL
if a double cannot hold every digit written; beyond the range of a double they are infinite DOUBLEs. TIMESTAMP is epoch
milliseconds, UTC unless the text says otherwise.
"""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, Decimal, InvalidOperation

from merlot.tree.errors import SqlParseError, SqlValidationError
from merlot.tree.nodes import Literal, Value
from merlot.tree.types import BIG_DECIMAL, DOUBLE, INT, LONG, UNKNOWN, SqlType
from merlot.values.number_text import java_text
from merlot.values.periods import DAY_MS
from merlot.values.types import TypeName

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
INTEGER_RANGES = {
    TypeName.INT: (INT_MIN, INT_MAX),
    TypeName.LONG: (LONG_MIN, LONG_MAX),
    TypeName.TIMESTAMP: (LONG_MIN, LONG_MAX),
}
FLOAT_MAX = 3.4028234663852886e38
NULL = Literal(None, UNKNOWN)
_MAX_DIGITS = 2_000
_MAX_FRACTION_DIGITS = 10_000
_CYCLE_MS = 146_097 * DAY_MS
"""400 years, after which the calendar repeats."""
_YEAR_2000_MS = 946_684_800_000
_FAR_YEAR = re.compile(r"(?P<year>-[0-9]{4,9}|[0-9]{5,9}|0000)(?=-[0-9]{2}-[0-9]{2})")
_MILLIS = re.compile(r"-[0-9]{1,20}|[0-9]{1,7}|[0-9]{9,20}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITIES = {f"{sign}{word}": float(f"{sign}inf") for sign in ("", "+", "-") for word in ("inf", "infinity")}
_SPECIAL = {**_INFINITIES, "nan": math.nan}
"""Lower-case texts that CAST to FLOAT or DOUBLE accepts besides numbers; it ignores case."""


def number(text: str) -> Literal:
    """Return the literal of a number as SQL writes it, with or without a sign. Raise SqlParseError or
    SqlValidationError."""
    if text.isascii() and text.lstrip("+-").isdigit():
        if len(text) > _MAX_DIGITS:
            raise SqlValidationError(f"number of more than {_MAX_DIGITS} digits")
        return integer(int(text))
    if _NUMBER.fullmatch(text) is None:  # the tokenizer takes `1E` for a number
        raise SqlParseError(f"not a number value='{text}'")
    exact = _decimal(text)
    approximate = float(text)
    if exact is None or math.isinf(approximate) or Decimal(repr(approximate)) == exact:
        return Literal(approximate, DOUBLE)
    if int(exact.as_tuple().exponent) < -_MAX_FRACTION_DIGITS:
        raise SqlValidationError(f"number of more than {_MAX_FRACTION_DIGITS} digits after the point")
    return Literal(exact, BIG_DECIMAL)


def integer(value: int) -> Literal:
    """Return the literal of a whole number, in the smallest type that holds it."""
    if INT_MIN <= value <= INT_MAX:
        return Literal(value, INT)
    if LONG_MIN <= value <= LONG_MAX:
        return Literal(value, LONG)
    return Literal(Decimal(value), BIG_DECIMAL)


def as_number(literal: Literal) -> Literal:
    """Return a literal as a numeric one: strings are read, booleans become 0 or 1. Raise SqlValidationError."""
    value = literal.value
    if isinstance(value, bool):
        return Literal(int(value), INT)
    if isinstance(value, str):
        if _decimal(value) is None:
            raise SqlValidationError(f"not a number value='{value}'")
        return number(value.strip())
    if isinstance(value, bytes) or value is None:
        raise SqlValidationError(f"not a number value={describe(literal)}")
    return literal


def convert(literal: Literal, target: SqlType) -> Literal:
    """Convert a literal as CAST does: numbers are truncated to integers. Raise SqlValidationError."""
    if literal.value is None or literal.type == target:
        return Literal(literal.value, target)
    base = target.base
    if base in (TypeName.STRING, TypeName.JSON):
        return Literal(to_text(literal), target)
    if base in INTEGER_RANGES:
        return Literal(_to_integer(literal, base), target)
    if base in (TypeName.DOUBLE, TypeName.FLOAT):
        return Literal(_to_float(literal, base), target)
    if base is TypeName.BOOLEAN:
        return Literal(_to_boolean(literal), target)
    if base is TypeName.BIG_DECIMAL:
        return Literal(_to_decimal(literal), target)
    if base is TypeName.BYTES:
        return Literal(_to_bytes(literal), target)
    raise SqlValidationError(f"no value of type {target} can be made of {describe(literal)}")


def describe(literal: Literal) -> str:
    """Return the literal for an error message."""
    return "NULL" if literal.value is None else f"'{to_text(literal)}'"


def to_text(literal: Literal) -> str:
    """Return the literal as CAST(… AS STRING) does, with Java's spelling of numbers and booleans."""
    value = literal.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if literal.type.base is TypeName.TIMESTAMP and isinstance(value, int):
        return timestamp_text(value)
    return java_text(repr(value)) if isinstance(value, float) else str(value)


def to_float32(value: float) -> float:
    """Return the nearest float32 as a Python float; infinity beyond its range."""
    if math.isinf(value) or math.isnan(value):
        return value
    if abs(value) > FLOAT_MAX and abs(value) >= 3.4028235677973366e38:
        return math.copysign(math.inf, value)
    rounded: float = struct.unpack("f", struct.pack("f", max(-FLOAT_MAX, min(FLOAT_MAX, value))))[0]
    return rounded


def timestamp_millis(text: str) -> int:
    """Return the epoch milliseconds of `2013-01-01`, `2013-01-01 05:00:00[.123]`, ISO 8601, or digits.

    Digits are milliseconds, but eight of them are a date: `20130101`. Years before 1 and after 9999 are read as
    `timestamp_text` writes them. Raise SqlValidationError for other texts."""
    stripped = text.strip()
    if _MILLIS.fullmatch(stripped):
        return int(stripped)
    far = _FAR_YEAR.match(stripped)
    cycles = int(far["year"]) // 400 - 5 if far else 0
    try:
        near = f"{int(far['year']) - 400 * cycles:04}{stripped[far.end() :]}" if far else stripped
        moment = datetime.fromisoformat(near)
    except ValueError as error:
        raise SqlValidationError(f"not a timestamp value='{text}' expected='yyyy-MM-dd HH:mm:ss'") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000 + cycles * _CYCLE_MS


def timestamp_text(millis: int) -> str:
    """Return `yyyy-MM-dd HH:mm:ss.S` in UTC, as Java's Timestamp prints it.

    The calendar extends to both ends of LONG: years have as many digits as they need, and the year before 1 is 0000."""
    cycles = (millis - _YEAR_2000_MS) // _CYCLE_MS
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis - cycles * _CYCLE_MS)
    year = moment.year + 400 * cycles
    fraction = f"{millis % 1000:03d}".rstrip("0") or "0"
    return f"{'-' if year < 0 else ''}{abs(year):04}{moment:-%m-%d %H:%M:%S}.{fraction}"


def _decimal(text: str) -> Decimal | None:
    """Return the number that a text spells in SQL, or None. `Decimal` by itself would also read `1_000`, and digits of
    other scripts."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return None


def _to_integer(literal: Literal, base: TypeName) -> int:
    value = _integer_value(literal, base)
    low, high = INTEGER_RANGES[base]
    if not low <= value <= high:
        raise SqlValidationError(f"value out of range value={describe(literal)} type={base}")
    return value


def _integer_value(literal: Literal, base: TypeName) -> int:
    value = literal.value
    if isinstance(value, str) and base is TypeName.TIMESTAMP:
        return timestamp_millis(value)
    numeric = as_number(literal).value
    if isinstance(numeric, float):
        if not math.isfinite(numeric):
            raise SqlValidationError(f"value out of range value={describe(literal)} type={base}")
        return math.trunc(numeric)
    if isinstance(numeric, Decimal):
        return int(numeric.to_integral_value(ROUND_DOWN))
    assert isinstance(numeric, int)
    return numeric


def _to_float(literal: Literal, base: TypeName) -> float:
    numeric = literal.value
    if isinstance(numeric, str) and (special := _SPECIAL.get(numeric.strip().lower())) is not None:
        return special
    if not (isinstance(numeric, str) and _NUMBER.fullmatch(numeric.strip())):
        numeric = as_number(literal).value
    assert isinstance(numeric, int | float | Decimal | str)
    try:
        value = float(numeric)
    except OverflowError:
        value = math.inf if Decimal(numeric) > 0 else -math.inf
    return to_float32(value) if base is TypeName.FLOAT else value


def _to_decimal(literal: Literal) -> Decimal:
    numeric = as_number(literal).value
    if isinstance(numeric, float):
        if not math.isfinite(numeric):
            raise SqlValidationError(f"value out of range value={describe(literal)} type=BIG_DECIMAL")
        return Decimal(repr(numeric))
    assert isinstance(numeric, int | Decimal)
    return Decimal(numeric)


def _to_boolean(literal: Literal) -> bool:
    value = literal.value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    numeric: Value = as_number(literal).value
    if numeric in (0, 1):
        return numeric == 1
    raise SqlValidationError(f"not a boolean value={describe(literal)}")


def _to_bytes(literal: Literal) -> bytes:
    value = literal.value
    if isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError as error:
            raise SqlValidationError(f"not hexadecimal bytes value='{value}'") from error
    raise SqlValidationError(f"no value of type BYTES can be made of {describe(literal)}")
