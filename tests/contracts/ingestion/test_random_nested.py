"""A value of a source is stored as the same value whichever way it comes: in a file or a message, of any format."""

from __future__ import annotations

import io
import json
import re
from ast import literal_eval
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from tests import budget
from tests.contracts.ingestion.random_nested import DEPTH, LEAVES, Column, Draw, Kind, written

from merlot.ingest import transform
from merlot.ingest.decoders.opening import open_decoder
from merlot.ingest.decoders.protocol import Wanted
from merlot.ingest.source import plan, reader
from merlot.ingest.stream import NUMBERS
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import COLUMN_TYPES, FieldSpec
from merlot.spec.stream import DecoderSpec
from merlot.spec.table import TableSpec
from merlot.values.types import TypeName

NUM_COLUMNS = budget.count("MERLOT_NESTED_COLUMNS", quick=50, every=3_000, fuzz=30_000)
NUM_ROWS = 6
ORC_SECONDS = (2**63 - 1) // 10**9
INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})(?:\.(\d+))?(?:\+00)?")
LISTED = (TypeName.INT, TypeName.DOUBLE, TypeName.STRING, TypeName.BYTES)
FIELDS = (
    *(FieldSpec(name=f"c_{kind.lower()}", type=kind) for kind in COLUMN_TYPES),
    *(FieldSpec(name=f"l_{kind.lower()}", type=kind, multi_value=True) for kind in LISTED),
)
"""A column of every type, each of which is given the same values."""
Stored = Mapping[str, list[Any]]


def spec_of(fields: list[FieldSpec]) -> TableSpec:
    document = [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in fields]
    return TableSpec.model_validate({"schema": {"fields": document}})


def possible(kind: pa.DataType) -> list[FieldSpec]:
    """Columns that values of the type may be stored in; a job refuses the others before it reads."""
    return [one for one in FIELDS if not transform.is_impossible(kind, one)]


def stored(rows: pa.Table, fields: list[FieldSpec]) -> Stored:
    """What becomes of each column's values, as text, since NaN is no equal of itself; null for a bad one."""
    return {one.name: list(map(repr, transform.source_values(rows, one).to_pylist())) for one in fields}


def by_file(path: Path, file_format: str, fields: list[FieldSpec]) -> Stored:
    source = BatchIngestion(format=BatchFormat(file_format), source_uri=str(path))
    planned = plan.make(source, spec_of(fields))
    return stored(pa.concat_tables(reader.read(planned.request, planned.pieces)), fields)


def by_stream(messages: list[bytes], decoder: Mapping[str, Any], fields: list[FieldSpec]) -> Stored:
    wanted = Wanted(
        columns={one.name: one.multi_value for one in fields},
        types={one.name: NUMBERS[one.type] for one in fields if one.type in NUMBERS},
        names=tuple(one.name for one in fields),
    )
    opened = open_decoder(DecoderSpec.model_validate(decoder), wanted, {})
    pieces = opened.decode(pa.array(messages, pa.large_binary()))
    assert not any(piece.bad for piece in pieces)
    found = [stored(pa.table(dict(piece.columns)) if piece.columns else no_columns(piece), fields) for piece in pieces]
    return {one.name: [value for part in found for value in part[one.name]] for one in fields}


def no_columns(piece: Any) -> pa.Table:
    return pa.table({"": pa.nulls(len(piece.messages))})


def repeated(values: Any, fields: list[FieldSpec]) -> dict[str, Any]:
    return {one.name: values for one in fields}


def parquet(column: Column, fields: list[FieldSpec], path: Path) -> Stored:
    pq.write_table(pa.table(repeated(column.array, fields)), path)
    return by_file(path, "PARQUET", fields)


def orc_file(column: Column, fields: list[FieldSpec], path: Path) -> Stored:
    orc.write_table(pa.table(repeated(column.array, fields)), path)
    return by_file(path, "ORC", fields)


def in_orc(kind: Kind, value: Any) -> bool:
    """Whether ORC files say the type as Parquet files do, and pyarrow reads the value in them. They have no unsigned
    numbers and no times of day, and instants of all types are of nanoseconds, as far as these fit 64 bits."""
    arrow = kind.arrow
    if pa.types.is_struct(arrow):
        names = [one.name for one in arrow]
        return all(in_orc(item, value and value[name]) for name, item in zip(names, kind.items, strict=True))
    if pa.types.is_list(arrow) or pa.types.is_map(arrow):
        members = value.values() if isinstance(value, dict) else value
        return all(in_orc(kind.items[-1], one) for one in (members or [None]))
    if pa.types.is_timestamp(arrow):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[arrow.unit]
        return value is None or abs(value) // per_second < ORC_SECONDS
    return not (
        pa.types.is_unsigned_integer(arrow)
        or pa.types.is_float16(arrow)
        or pa.types.is_decimal256(arrow)
        or pa.types.is_time(arrow)
        or isinstance(arrow, pa.UuidType)
    )


def arrow(column: Column, fields: list[FieldSpec]) -> Stored:
    rows = pa.table(repeated(column.array, fields))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return by_stream([sink.getvalue()], {"type": "ARROW"}, fields)


def avro(column: Column, fields: list[FieldSpec]) -> Stored:
    """Each value under the name of every column; named types are declared in the first of them."""
    types = [column.kind.avro, *([by_name(column.kind.avro)] * (len(fields) - 1))]
    members = [{"name": one.name, "type": ["null", kind]} for one, kind in zip(fields, types, strict=True)]
    schema = {"type": "record", "name": "Message", "fields": members}
    parsed = fastavro.parse_schema(schema)
    messages = []
    for value in column.values:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, parsed, repeated(value, fields))
        messages.append(sink.getvalue())
    return by_stream(messages, {"type": "AVRO", "avroSchema": json.dumps(schema)}, fields)


def by_name(schema: Any) -> Any:
    """A schema whose named types are declared already."""
    if isinstance(schema, list):
        return [by_name(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "name" in schema:
        return schema["name"]
    return {key: by_name(value) if key in ("items", "values") else value for key, value in schema.items()}


def json_lines(column: Column, fields: list[FieldSpec]) -> list[bytes]:
    texts = ["null" if text is None else text for text in column.json]
    return [written("{}", [f'"{one.name}":{text}' for one in fields]).encode() for text in texts]


def columns() -> Iterator[Column]:
    seed = budget.seed()
    for number in range(NUM_COLUMNS):
        yield Draw(seed * 1_000_003 + number).column(NUM_ROWS)


def test_all_ways_store_the_same_value_of_a_random_column(tmp_path: Path) -> None:
    for number, column in enumerate(columns()):
        fields = possible(column.kind.arrow)
        found = parquet(column, fields, tmp_path / f"{number}.parquet")
        assert arrow(column, fields) == found, column
        if column.kind.avro is not None:
            assert avro(column, fields) == found, column
        if all(in_orc(column.kind, value) for value in column.values):
            assert orc_file(column, fields, tmp_path / f"{number}.orc") == found, column
        expected = list(map(repr, column.json))
        if pa.types.is_nested(column.kind.arrow):
            assert found["c_json"] == found["c_string"] == expected, column


def test_nested_values_are_the_json_that_duckdb_makes_of_them(tmp_path: Path) -> None:
    """Text for text, but for how instants, bytes and numbers are written, which DuckDB does otherwise."""
    field = next(one for one in FIELDS if one.name == "c_json")
    path = tmp_path / "f.parquet"
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        for number in range(NUM_COLUMNS):
            draw = Draw(budget.seed() * 1_000_003 + number)
            column = draw.column(NUM_ROWS, depth=1 + number % DEPTH, of=lambda kind: kind in DUCKDB_KINDS)
            found = parquet(column, [field], path)["c_json"]
            expected = engine.execute(f"SELECT to_json(c_json)::VARCHAR FROM '{path}'").fetchall()
            for ours, (theirs,) in zip(found, expected, strict=True):
                assert meaning(literal_eval(ours)) == meaning(theirs), column


def is_of_duckdb(kind: Kind) -> bool:
    """Whether DuckDB reads the type in Parquet and writes each value of it as JSON without a loss."""
    arrow = kind.arrow
    is_instant = pa.types.is_timestamp(arrow) and arrow.unit in ("s", "ms", "us")
    is_number = pa.types.is_integer(arrow) or pa.types.is_decimal128(arrow) or pa.types.is_boolean(arrow)
    return is_instant or is_number or pa.types.is_string(arrow) or pa.types.is_date(arrow)


DUCKDB_KINDS = [kind for kind in LEAVES if is_of_duckdb(kind)]


def meaning(text: str | None) -> Any:
    """A JSON text, numbers exact and instants without the zeros and the zone at their end."""
    return None if text is None else plain(json.loads(text, parse_float=Decimal))


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str) and (instant := INSTANT.fullmatch(value)) is not None:
        return f"{instant[1]}.{(instant[2] or '').rstrip('0')}"
    return value


def test_lines_and_messages_store_the_same_json_as_files_of_types(tmp_path: Path) -> None:
    fields = list(FIELDS)
    for number, column in enumerate(columns()):
        lines = json_lines(column, fields)
        path = tmp_path / f"{number}.json"
        path.write_bytes(b"\n".join([*lines, b""]))
        found = by_file(path, "JSON", fields)
        assert by_stream(lines, {"type": "JSON"}, fields) == found, column
        expected = list(map(repr, column.json))
        if pa.types.is_nested(column.kind.arrow):
            assert found["c_json"] == found["c_string"] == expected, column
            continue
        typed = parquet(column, possible(column.kind.arrow), tmp_path / f"{number}.parquet")
        for name in agreeing(column.kind.arrow) & typed.keys():
            assert found[name] == typed[name], (name, column)


def agreeing(kind: pa.DataType) -> set[str]:
    """Columns that store of a value's JSON what they store of the value itself: of bytes, which JSON has in Base64,
    none; of times, which it has as text, no number; of floats, which it has in decimals, their own type."""
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return set()
    if pa.types.is_floating(kind):
        return {"c_float"} if kind == pa.float32() else {"c_double"} if kind == pa.float64() else set()
    texts = {"c_string", "c_timestamp"}
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    return texts | {"c_int", "c_long", "c_float", "c_double", "c_big_decimal"} if is_number else texts
