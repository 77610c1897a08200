"""One column of a source brought to a declared type, all rows at once.

A value that has no counterpart in the type is marked, never guessed: 12.5 is no INT, "abc" no LONG, 300 digits no
DOUBLE. NaN and the infinities are DOUBLE values. Whole columns are cast by Arrow when a check says that it cannot fail;
else the distinct values are read one by one in Python, by the same rules.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from merlot.errors import InvalidInputError
from merlot.segment.arrow_types import ARROW_TYPES
from merlot.spec.datetime_format import parse_timestamp
from merlot.spec.types import TypeName

FLOAT32_MAX = float(np.finfo(np.float32).max)
LONG_RANGE = (-(2**63), 2**63 - 1)
INTEGER_TEXT = r"^[+-]?[0-9]{1,18}$"
NUMBER_TEXT = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,2})?$"
TIMESTAMP_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"

CAST_TYPES: Mapping[TypeName, pa.DataType] = {**ARROW_TYPES, TypeName.TIMESTAMP: pa.int64()}
"""Arrow type of a cast value; TIMESTAMP is epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class Cast:
    """`values` has the type of CAST_TYPES, null where `bad` (boolean, no nulls) says that the value did not fit."""

    values: pa.Array
    bad: pa.Array


def cast(column: pa.Array, target: TypeName) -> Cast:
    """Bring a column to a type; nulls stay null and are never bad."""
    source = plain(column)
    if pa.types.is_null(source.type):
        return _all_good(pa.nulls(len(source), CAST_TYPES[target]))
    return _CASTS[target](source)


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array of a type that casts know: dictionaries decoded, large and view types made ordinary."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if _is_binary(kind) and not pa.types.is_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return column.cast(pa.list_(kind.value_type))
    return column


def is_temporal(kind: pa.DataType) -> bool:
    """Whether values are instants: timestamps and dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def is_nested(kind: pa.DataType) -> bool:
    """Whether values are structs, lists or maps."""
    return bool(pa.types.is_nested(kind))


def epoch_millis(column: pa.Array) -> pa.Array:
    """Instants as epoch milliseconds, rounded down, also before 1970; a timestamp without zone is UTC."""
    if pa.types.is_date32(column.type):
        days = column.cast(pa.int32()).cast(pa.int64())
        return pc.multiply(days, 86_400_000)
    if pa.types.is_date64(column.type):
        return column.cast(pa.int64())
    ticks = column.cast(pa.int64())
    if column.type.unit == "s":
        return pc.multiply(ticks, 1000)
    divisor = {"ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    return floor_divide(ticks, divisor)


def floor_divide(numbers: pa.Array, divisor: int) -> pa.Array:
    """Integer division that rounds down (Arrow's rounds towards zero)."""
    if divisor == 1:
        return numbers
    filled = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    return _with_nulls(pa.array(filled // divisor), pc.is_null(numbers))


def map_distinct(column: pa.Array, read: Callable[[Any], Any], target: pa.DataType) -> Cast:
    """Apply `read` to each distinct value; ValueError and its kin mark the value as bad."""
    encoded = column.dictionary_encode()
    values: list[Any] = []
    bad: list[bool] = []
    for value in encoded.dictionary.to_pylist():
        try:
            values.append(read(value))
            bad.append(False)
        except (ValueError, InvalidOperation, InvalidInputError, OverflowError, TypeError):
            values.append(None)
            bad.append(True)
    indices = encoded.indices
    is_bad = pc.fill_null(pc.take(pa.array(bad, pa.bool_()), indices), False)
    return Cast(pc.take(pa.array(values, target), indices), is_bad)


def json_text(value: Any) -> str:
    """A nested value as JSON; bytes as Base64, everything else that JSON lacks as text."""

    def fallback(other: Any) -> str:
        return base64.b64encode(other).decode() if isinstance(other, bytes) else str(other)

    return json.dumps(value, default=fallback, separators=(",", ":"), ensure_ascii=False)


def _to_integer(low: int, high: int, target: pa.DataType) -> Callable[[pa.Array], Cast]:
    def to_integer(source: pa.Array) -> Cast:
        kind = source.type
        if pa.types.is_boolean(kind):
            return _all_good(source.cast(target))
        if pa.types.is_integer(kind):
            return _keep(source, _between(source, low, high), target)
        if pa.types.is_floating(kind):
            # 2^63 - 1 is no double: the first double past the range bounds it, exclusively.
            whole = pc.and_(pc.is_finite(source), pc.equal(pc.trunc(source), source))
            inside = pc.and_(pc.greater_equal(source, float(low)), pc.less(source, float(high + 1)))
            return _keep(source, pc.and_(whole, inside), target)
        if pa.types.is_decimal(kind):
            return map_distinct(source, lambda value: _whole(value, low, high), target)
        if is_temporal(kind):
            return to_integer(epoch_millis(source))
        if pa.types.is_string(kind):
            if _all_match(source, INTEGER_TEXT):
                return to_integer(source.cast(pa.int64()))
            return map_distinct(source, lambda text: _whole(Decimal(text.strip()), low, high), target)
        return _all_bad(source, target)

    return to_integer


def _whole(number: Decimal, low: int, high: int) -> int:
    if not number.is_finite() or number != number.to_integral_value() or not low <= number <= high:
        raise ValueError(number)
    return int(number)


def _to_double(source: pa.Array) -> Cast:
    kind = source.type
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return _all_good(source.cast(pa.float32() if pa.types.is_boolean(kind) else kind).cast(pa.float64()))
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _all_good(source.cast(pa.float64(), safe=False))
    if pa.types.is_string(kind):
        if _all_match(source, NUMBER_TEXT):
            return _all_good(source.cast(pa.float64()))
        return map_distinct(source, _double_of, pa.float64())
    return _all_bad(source, pa.float64())


def _double_of(text: str) -> float:
    number = float(text)
    if math.isinf(number) and "inf" not in text.lower():
        raise OverflowError(text)
    if "_" in text:
        raise ValueError(text)
    return number


def _to_float(source: pa.Array) -> Cast:
    if pa.types.is_float32(source.type):
        return _all_good(source)
    wide = _to_double(source)
    fits = pc.or_(pc.less_equal(pc.abs(wide.values), FLOAT32_MAX), pc.invert(pc.is_finite(wide.values)))
    narrow = _keep(wide.values, fits, pa.float32())
    return Cast(narrow.values, pc.or_(wide.bad, narrow.bad))


def _to_boolean(source: pa.Array) -> Cast:
    kind = source.type
    if pa.types.is_boolean(kind):
        return _all_good(source)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        known = pc.or_(pc.equal(source, pa.scalar(0, kind)), pc.equal(source, pa.scalar(1, kind)))
        truth = pc.equal(source, pa.scalar(1, kind))
        return _keep(truth, known, pa.bool_())
    if pa.types.is_string(kind):
        return map_distinct(source, lambda text: _TRUTHS[text.strip().lower()], pa.bool_())
    return _all_bad(source, pa.bool_())


class _Truths(dict[str, bool]):
    def __missing__(self, text: str) -> bool:
        raise ValueError(text)


_TRUTHS = _Truths({"true": True, "false": False, "1": True, "0": False})


def _to_timestamp(source: pa.Array) -> Cast:
    kind = source.type
    if is_temporal(kind):
        return _all_good(epoch_millis(source))
    if pa.types.is_string(kind):
        fast = _timestamps_of_text(source)
        return fast if fast is not None else map_distinct(source, _timestamp_of, pa.int64())
    if pa.types.is_boolean(kind):
        return _all_bad(source, pa.int64())
    return _CASTS[TypeName.LONG](source)


def _timestamps_of_text(source: pa.Array) -> Cast | None:
    """All values at once, or None where one of them is unusual or wrong."""
    bare = source if not _all_match(source, r"Z$") else pc.utf8_slice_codeunits(source, 0, -1)
    if not _all_match(bare, TIMESTAMP_TEXT):
        return None
    try:
        return _all_good(epoch_millis(bare.cast(pa.timestamp("us"))))
    except pa.ArrowInvalid:
        return None


def _timestamp_of(text: str) -> int:
    millis = parse_timestamp(text)
    if not LONG_RANGE[0] <= millis <= LONG_RANGE[1]:
        raise OverflowError(text)
    return millis


def _to_string(source: pa.Array) -> Cast:
    kind = source.type
    if pa.types.is_string(kind):
        return _all_good(source)
    if pa.types.is_floating(kind):
        return map_distinct(source, repr, pa.string())
    if pa.types.is_decimal(kind):
        return map_distinct(source, lambda number: format(number, "f"), pa.string())
    if pa.types.is_binary(kind):
        try:
            return _all_good(source.cast(pa.string()))
        except pa.ArrowInvalid:
            return map_distinct(source, lambda raw: raw.decode(), pa.string())
    if is_nested(kind):
        return _texts(source)
    if pa.types.is_timestamp(kind):
        millis = pc.cast(epoch_millis(source), pa.timestamp("ms"))
        return _all_good(pc.strftime(millis, format="%Y-%m-%d %H:%M:%S"))
    return _all_good(source.cast(pa.string()))


def _texts(source: pa.Array) -> Cast:
    maps = "strict" if pa.types.is_map(source.type) else None
    rows = source.to_pylist(maps_as_pydicts=maps)
    return _all_good(pa.array([None if row is None else json_text(row) for row in rows], pa.string()))


def _to_json(source: pa.Array) -> Cast:
    """Text has to be JSON already, and stays as it is; anything else is written as JSON."""
    kind = source.type
    if pa.types.is_string(kind):
        return map_distinct(source, _checked_json, pa.string())
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return map_distinct(source, json_text, pa.string())
    if pa.types.is_temporal(kind):
        text = _to_string(source)
        return Cast(map_distinct(text.values, json_text, pa.string()).values, text.bad)
    return _to_string(source)


def _checked_json(text: str) -> str:
    orjson.loads(text)
    return text


def _to_bytes(source: pa.Array) -> Cast:
    """Binary as it is; text is read as hex, as Pinot does."""
    if pa.types.is_binary(source.type):
        return _all_good(source)
    if pa.types.is_string(source.type):
        return map_distinct(source, bytes.fromhex, pa.binary())
    return _all_bad(source, pa.binary())


def _to_decimal(source: pa.Array) -> Cast:
    kind = source.type
    if pa.types.is_integer(kind):
        return _all_good(source.cast(pa.string()))
    if pa.types.is_decimal(kind):
        return map_distinct(source, plain_decimal, pa.string())
    if pa.types.is_floating(kind):
        return map_distinct(source, lambda number: plain_decimal(Decimal(repr(number))), pa.string())
    if pa.types.is_string(kind):
        return map_distinct(source, lambda text: plain_decimal(Decimal(text.strip())), pa.string())
    return _all_bad(source, pa.string())


def plain_decimal(number: Decimal) -> str:
    """The one text of a number: no exponent, no trailing zeros, no negative zero."""
    if not number.is_finite() or abs(number.adjusted()) > 10_000:
        raise ValueError(number)
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _all_good(values: pa.Array) -> Cast:
    return Cast(values, _constant(False, len(values)))


def _all_bad(source: pa.Array, target: pa.DataType) -> Cast:
    return Cast(pa.nulls(len(source), target), source.is_valid())


def _keep(source: pa.Array, fits: pa.Array, target: pa.DataType) -> Cast:
    """The values that fit; `fits` is null where the source is."""
    bad = pc.invert(pc.fill_null(fits, True))
    return Cast(_with_nulls(source, bad).cast(target, safe=False), bad)


def _between(source: pa.Array, low: int, high: int) -> pa.Array:
    bounds = pc.min_max(source)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is None or (least >= low and most <= high):
        return _constant(True, len(source))
    kind = source.type
    return pc.and_(
        pc.greater_equal(source, pa.scalar(low, kind)) if least < low else _constant(True, len(source)),
        pc.less_equal(source, pa.scalar(high, kind)) if most > high else _constant(True, len(source)),
    )


def _with_nulls(values: pa.Array, mask: pa.Array) -> pa.Array:
    return pc.if_else(mask, pa.scalar(None, values.type), values)


def _constant(value: bool, length: int) -> pa.Array:
    return pa.array(np.full(length, value))


def _all_match(source: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(source, pattern), min_count=0).as_py() is not False)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


_CASTS: Mapping[TypeName, Callable[[pa.Array], Cast]] = {
    TypeName.INT: _to_integer(-(2**31), 2**31 - 1, pa.int32()),
    TypeName.LONG: _to_integer(*LONG_RANGE, pa.int64()),
    TypeName.FLOAT: _to_float,
    TypeName.DOUBLE: _to_double,
    TypeName.BIG_DECIMAL: _to_decimal,
    TypeName.BOOLEAN: _to_boolean,
    TypeName.TIMESTAMP: _to_timestamp,
    TypeName.STRING: _to_string,
    TypeName.JSON: _to_json,
    TypeName.BYTES: _to_bytes,
}
