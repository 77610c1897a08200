"""Avro messages are read as fastavro wrote them, at once and one by one, and what is no record is found."""

import io
import json
import math
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.apps import CUT_SHORT, serve_bytes
from tests.unit.ingest.test_stream_pipeline import messages, pipeline

from merlot.errors import InvalidInputError, UnavailableError
from merlot.ingest.decoders import avro, avro_schema
from merlot.ingest.decoders.avro import AvroDecoder, RegistryDecoder
from merlot.ingest.decoders.protocol import Decoded, Wanted, bytes_of
from merlot.ingest.decoders.registry import SchemaRegistry
from merlot.streams.protocol import NotYetError, StreamAccessError

FLAT = {
    "type": "record",
    "name": "acme.Trip",
    "fields": [
        {"name": "city", "type": "string"},
        {"name": "rides", "type": "int"},
        {"name": "skipped", "type": {"type": "record", "name": "Inner", "fields": [
            {"name": "a", "type": ["null", "string"]}, {"name": "b", "type": "double"}]}},
        {"name": "big", "type": ["null", "long"]},
        {"name": "fare", "type": ["double", "null"]},
        {"name": "share", "type": "float"},
        {"name": "is_paid", "type": ["null", "boolean"]},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 3}},
        {"name": "color", "type": ["null", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}]},
        {"name": "again", "type": "Color"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}]},
        {"name": "nothing", "type": "null"},
    ],
}  # fmt: skip
WANTED = {name: False for name in (one["name"] for one in FLAT["fields"]) if name != "skipped"}  # type: ignore[index]
longs = st.integers(-(2**63), 2**63 - 1)
trips = st.fixed_dictionaries(
    {
        "city": st.text(max_size=5),
        "rides": st.integers(-(2**31), 2**31 - 1),
        "skipped": st.fixed_dictionaries(
            {"a": st.none() | st.text(max_size=3), "b": st.floats(allow_nan=False, width=64)}
        ),
        "big": st.none() | longs,
        "fare": st.none() | st.floats(allow_nan=False),
        "share": st.floats(allow_nan=False, width=32),
        "is_paid": st.none() | st.booleans(),
        "raw": st.binary(max_size=5),
        "hash": st.binary(min_size=3, max_size=3),
        "color": st.none() | st.sampled_from(["RED", "BLUE"]),
        "again": st.sampled_from(["RED", "BLUE"]),
        "day": st.dates(date(1, 1, 1), date(9999, 12, 31)),
        "at": st.datetimes(timezones=st.just(UTC)),
        "price": st.none() | st.decimals(-(10**15), 10**15, places=2),
        "nothing": st.none(),
    }
)


def written(schema: Any, row: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), row)
    return sink.getvalue()


def decoded(schema: Any, payloads: list[bytes], wanted: dict[str, bool]) -> Decoded:
    decoder = AvroDecoder(Wanted(columns=wanted, names=()), json.dumps(schema))
    [found] = decoder.decode(pa.array(payloads, pa.large_binary()))
    return found


def rows_of(found: Decoded) -> list[dict[str, Any]]:
    columns = {name: column.to_pylist() for name, column in found.columns.items()}
    return [{name: values[row] for name, values in columns.items()} for row in range(len(found.messages))]


def bad_of(found: Decoded) -> list[int]:
    return sorted(int(row) for rows in found.bad.values() for row in rows)


def expected(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: row[name] for name in WANTED}
    return kept | {"at": row["at"].replace(tzinfo=None)}


@given(st.lists(trips, max_size=5))
def test_records_are_what_was_written(rows: list[dict[str, Any]]) -> None:
    found = decoded(FLAT, [written(FLAT, row) for row in rows], WANTED)
    assert rows_of(found) == [expected(row) for row in rows]
    assert bad_of(found) == []


@given(st.lists(trips, min_size=1, max_size=4), st.data())
def test_broken_records_are_found_and_spoil_no_other(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    payloads = [written(FLAT, row) for row in rows]
    place = data.draw(st.integers(0, len(rows) - 1))
    cut = data.draw(st.integers(0, len(payloads[place]) - 1))
    payloads[place] = data.draw(st.sampled_from([payloads[place][:cut], payloads[place] + b"\x00"]))
    found = decoded(FLAT, payloads, WANTED)
    assert bad_of(found) == [place]
    assert rows_of(found) == [expected(row) for row in rows[:place] + rows[place + 1 :]]


@given(st.lists(st.one_of(st.binary(max_size=40), trips.map(lambda row: written(FLAT, row))), max_size=5))
def test_both_ways_of_reading_say_the_same(payloads: list[bytes]) -> None:
    schema = avro_schema.read_schema(json.dumps(FLAT), Wanted(columns=WANTED, names=()))
    data, starts = bytes_of(pa.array(payloads, pa.large_binary()))
    records = avro._AvroRecords(data, starts[:-1], starts[1:], np.arange(len(payloads)))
    at_once, bad = avro._at_once(schema, records)
    slowly, bad_slowly = avro._one_by_one(schema, records)
    # fastavro takes some bytes that are no record: a boolean of 7, text that is no text.
    assert not (bad_slowly & ~bad).any()
    good = pa.array(np.flatnonzero(~bad & ~bad_slowly))
    for name, column in at_once.items():
        assert column.take(good).to_pylist() == slowly[name].take(good).to_pylist()


def test_nested_values_are_lists_and_json() -> None:
    schema = {
        "type": "record",
        "name": "Trip",
        "fields": [
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "props", "type": {"type": "map", "values": ["null", "long"]}},
            {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}},
            {"name": "mixed", "type": ["null", "long", "string", "Inner"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    rows = [
        {"tags": ["a", "b"], "props": {"k": 1}, "inner": {"x": 1}, "mixed": 5, "at": datetime(2020, 1, 1, tzinfo=UTC)},
        {"tags": [], "props": {}, "inner": {"x": 2}, "mixed": {"x": 3}, "at": datetime(1969, 1, 1, tzinfo=UTC)},
    ]
    payloads = [written(schema, row) for row in rows]
    found = decoded(
        schema,
        [payloads[0], payloads[1][:-1], payloads[1]],
        dict.fromkeys(("tags", "props", "inner", "mixed", "at"), False),
    )
    assert bad_of(found) == [1]
    assert found.columns["tags"].to_pylist() == [["a", "b"], []]
    assert found.columns["props"].to_pylist() == [[("k", 1)], []]
    assert found.columns["inner"].to_pylist() == [{"x": 1}, {"x": 2}]
    assert found.columns["mixed"].to_pylist() == ["5", '{"x":3}']
    assert found.columns["at"].cast(pa.int64()).to_pylist() == [1_577_836_800_000, -31_536_000_000]


def test_decimal_beyond_all_bounds_is_no_record() -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "p", "type": {
        "type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 1}}]}  # fmt: skip
    payloads = [written(schema, {"p": Decimal(text)}) for text in ("-1.5", "1" * 50, "0.1")]
    found = decoded(schema, payloads, {"p": False})
    assert found.columns["p"].to_pylist() == [Decimal("-1.5"), Decimal("0.1")]
    assert bad_of(found) == [1]


NO_TYPE = '{"type": "record", "name": "T", "fields": [{"name": "a", "type": "nix"}]}'
TWICE = '{"type": "record", "name": "T", "fields": [{"name": "aB", "type": "int"}, {"name": "AB", "type": "int"}]}'


@pytest.mark.parametrize("schema", ["", "{}", '"string"', "[]", NO_TYPE, TWICE])
def test_wrong_schema_is_refused(schema: str) -> None:
    with pytest.raises(InvalidInputError):
        AvroDecoder(Wanted(columns={"ab": False}, names=()), schema)


SCHEMAS = {
    1: {"type": "record", "name": "T", "fields": [{"name": "n", "type": "int"}]},
    2: {"type": "record", "name": "T", "fields": [{"name": "n", "type": "string"}, {"name": "m", "type": "long"}]},
    3: "string",
}


class _Registry(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        number = int(self.path.rpartition("/")[2])
        if number in (301, 302):
            self.send_response(302)
            elsewhere = "127.0.0.2" if number == 302 else "127.0.0.1"
            port = self.server.server_address[1]
            self.send_header("Location", f"http://{elsewhere}:{port!s}/schemas/ids/1")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status = {401: 401, 500: 500}.get(number, 200 if number in SCHEMAS else 404)
        body = json.dumps({"schema": json.dumps(SCHEMAS.get(number))}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[tuple[str, list[str]]]:
    handler = type("Handler", (_Registry,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", handler.asked  # type: ignore[attr-defined]
        server.shutdown()


def framed(number: int, row: Any) -> bytes:
    return struct.pack(">bI", 0, number) + (written(SCHEMAS[number], row) if number in (1, 2) else b"\x00")


def test_each_message_is_read_by_the_schema_that_it_names(registry: tuple[str, list[str]]) -> None:
    url, asked = registry
    clock = Clock()
    decoder = RegistryDecoder(Wanted(columns={"n": False, "m": False}, names=()), SchemaRegistry(url, {}), clock)
    payloads = [
        *(framed(1, {"n": 7}), framed(1, {"n": 8}), framed(2, {"n": "x", "m": 9}), framed(1, {"n": 1})[:-1]),
        *(framed(404, None), framed(3, None), b"\x00\x00", b"", b"\x01" + framed(1, {"n": 1})[1:], framed(1, {"n": 5})),
    ]
    with pytest.raises(NotYetError, match="number=404"):
        decoder.decode(pa.array(payloads, pa.large_binary()))
    clock.now += avro.HOLD_S
    asked.clear()
    pieces = decoder.decode(pa.array(payloads, pa.large_binary()))
    found = [
        (row, values) for piece in pieces for row, values in zip(piece.messages.tolist(), rows_of(piece), strict=True)
    ]
    assert found == [(0, {"n": 7}), (1, {"n": 8}), (9, {"n": 5}), (2, {"n": "x", "m": 9})]
    reasons = {int(row): reason for piece in pieces for reason, rows in piece.bad.items() for row in rows}
    assert reasons == {
        3: "the message is no record",
        4: "unknown schema number=404",
        5: "unusable schema number=3: wrong Avro schema reason=it is not of a record",
        **dict.fromkeys((6, 7, 8), "the message names no schema"),
    }
    decoder.decode(pa.array(payloads, pa.large_binary()))
    assert sorted(asked) == sorted(set(asked)), "each schema is asked for once"


def test_messages_of_two_schemas_by_turns_are_rows_in_their_order(registry: tuple[str, list[str]]) -> None:
    payloads = [framed(1, {"n": 7}), framed(2, {"n": "x", "m": 9})] * 50
    decoder = RegistryDecoder(Wanted(columns={"n": False}, names=()), SchemaRegistry(registry[0], {}))
    assert len(decoder.decode(pa.array(payloads, pa.large_binary()))) == 2
    fields = [{"name": "n", "type": "STRING"}, {"name": "at", "type": "TIMESTAMP", "role": "dateTime"}]
    made = pipeline(fields, metadata={"at": "timestamp"}, decoder={"type": "AVRO", "schemaRegistry": registry[0]})
    found = made.rows(messages(*payloads, timestamps_ms=np.arange(100, dtype=np.int64)))
    assert found.rows.column("n").to_pylist() == ["7", "x"] * 50
    assert found.offsets.tolist() == list(range(100, 200))


def test_many_schemas_that_nobody_knows_are_few_reasons() -> None:
    decoder, _, clock = late_decoder()
    payloads = pa.array([struct.pack(">bI", 0, number) for number in range(100)], pa.large_binary())
    with pytest.raises(NotYetError):
        decoder.decode(payloads)
    clock.now += avro.HOLD_S
    [piece] = decoder.decode(payloads)
    assert len(piece.bad) == avro.MAX_REASONS + 1
    assert sorted(row for rows in piece.bad.values() for row in rows.tolist()) == list(range(100))


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class LateRegistry:
    """Knows schemas from a time on."""

    clock: Clock
    since: dict[int, float]
    num_asked: int = 0

    def schema(self, number: int) -> str | None:
        self.num_asked += 1
        return json.dumps(SCHEMAS[1]) if self.clock.now >= self.since.get(number, math.inf) else None


def late_decoder(**since: float) -> tuple[RegistryDecoder, LateRegistry, Clock]:
    clock = Clock()
    registry = LateRegistry(clock, {int(number[1:]): clock.now + after for number, after in since.items()})
    wanted = Wanted(columns={"n": False}, names=())
    return RegistryDecoder(wanted, cast(SchemaRegistry, registry), clock), registry, clock


def asked_of(decoder: RegistryDecoder, number: int) -> list[dict[str, Any]] | str:
    message = struct.pack(">bI", 0, number) + written(SCHEMAS[1], {"n": 7})
    try:
        [piece] = decoder.decode(pa.array([message], pa.large_binary()))
    except NotYetError:
        return "wait"
    return rows_of(piece) or next(iter(piece.bad))


def test_schema_that_the_registry_knows_a_moment_later_costs_no_message() -> None:
    decoder, registry, clock = late_decoder(_5=2.0)
    seen = []
    for _ in range(30):
        seen.append(asked_of(decoder, 5))
        clock.now += 0.1
    assert [one for one in seen if one != "wait"] == [[{"n": 7}]] * seen.count([{"n": 7}])
    assert seen[0] == "wait"
    assert seen[-1] == [{"n": 7}]
    assert registry.num_asked <= 2.0 / avro.HOLD_ASK_S + 2


def test_schema_that_nobody_knows_holds_up_a_partition_for_a_moment_and_is_asked_for_again() -> None:
    decoder, registry, clock = late_decoder(_6=avro.HOLD_S + 20)
    assert asked_of(decoder, 6) == "wait"
    clock.now += avro.HOLD_S
    assert [asked_of(decoder, number) for number in (6, 7, 8, 9)] == [
        f"unknown schema number={n}" for n in (6, 7, 8, 9)
    ]
    asked = registry.num_asked
    assert asked_of(decoder, 6) == "unknown schema number=6"
    assert registry.num_asked == asked
    clock.now += 20 + avro.ASK_AGAIN_S
    assert asked_of(decoder, 6) == [{"n": 7}]
    clock.now += avro.HOLD_AGAIN_S
    assert asked_of(decoder, 7) == "wait"


def test_numbers_that_nobody_knows_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MAX_UNKNOWN", 3)
    decoder, _, clock = late_decoder()
    assert asked_of(decoder, 1) == "wait"
    clock.now += avro.HOLD_S
    for number in range(20):
        assert asked_of(decoder, number) == f"unknown schema number={number}"
    assert len(decoder._asked_at) <= 3


@pytest.mark.parametrize(("number", "error"), [(401, StreamAccessError), (500, UnavailableError)])
def test_registry_that_gives_no_answer_makes_no_message_bad(
    registry: tuple[str, list[str]], number: int, error: type[Exception]
) -> None:
    decoder = RegistryDecoder(Wanted(columns={"n": False}, names=()), SchemaRegistry(registry[0], {}))
    with pytest.raises(error):
        decoder.decode(pa.array([framed(number, None)], pa.large_binary()))


def test_a_redirect_carries_no_credentials_to_another_host(registry: tuple[str, list[str]]) -> None:
    url, asked = registry
    known = SchemaRegistry(url, {"basic.auth.user.info": "user:secret"})
    assert known.schema(301) == json.dumps(SCHEMAS[1])
    asked.clear()
    with pytest.raises(StreamAccessError, match="sends to another host: name that one url=http://127"):
        known.schema(302)
    assert asked == ["/schemas/ids/302"]


@pytest.mark.parametrize("answer", [CUT_SHORT, b"hello\r\n\r\n"], ids=["cut short", "no HTTP"])
def test_registry_whose_answer_is_broken_is_unavailable(answer: bytes) -> None:
    with serve_bytes(answer) as url, pytest.raises(UnavailableError, match="does not answer number=1"):
        SchemaRegistry(url, {}).schema(1)


def test_registry_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match="does not answer"):
        SchemaRegistry("http://127.0.0.1:1", {}).schema(1)
