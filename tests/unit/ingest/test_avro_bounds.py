"""A record that nests or counts more than its bytes hold is refused before fastavro reads it, and no other is."""

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.ingest.decoders.avro import AvroDecoder
from merlot.ingest.decoders.avro_bounds import MOST_DECIMAL_BYTES, shape_of
from merlot.ingest.decoders.protocol import NO_RECORD, Wanted
from merlot.kernels.avro_walk import MAX_DEPTH, SPARE_ITEMS

CHAIN = {
    "type": "record",
    "name": "Link",
    "fields": [{"name": "a", "type": "string"}, {"name": "next", "type": ["null", "Link"]}],
}
NESTED = {
    "type": "record",
    "name": "acme.Trip",
    "fields": [
        {"name": "a", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string", "long"]}},
        {"name": "by", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "in", "type": {"type": "record", "name": "In", "fields": [
            {"name": "f", "type": "float"}, {"name": "b", "type": "boolean"},
            {"name": "c", "type": ["null", "Color"]}]}},
        {"name": "chain", "type": ["null", CHAIN]},
    ],
}  # fmt: skip
EMPTY_ITEMS = ("null", {"type": "fixed", "name": "F", "size": 0}, {"type": "record", "name": "E", "fields": []})
chains: Any = st.recursive(
    st.none(), lambda below: st.fixed_dictionaries({"a": st.text(max_size=3), "next": below}), max_leaves=5
)
trips = st.fixed_dictionaries(
    {
        "a": st.text(max_size=3),
        "tags": st.lists(st.none() | st.text(max_size=3) | st.integers(-(2**63), 2**63 - 1), max_size=5),
        "by": st.dictionaries(st.text(max_size=3), st.lists(st.floats(allow_nan=False), max_size=3), max_size=3),
        "color": st.sampled_from(["RED", "BLUE"]),
        "hash": st.binary(min_size=3, max_size=3),
        "in": st.fixed_dictionaries(
            {"f": st.just(0.5), "b": st.booleans(), "c": st.none() | st.sampled_from(["RED", "BLUE"])}
        ),
        "chain": chains,
    }
)


def written(schema: Any, row: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), row)
    return sink.getvalue()


def is_bounded(schema: Any, message: bytes) -> bool:
    shape = shape_of(fastavro.parse_schema(schema))
    data = np.frombuffer(message, np.uint8)
    return not shape.unbounded(data, np.zeros(1, np.int64), np.array([len(message)], np.int64))[0]


def decoded(schema: Any, *payloads: bytes) -> tuple[list[int], dict[str, list[int]]]:
    decoder = AvroDecoder(Wanted(columns={"a": False}, names=("a",)), json.dumps(schema))
    (found,) = decoder.decode(pa.array(payloads, pa.large_binary()))
    return found.messages.tolist(), {reason: rows.tolist() for reason, rows in found.bad.items()}


def chain(levels: int) -> bytes:
    return b"\x02x\x02" * (levels - 1) + b"\x02x\x00"


def number(value: int) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, "long", value)
    return sink.getvalue()


def test_record_nested_deeper_than_the_stack_of_a_thread_is_bad_and_spoils_no_other() -> None:
    assert decoded(CHAIN, chain(1), chain(5_000), chain(MAX_DEPTH), chain(MAX_DEPTH + 1), chain(200_000)) == (
        [0, 2],
        {NO_RECORD: [1, 3, 4]},
    )


@pytest.mark.parametrize("item", EMPTY_ITEMS, ids=["null", "fixed", "record"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", ["array", "map of arrays"])
def test_items_that_take_no_bytes_are_bounded_by_the_message(item: Any, sign: int, kind: str) -> None:
    items: Any = {"type": "array", "items": item}
    prefix, suffix = b"\x02x", b"\0"
    if kind != "array":
        items, prefix, suffix = {"type": "map", "values": items}, b"\x02x\x02\x02k", b"\0\0"
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "string"}, {"name": "l", "type": items}],
    }
    size = b"" if sign > 0 else b"\0"
    payloads = [prefix + number(sign * count) + size + suffix for count in (3, SPARE_ITEMS, 2 * SPARE_ITEMS, 2**40)]
    least = prefix + number(-(2**63)) + b"\0" + suffix
    assert decoded(schema, *payloads, least) == ([0, 1], {NO_RECORD: [2, 3, 4]})


@pytest.mark.parametrize("kind", ["bytes", "fixed"])
def test_record_with_a_decimal_of_too_many_bytes_is_bad(kind: str) -> None:
    def schema(size: int) -> Any:
        of_size = {"name": "D", "size": size} if kind == "fixed" else {}
        item = {"type": kind, "logicalType": "decimal", "precision": 10, "scale": 2, **of_size}
        items = {"type": "array", "items": item}
        return {
            "type": "record",
            "name": "R",
            "fields": [{"name": "a", "type": "string"}, {"name": "l", "type": items}],
        }

    for size, expected in ((MOST_DECIMAL_BYTES, ([0], {})), (MOST_DECIMAL_BYTES + 1, ([], {NO_RECORD: [0]}))):
        length = b"" if kind == "fixed" else number(size)
        message = b"\x02x\x02" + length + b"\x7f" * size + b"\0"
        assert decoded(schema(size), message) == expected


def test_record_without_bytes_and_without_end_is_bad() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "l", "type": "R"}, {"name": "a", "type": "string"}]}
    assert not is_bounded(schema, b"\x02x")


@given(trips)
def test_what_fastavro_wrote_is_bounded(row: dict[str, Any]) -> None:
    assert is_bounded(NESTED, written(NESTED, row))


@given(trips, st.data())
def test_no_record_is_refused_but_for_a_reason_of_fastavro(row: dict[str, Any], data: st.DataObject) -> None:
    message = bytearray(written(NESTED, row))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(message) - 1))
        message[place] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
    if is_bounded(NESTED, bytes(message)):
        return
    source = io.BytesIO(message)
    try:
        read: Any = fastavro.schemaless_reader(source, fastavro.parse_schema(NESTED), None)
        is_whole = source.tell() == len(message)
    except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError):
        return
    # It reads negative lengths and numbers of branches, and numbers of more than 64 bits, as others than were written.
    assert not is_whole or written(NESTED, read) != message
