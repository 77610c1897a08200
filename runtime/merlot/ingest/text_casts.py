"""Casts of columns to STRING, JSON and BYTES: the one text that a value of any type has.

Instants are `2013-01-31 23:59:59.999` in UTC, with six or nine digits if there is something below milliseconds. Floats
have the shortest text that is read as the same value; decimals have all their digits and no exponent. In JSON, numbers
are numbers, and everything else that JSON lacks is text in quotes, NaN and the infinities too; bytes are Base64. JSON
is written column by column in Arrow, nested values as well.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from merlot.ingest.arrays import (
    CastResult,
    all_bad,
    all_good,
    elements_of,
    is_list,
    keep,
    lengths_of,
    lists_of,
    map_distinct,
    parents_of,
    plain,
    readable,
    then,
    with_nulls,
)
from merlot.ingest.instants import FIRST_MS, LAST_MS, epoch_millis
from merlot.ingest.number_casts import shortest

NEEDS_ESCAPE = r'["\\\x00-\x1f]'
BELOW_MILLIS = r"(\.[0-9]{3}(?:[0-9]{3})??)(?:000){1,2}$"
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def to_string(source: pa.Array) -> CastResult:
    """Cast to text: text as it is, bytes as UTF-8, nested values as JSON."""
    kind = source.type
    if pa.types.is_string(kind):
        return all_good(source)
    if pa.types.is_binary(kind):
        return readable(source)
    if pa.types.is_nested(kind):
        return _nested_json(source)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind) and not pa.types.is_interval(kind):
        return _temporal_texts(source)
    if pa.types.is_floating(kind):
        return map_distinct(shortest(source), repr, pa.string())
    if pa.types.is_decimal(kind):
        return all_good(_decimal_texts(source))
    if isinstance(kind, pa.UuidType):
        return all_good(_uuid_texts(source.storage))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return all_good(source.cast(pa.string()))
    return all_bad(source, pa.string())


def to_json(source: pa.Array) -> CastResult:
    """Cast to JSON. Text, or bytes of text, has to be JSON already and stays as it is; other values are written as
    JSON."""
    if pa.types.is_string(source.type):
        return map_distinct(source, _checked_json, pa.string())
    if pa.types.is_binary(source.type):
        texts = to_string(source)
        return then(texts, to_json(texts.values))
    return json_of(source)


def to_bytes(source: pa.Array) -> CastResult:
    """Cast to bytes: binary and UUIDs as they are, text as hex, as in Pinot."""
    if isinstance(source.type, pa.UuidType):
        source = source.storage.cast(pa.binary())
    if pa.types.is_binary(source.type):
        return all_good(source)
    if pa.types.is_string(source.type):
        return map_distinct(source, bytes.fromhex, pa.binary())
    return all_bad(source, pa.binary())


def _checked_json(text: str) -> str:
    orjson.loads(text)
    return text


def _temporal_texts(source: pa.Array) -> CastResult:
    kind = source.type
    if pa.types.is_time(kind):
        day = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}[kind.unit]
        ticks = source.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
        fits = pc.and_(pc.greater_equal(ticks, 0), pc.less(ticks, day))
        times = keep(source, fits, kind)
        return CastResult(pc.replace_substring_regex(times.values.cast(pa.string()), r"\.?(?:000)+$", ""), times.bad)
    millis = epoch_millis(source)
    inside = pc.and_(pc.greater_equal(millis.values, FIRST_MS), pc.less_equal(millis.values, LAST_MS))
    valid = keep(source, pc.and_(inside, pc.invert(millis.bad)), kind)
    if pa.types.is_date(kind):
        return CastResult(valid.values.cast(pa.string()), valid.bad)
    return CastResult(_timestamp_texts(valid.values), valid.bad)


def _timestamp_texts(source: pa.Array) -> pa.Array:
    unit = "ms" if source.type.unit == "s" else source.type.unit
    # By way of integers, because a type with a zone would be written in the time of its zone.
    utc = source.cast(pa.int64()).cast(pa.timestamp(source.type.unit)).cast(pa.timestamp(unit))
    texts = pc.strftime(utc, format="%Y-%m-%d %H:%M:%S")
    return texts if unit == "ms" else pc.replace_substring_regex(texts, BELOW_MILLIS, r"\1")


def _decimal_texts(source: pa.Array) -> pa.Array:
    texts = source.cast(pa.string())
    if not pc.any(pc.match_substring(texts, "E"), min_count=0).as_py():
        return texts
    return map_distinct(texts, lambda text: format(Decimal(text), "f"), pa.string()).values


def _uuid_texts(raw: pa.Array) -> pa.Array:
    """Return UUIDs as texts of 8-4-4-4-12 digits."""
    data = pa.concat_arrays([pc.fill_null(raw, bytes(16))])
    octets = np.frombuffer(data.buffers()[1], dtype=np.uint8)[: 16 * len(raw)].reshape(-1, 16)
    digits = _HEX[np.stack([octets >> 4, octets & 15], axis=-1).reshape(-1, 32)]
    texts = np.insert(digits, [8, 12, 16, 20], ord("-"), axis=1)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(36), len(raw), [None, pa.py_buffer(texts.tobytes())])
    return with_nulls(fixed.cast(pa.binary()).cast(pa.string()), raw.is_null())


def json_of(source: pa.Array) -> CastResult:
    """Return a JSON value for each value; null where there is none."""
    kind = source.type
    if pa.types.is_null(kind):
        return all_good(source.cast(pa.string()))
    if pa.types.is_nested(kind):
        return _nested_json(source)
    if pa.types.is_binary(kind):
        return _quoted(map_distinct(source, lambda raw: base64.b64encode(raw).decode(), pa.string()))
    if pa.types.is_string(kind):
        return _quoted(readable(source))
    if pa.types.is_floating(kind):
        return map_distinct(shortest(source), json_text, pa.string())
    texts = to_string(source)
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)
    return texts if is_number else _quoted(texts)


def json_text(value: object) -> str:
    """Return a Python value as JSON: bytes as Base64, everything else that JSON lacks as text (NaN, decimals,
    dates)."""
    if isinstance(value, float) and not np.isfinite(value):
        return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}[repr(value)]

    def fallback(other: object) -> str:
        return base64.b64encode(other).decode() if isinstance(other, bytes) else str(other)

    return json.dumps(value, default=fallback, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _quoted(texts: CastResult) -> CastResult:
    if pc.any(pc.match_substring_regex(texts.values, NEEDS_ESCAPE), min_count=0).as_py():
        return CastResult(map_distinct(texts.values, json_text, pa.string()).values, texts.bad, texts.by_type)
    return CastResult(_joined('"', texts.values, '"'), texts.bad, texts.by_type)


def _nested_json(source: pa.Array) -> CastResult:
    kind = source.type
    if pa.types.is_map(kind):
        return _map_json(source)
    if is_list(kind):
        lists = plain(source)
        return _list_json(lists, json_of(plain(elements_of(lists))), "[]")
    names = [kind.field(position).name for position in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    if not pa.types.is_struct(kind) or len(set(names)) != len(names):
        return all_bad(source, pa.string())
    return _struct_json(source, names)


def _struct_json(source: pa.StructArray, names: list[str]) -> CastResult:
    parts: list[pa.Array | str] = []
    bad = np.zeros(len(source), dtype=bool)
    for name, values in zip(names, source.flatten(), strict=True):
        member = json_of(plain(values))
        bad |= member.bad.to_numpy(zero_copy_only=False)
        parts += [f"{',' if parts else '{'}{json_text(name)}:", pc.fill_null(member.values, "null")]
    texts = _joined(*parts, "}") if parts else pa.array(["{}"] * len(source), pa.string())
    return CastResult(with_nulls(texts, pc.or_(source.is_null(), pa.array(bad))), pa.array(bad))


def _list_json(lists: pa.ListArray, elements: CastResult, brackets: str) -> CastResult:
    bad = np.zeros(len(lists), dtype=bool)
    bad[parents_of(lists)[elements.bad.to_numpy(zero_copy_only=False)]] = True
    inner = lists_of(lengths_of(lists), pc.fill_null(elements.values, "null"))
    texts = _joined(brackets[0], pc.binary_join(inner, ","), brackets[1])
    return CastResult(with_nulls(texts, pc.or_(lists.is_null(), pa.array(bad))), pa.array(bad))


def _map_json(source: pa.MapArray) -> CastResult:
    """Write maps as JSON objects. A map is bad if it has a key twice, or a key without a text."""
    kind = source.type
    entry = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    lists = plain(source.cast(pa.list_(entry)))
    entries = elements_of(lists)
    keys, values = (plain(part) for part in entries.flatten())
    texts = to_string(keys) if not pa.types.is_string(keys.type) else readable(keys)
    names, members = _quoted(texts), json_of(values)
    bad = pc.or_(pc.or_(names.bad, members.bad), pc.or_(keys.is_null(), _repeated(lists, texts.values)))
    joined = _joined(names.values, ":", pc.fill_null(members.values, "null"))
    return _list_json(lists, CastResult(joined, bad), "{}")


def _repeated(lists: pa.ListArray, keys: pa.Array) -> pa.Array:
    """Return True where a list had the key before."""
    codes = keys.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = parents_of(lists) * (int(codes.max(initial=0)) + 2) + codes
    again = np.ones(len(pairs), dtype=bool)
    again[np.unique(pairs, return_index=True)[1]] = False
    return pa.array(again)


def _joined(*parts: pa.Array | str) -> pa.Array:
    """Join texts row by row; null where one of them is."""
    return pc.binary_join_element_wise(*parts, "")
