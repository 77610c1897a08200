"""Casts of columns to INT, LONG, FLOAT, DOUBLE, BIG_DECIMAL and BOOLEAN.

A decimal is the number that its text says. The nearest double of 0.57 comes from one division of exact integers, or is
read from the text; never from a product with 10^-2, which is no double. Text follows `values.number_text`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.ingest.arrays import (
    CastResult,
    all_bad,
    all_good,
    by_pattern,
    constant,
    is_temporal,
    keep,
    map_distinct,
    then,
    with_nulls,
)
from merlot.ingest.instants import epoch_millis
from merlot.values.number_text import NOT_FINITE, NUMBER, decimal_of

FLOAT32_MAX = float(np.finfo(np.float32).max)
SHORT_INTEGER = r"^[+-]?[0-9]{1,18}$"
"""Pattern of integers that always fit in 64 bits."""
SIMPLE_DECIMAL = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$"
TRAILING_ZEROS = r"(\.[0-9]*[1-9])0+$|\.0+$"
MAX_DECIMAL_DIGITS = 10_000
EXACT_DOUBLE = 2**53
"""Integers up to this one, and powers of ten up to MAX_EXACT_POWER, are exact doubles: one division of them rounds
once."""
MAX_EXACT_POWER = 22


def to_integer(low: int, high: int, target: pa.DataType) -> Callable[[pa.Array], CastResult]:
    """Return a cast to whole numbers in the range, however they are written; instants become epoch milliseconds."""

    def cast(source: pa.Array) -> CastResult:
        kind = source.type
        if pa.types.is_boolean(kind):
            return all_good(source.cast(target))
        if pa.types.is_integer(kind):
            return keep(source, _between(source, low, high), target)
        if pa.types.is_floating(kind):
            wide = source.cast(pa.float32()) if pa.types.is_float16(kind) else source
            # 2^63 - 1 is no double, so the first double past the range is the bound, exclusively.
            whole = pc.and_(pc.is_finite(wide), pc.equal(pc.trunc(wide), wide))
            inside = pc.and_(pc.greater_equal(wide, float(low)), pc.less(wide, float(high + 1)))
            return keep(wide, pc.and_(whole, inside), target)
        if pa.types.is_decimal(kind):
            return _integers_of_decimals(source, cast)
        if is_temporal(kind):
            millis = epoch_millis(source)
            return then(millis, cast(millis.values))
        if pa.types.is_string(kind):
            return by_pattern(source, SHORT_INTEGER, at_once, one_by_one)
        return all_bad(source, target)

    def at_once(texts: pa.Array) -> CastResult:
        return cast(pc.utf8_ltrim(texts, "+").cast(pa.int64()))

    def one_by_one(texts: pa.Array) -> CastResult:
        return map_distinct(texts, lambda text: whole(decimal_of(text), low, high), target)

    return cast


def whole(number: Decimal, low: int, high: int) -> int:
    """Return the integer that a number is. Raises ValueError if it is not whole, or not in the range."""
    # Check the range first: 1E+9999999 is whole, and would become as many digits.
    if not low <= number <= high or number != number.to_integral_value():
        raise ValueError(number)
    return int(number)


def _integers_of_decimals(source: pa.Array, cast: Callable[[pa.Array], CastResult]) -> CastResult:
    unscaled, scale = _unscaled(source), source.type.scale
    if unscaled is None or not 0 <= scale <= 18:
        return cast(source.cast(pa.string()))
    whole = pa.array(unscaled % 10**scale == 0)
    rounded = with_nulls(pa.array(unscaled // 10**scale), source.is_null())
    checked = keep(rounded, pc.if_else(source.is_valid(), whole, pa.scalar(None, pa.bool_())), pa.int64())
    return then(checked, cast(checked.values))


def to_double(source: pa.Array) -> CastResult:
    """Cast to the nearest double. A finite number beyond all doubles is bad; NaN and the infinities are values."""
    kind = source.type
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return all_good(source.cast(pa.float64()))
    if pa.types.is_integer(kind):
        return all_good(source.cast(pa.float64(), safe=False))
    if pa.types.is_decimal(kind):
        return _doubles_of_decimals(source)
    return _floats_of_text(source, pa.float64())


def to_float(source: pa.Array) -> CastResult:
    """Cast to the nearest float. Text and decimals are rounded once, not first to a double."""
    kind = source.type
    if pa.types.is_float64(kind):
        fits = pc.or_(pc.less_equal(pc.abs(source), FLOAT32_MAX), pc.invert(pc.is_finite(source)))
        return keep(source, fits, pa.float32())
    if pa.types.is_decimal(kind):
        return _floats_of_text(source.cast(pa.string()), pa.float32())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return all_good(source.cast(pa.float32(), safe=False))
    return _floats_of_text(source, pa.float32())


def _doubles_of_decimals(source: pa.Array) -> CastResult:
    unscaled, scale = _unscaled(source), source.type.scale
    small = unscaled is not None and (
        not len(unscaled) or max(-int(unscaled.min()), int(unscaled.max())) <= EXACT_DOUBLE
    )
    if unscaled is None or not small or not 0 <= scale <= MAX_EXACT_POWER:
        return _floats_of_text(source.cast(pa.string()), pa.float64())
    return all_good(with_nulls(pa.array(unscaled / 10.0**scale), source.is_null()))


def _unscaled(source: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """Return the unscaled integers of decimals, 0 for null; None if they need more than 64 bits."""
    if not pa.types.is_decimal128(source.type):
        return None
    if not len(source):
        # Arrow's buffer of an empty array may have any length, or be missing.
        return np.zeros(0, np.int64)
    words = np.frombuffer(source.buffers()[1], dtype=np.int64)[2 * source.offset : 2 * (source.offset + len(source))]
    low, high = words[0::2], words[1::2]
    if source.null_count:
        there = source.is_valid().to_numpy(zero_copy_only=False)
        low, high = np.where(there, low, 0), np.where(there, high, 0)
    return low if np.array_equal(high, low >> 63) else None


def _floats_of_text(source: pa.Array, target: pa.DataType) -> CastResult:
    if not pa.types.is_string(source.type):
        return all_bad(source, target)
    return by_pattern(source, NUMBER, partial(_floats, target=target), partial(_odd_floats, target=target))


def _floats(texts: pa.Array, target: pa.DataType) -> CastResult:
    values = texts.cast(target)
    finite = pc.is_finite(values)
    return all_good(values) if pc.all(finite, min_count=0).as_py() is not False else keep(values, finite, target)


def _odd_floats(texts: pa.Array, target: pa.DataType) -> CastResult:
    """Cast numbers with blanks around them, NaN and the infinities. All other texts are bad."""
    trimmed = pc.ascii_trim_whitespace(texts)
    special = pc.match_substring_regex(trimmed, NOT_FINITE)
    numbers = _floats(with_nulls(trimmed, pc.invert(pc.match_substring_regex(trimmed, NUMBER))), target)
    values = pc.if_else(special, with_nulls(trimmed, pc.invert(special)).cast(target), numbers.values)
    return CastResult(values, pc.or_(numbers.bad, pc.is_null(values)))


def to_boolean(source: pa.Array) -> CastResult:
    """Cast 0 and 1 of any numeric type, and `true` and `false` in any case."""
    kind = source.type
    if pa.types.is_boolean(kind):
        return all_good(source)
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        is_boolean = pc.or_(pc.equal(source, pa.scalar(0, kind)), pc.equal(source, pa.scalar(1, kind)))
        truth = pc.equal(source, pa.scalar(1, kind))
        return keep(truth, is_boolean, pa.bool_())
    if pa.types.is_float16(kind):
        return to_boolean(source.cast(pa.float32()))
    if pa.types.is_decimal(kind):
        return to_boolean(source.cast(pa.string()))  # The nearest double of a number beside 1 may be 1.
    if pa.types.is_string(kind):
        return map_distinct(source, _truth, pa.bool_())
    return all_bad(source, pa.bool_())


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    number = decimal_of(text)
    if number not in (0, 1):
        raise ValueError(text)
    return number == 1


def to_big_decimal(source: pa.Array) -> CastResult:
    """Cast to the canonical text of a number, see `plain_decimal`; a float by its shortest text."""
    kind = source.type
    if pa.types.is_boolean(kind):
        source = source.cast(pa.int8())
    if pa.types.is_integer(source.type):
        return all_good(source.cast(pa.string()))
    if pa.types.is_decimal(kind):
        source = source.cast(pa.string())
    if pa.types.is_floating(kind):
        return map_distinct(shortest(source), lambda number: plain_decimal(Decimal(repr(number))), pa.string())
    if not pa.types.is_string(source.type):
        return all_bad(source, pa.string())
    longest = pc.max(pc.binary_length(source)).as_py() or 0
    return _decimals_one_by_one(source) if longest > MAX_DECIMAL_DIGITS else _decimals_of_text(source)


def _decimals_of_text(source: pa.Array) -> CastResult:
    return by_pattern(source, SIMPLE_DECIMAL, _without_trailing_zeros, _decimals_one_by_one)


def _without_trailing_zeros(source: pa.Array) -> CastResult:
    texts = pc.replace_substring_regex(source, TRAILING_ZEROS, r"\1")
    return all_good(pc.if_else(pc.equal(texts, "-0"), "0", texts))


def _decimals_one_by_one(source: pa.Array) -> CastResult:
    return map_distinct(source, lambda text: plain_decimal(decimal_of(text)), pa.string())


def plain_decimal(number: Decimal) -> str:
    """Return the canonical text of a number: no exponent, no trailing zeros, no negative zero. Raises ValueError if it
    is not finite or has too many digits."""
    if not number.is_finite() or abs(number.adjusted()) > MAX_DECIMAL_DIGITS:
        raise ValueError(number)
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if len(text.partition(".")[2]) > MAX_DECIMAL_DIGITS:
        raise ValueError(number)
    return "0" if text in ("-0", "") else text


def shortest(source: pa.Array) -> pa.Array:
    """Return floats of any width as the doubles of their shortest texts: 0.1 of 32 bits becomes 0.1."""
    if pa.types.is_float16(source.type):
        wide = source.cast(pa.float32())
        return map_distinct(wide, lambda value: float(str(np.float16(value))), pa.float64()).values
    return source.cast(pa.string()).cast(pa.float64()) if pa.types.is_float32(source.type) else source


def _between(source: pa.Array, low: int, high: int) -> pa.Array:
    bounds = pc.min_max(source)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is None or (least >= low and most <= high):
        return constant(True, len(source))
    kind = source.type
    return pc.and_(
        pc.greater_equal(source, pa.scalar(low, kind)) if least < low else constant(True, len(source)),
        pc.less_equal(source, pa.scalar(high, kind)) if most > high else constant(True, len(source)),
    )
