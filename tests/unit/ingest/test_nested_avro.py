"""Values within records, lists, maps and unions have their logical types, in every schema that fastavro writes."""

from __future__ import annotations

import base64
import io
import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests import budget

from merlot.ingest import arrays, casts
from merlot.ingest.decoders.avro import AvroDecoder
from merlot.ingest.decoders.protocol import Wanted
from merlot.ingest.message_values import as_json, as_text
from merlot.values.types import TypeName

NUM_SCHEMAS = budget.count("MERLOT_AVRO_SCHEMAS", quick=120, every=3_000, fuzz=30_000)
DEPTH = 3
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Drawn:
    """A schema, a value as fastavro takes it, and what its JSON is read as."""

    schema: Any
    value: Any
    json: Any


class Draw:
    """Makes random types, with new names for those that need one."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._numbers = itertools.count()

    def any(self, depth: int) -> Drawn:
        """A type of up to so many levels, and a value of it."""
        if depth == 0 or self.random.random() < 0.3:
            return self.leaf()
        return self.nested(depth)

    def nested(self, depth: int) -> Drawn:
        """A list, a map, a record or a union."""
        return self.random.choice((self._list, self._map, self._record, self._union))(depth)

    def leaf(self) -> Drawn:
        """A value without others in it."""
        return self.random.choice(LEAVES)(self)

    def name(self) -> str:
        return f"N{next(self._numbers)}"

    def _list(self, depth: int) -> Drawn:
        one = self.any(depth - 1)
        times = self.random.randrange(3)
        return Drawn({"type": "array", "items": one.schema}, [one.value] * times, [one.json] * times)

    def _map(self, depth: int) -> Drawn:
        one = self.any(depth - 1)
        keys = self.random.sample(["a", 'b"', "é"], self.random.randrange(3))
        made = (dict.fromkeys(keys, part) for part in (one.value, one.json))
        return Drawn({"type": "map", "values": one.schema}, *made)

    def _record(self, depth: int) -> Drawn:
        members = [(f"f{place}", self.any(depth - 1)) for place in range(self.random.randrange(1, 4))]
        fields = [{"name": name, "type": one.schema} for name, one in members]
        value, expected = ({name: getattr(one, part) for name, one in members} for part in ("value", "json"))
        return Drawn({"type": "record", "name": self.name(), "fields": fields}, value, expected)

    def _union(self, depth: int) -> Drawn:
        one = self.any(depth - 1)
        if isinstance(one.schema, list):
            return one
        others: list[Any] = ["null"]
        if self.random.random() < 0.5 and kind_of(one.schema) != "boolean":
            others.append("boolean")
        if self.random.random() < 0.2:
            return Drawn([*others, one.schema], None, None)
        return Drawn([*others, one.schema], one.value, one.json)


def kind_of(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


Leaf = Callable[[Draw], Drawn]


def leaf(schema: Any, values: Callable[[random.Random], Any], expected: Callable[[Any], Any]) -> Leaf:
    def made(draw: Draw) -> Drawn:
        value = values(draw.random)
        named = {**schema, "name": draw.name()} if kind_of(schema) in ("fixed", "enum") else schema
        return Drawn(named, value, expected(value))

    return made


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def same(value: Any) -> Any:
    return value


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def instant(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
    return text.removesuffix("000")


def clock(value: time) -> str:
    text = value.isoformat("microseconds")
    return text.removesuffix(".000000").removesuffix("000") if text.endswith("000") else text


def moments(step_us: int, zone: Any) -> Callable[[random.Random], datetime]:
    def drawn(draw: random.Random) -> datetime:
        ticks = draw.randrange(-(10**15), 10**15) // step_us * step_us
        return (EPOCH + timedelta(microseconds=ticks)).replace(tzinfo=zone)

    return drawn


def times(step_us: int) -> Callable[[random.Random], time]:
    return lambda draw: (EPOCH + timedelta(microseconds=draw.randrange(86_400_000_000) // step_us * step_us)).time()


def decimals(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    return lambda draw: Decimal(draw.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale)


LEAVES: Sequence[Leaf] = (
    leaf("int", lambda draw: draw.randrange(-(2**31), 2**31), same),
    leaf("long", lambda draw: draw.randrange(-(2**63), 2**63), same),
    leaf("double", lambda draw: draw.choice([0.5, -1.25, 1e300]), lambda value: Decimal(repr(value))),
    leaf("string", lambda draw: draw.choice(["", "a", 'é"', "5"]), same),
    leaf("boolean", lambda draw: draw.random() < 0.5, same),
    leaf("bytes", lambda draw: draw.randbytes(3), encoded),
    leaf({"type": "fixed", "size": 3}, lambda draw: draw.randbytes(3), encoded),
    leaf({"type": "enum", "symbols": ["RED", "BLUE"]}, lambda draw: draw.choice(["RED", "BLUE"]), same),
    leaf(logical("int", "date"), lambda draw: date.fromordinal(draw.randrange(700_000, 740_000)), date.isoformat),
    leaf(logical("int", "time-millis"), times(1_000), clock),
    leaf(logical("long", "time-micros"), times(1), clock),
    leaf(logical("long", "timestamp-millis"), moments(1_000, UTC), instant),
    leaf(logical("long", "timestamp-micros"), moments(1, UTC), instant),
    leaf(logical("long", "local-timestamp-millis"), moments(1_000, None), instant),
    leaf(logical("long", "local-timestamp-micros"), moments(1, None), instant),
    leaf(logical("bytes", "decimal", precision=20, scale=2), decimals(20, 2), same),
    leaf(logical("fixed", "decimal", size=9, precision=18, scale=3), decimals(18, 3), same),
    leaf(logical("string", "uuid"), lambda draw: "00000000-0000-0000-0000-00000000000A", same),
)


def column(drawn: Drawn, *, as_json: bool = False) -> pa.Table:
    schema = {"type": "record", "name": "Message", "fields": [{"name": "v", "type": drawn.schema}]}
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), {"v": drawn.value})
    wanted = Wanted(columns={"v": False}, as_json=frozenset(["v"] if as_json else []), names=())
    [found] = AvroDecoder(wanted, json.dumps(schema)).decode(pa.array([sink.getvalue()], pa.large_binary()))
    assert not found.bad, (schema, drawn.value)
    return pa.table(dict(found.columns))


def read(text: str | None) -> Any:
    return None if text is None else json.loads(text, parse_float=Decimal)


def numbers(value: Any) -> Any:
    """Decimals by their values: 1.50 is 1.5."""
    if isinstance(value, Mapping):
        return {name: numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [numbers(one) for one in value]
    return Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value


def test_random_nested_values_are_the_json_that_was_written() -> None:
    seed = budget.seed()
    for number in range(NUM_SCHEMAS):
        drawn = Draw(seed + number).nested(DEPTH)
        as_field = as_json(column(drawn, as_json=True), "v").to_pylist()[0]
        assert numbers(read(as_field)) == numbers(drawn.json), drawn.schema
        if isinstance(drawn.json, dict | list):
            as_column = casts.cast(arrays.plain(column(drawn).column("v")), TypeName.JSON).values.to_pylist()[0]
            assert numbers(read(as_column)) == numbers(drawn.json), drawn.schema


def _is_text_in_a_union(made: Leaf) -> bool:
    """Whether it can stand beside a boolean, and is no bytes, which are JSON there."""
    one = made(Draw(0))
    return isinstance(one.value, Decimal) or kind_of(one.schema) not in ("boolean", "bytes", "fixed")


@pytest.mark.parametrize("made", list(filter(_is_text_in_a_union, LEAVES)))
def test_union_of_several_types_is_the_text_that_a_column_of_one_type_is(made: Leaf) -> None:
    one = made(Draw(budget.seed()))
    plain = as_text(column(one), "v")
    assert as_text(column(Drawn(["null", "boolean", one.schema], one.value, None)), "v").equals(plain)


def test_decimal_of_more_digits_than_arrow_has_makes_its_record_bad_and_no_other() -> None:
    item = logical("bytes", "decimal", precision=60, scale=1)
    schema = {"type": "record", "name": "T", "fields": [{"name": "v", "type": {"type": "array", "items": item}}]}
    payloads = []
    for text in ("-1.5", "1" * 50, "0.1"):
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), {"v": [Decimal(text)]})
        payloads.append(sink.getvalue())
    decoder = AvroDecoder(Wanted(columns={"v": True}, names=()), json.dumps(schema))
    [found] = decoder.decode(pa.array(payloads, pa.large_binary()))
    assert found.columns["v"].to_pylist() == [[Decimal("-1.5")], [Decimal("0.1")]]
    assert found.messages.tolist() == [0, 2]


def test_fixed_of_sixteen_bytes_is_a_uuid_alone_and_in_a_list() -> None:
    uuid = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    fields = [
        {"name": "one", "type": uuid},
        {"name": "some", "type": {"type": "array", "items": "U"}},
        {"name": "mixed", "type": ["null", "U", "boolean"]},
    ]
    raw = bytes(range(16))
    payload = raw + b"\x02" + raw + b"\x00" + b"\x02" + raw
    decoder = AvroDecoder(
        Wanted(columns=dict.fromkeys(("one", "some", "mixed"), False), names=()),
        json.dumps({"type": "record", "name": "T", "fields": fields}),
    )
    [found] = decoder.decode(pa.array([payload], pa.large_binary()))
    text, rows = "00010203-0405-0607-0809-0a0b0c0d0e0f", pa.table(dict(found.columns))
    assert [as_text(rows, name).to_pylist()[0] for name in ("one", "some", "mixed")] == [text, f'["{text}"]', text]


def test_uuids_of_sixteen_bytes_in_a_flat_record_are_uuids() -> None:
    uuid = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    raw = bytes(range(16))
    rows = column(Drawn(uuid, raw, None))
    assert as_text(rows, "v").to_pylist() == ["00010203-0405-0607-0809-0a0b0c0d0e0f"]
    assert casts.cast(arrays.plain(rows.column("v")), TypeName.BYTES).values.to_pylist() == [raw]


@pytest.mark.parametrize("nanos", [0, 1, 1_000, -1, 1_577_836_800_123_456_789])
def test_instant_of_nanoseconds_is_the_same_alone_and_within_others(nanos: int) -> None:
    kind = logical("long", "timestamp-nanos")
    fields = [
        {"name": "one", "type": kind},
        {"name": "some", "type": {"type": "array", "items": kind}},
        {"name": "mixed", "type": ["null", kind, "string"]},
    ]
    schema = {"type": "record", "name": "T", "fields": fields}
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), {"one": nanos, "some": [nanos], "mixed": nanos})
    decoder = AvroDecoder(Wanted(columns=dict.fromkeys(("one", "some", "mixed"), False), names=()), json.dumps(schema))
    [found] = decoder.decode(pa.array([sink.getvalue()], pa.large_binary()))
    one, some, mixed = (as_text(pa.table(dict(found.columns)), name).to_pylist()[0] for name in found.columns)
    assert (some, mixed) == (f'["{one}"]', one)
