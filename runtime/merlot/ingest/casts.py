"""Cast one column of a source to a declared type, all rows at once.

A value without a counterpart in the type is marked as bad, never guessed: 12.5 is no INT, "abc" no LONG, 1e309 no
DOUBLE. NaN and the infinities are DOUBLE values. Arrow casts whole columns where that gives exactly the same as reading
the texts one by one. Otherwise the distinct values are read in Python, by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from merlot.ingest.arrays import (
    CastResult,
    all_bad,
    all_good,
    by_pattern,
    is_temporal,
    map_distinct,
    plain,
    readable,
    then,
)
from merlot.ingest.instants import FIRST_MS, LONG_RANGE, epoch_millis
from merlot.ingest.number_casts import to_big_decimal, to_boolean, to_double, to_float, to_integer, whole
from merlot.ingest.text_casts import to_bytes, to_json, to_string
from merlot.segment.arrow_types import ARROW_TYPES
from merlot.values.datetime_format import parse_timestamp
from merlot.values.number_text import decimal_of
from merlot.values.types import TypeName

TIMESTAMP_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?$"

CAST_TYPES: Mapping[TypeName, pa.DataType] = {**ARROW_TYPES, TypeName.TIMESTAMP: pa.int64()}
"""Arrow type of a cast value; TIMESTAMP is epoch milliseconds."""


def cast(column: pa.Array, target: TypeName) -> CastResult:
    """Cast a column to a type; nulls stay null and are never bad."""
    source = plain(column)
    if pa.types.is_null(source.type):
        return all_good(pa.nulls(len(source), CAST_TYPES[target]))
    if not pa.types.is_string(source.type):
        return _CASTS[target](source)
    texts = readable(source)
    return then(texts, _CASTS[target](texts.values))


def _to_timestamp(source: pa.Array) -> CastResult:
    kind = source.type
    if is_temporal(kind):
        return epoch_millis(source)
    if pa.types.is_string(kind):
        return by_pattern(source, TIMESTAMP_TEXT, _timestamps_at_once, _timestamps_one_by_one)
    if pa.types.is_boolean(kind):
        return all_bad(source, pa.int64())
    return _CASTS[TypeName.LONG](source)


def _timestamps_at_once(texts: pa.Array) -> CastResult:
    """Cast texts by Arrow where it can: it refuses all of them for one 30 February, and accepts a year 0."""
    try:
        instants = pc.utf8_rtrim(texts, "Z").cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return _timestamps_one_by_one(texts)
    millis = epoch_millis(instants).values
    early = pc.fill_null(pc.less(millis, FIRST_MS), False)
    return CastResult(pc.if_else(early, pa.scalar(None, pa.int64()), millis), early)


def _timestamps_one_by_one(texts: pa.Array) -> CastResult:
    return map_distinct(texts, _timestamp_of, pa.int64())


def _timestamp_of(text: str) -> int:
    """Read an instant. A number is milliseconds, also if it is written as `1.3e12`."""
    try:
        number = decimal_of(text)
    except ValueError:
        return parse_timestamp(text)
    return whole(number, *LONG_RANGE)


_CASTS: Mapping[TypeName, Callable[[pa.Array], CastResult]] = {
    TypeName.INT: to_integer(-(2**31), 2**31 - 1, pa.int32()),
    TypeName.LONG: to_integer(*LONG_RANGE, pa.int64()),
    TypeName.FLOAT: to_float,
    TypeName.DOUBLE: to_double,
    TypeName.BIG_DECIMAL: to_big_decimal,
    TypeName.BOOLEAN: to_boolean,
    TypeName.TIMESTAMP: _to_timestamp,
    TypeName.STRING: to_string,
    TypeName.JSON: to_json,
    TypeName.BYTES: to_bytes,
}
