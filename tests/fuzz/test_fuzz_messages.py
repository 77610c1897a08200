"""Spoiled messages and files of each form end no process: each is rows or is counted, in its time and memory."""

import io
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc
from pyarrow import parquet as pq
from tests import budget
from tests.fuzz.children import Watch, bound_memory, in_child
from tests.fuzz.fuzzing import spoiled_bytes
from tests.unit.ingest import test_arrow_bounds, test_avro_bounds, test_protobuf_messages

from merlot.errors import InvalidInputError
from merlot.ingest.decoders.arrow import ArrowDecoder
from merlot.ingest.decoders.avro import AvroDecoder
from merlot.ingest.decoders.csv import CsvDecoder
from merlot.ingest.decoders.json import JsonDecoder
from merlot.ingest.decoders.protobuf import ProtobufDecoder
from merlot.ingest.decoders.protocol import Decoder, Wanted
from merlot.ingest.source import plan, reader
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import TableSchema
from merlot.spec.stream import MessageCsv
from merlot.spec.table import TableSpec

WANTED = Wanted(columns={"a": False, "tags": True}, types={"a": pa.int64()}, names=("a", "tags"))
TRIP = {"a": "x", "tags": [None, "y", 7], "by": {"k": [1.5]}, "color": "RED", "hash": b"abc",
        "in": {"f": 0.5, "b": True, "c": None}, "chain": {"a": "z", "next": {"a": "", "next": None}}}  # fmt: skip
SCHEMA = json.dumps(test_avro_bounds.NESTED)
CITIES = Wanted(
    columns=dict.fromkeys(test_protobuf_messages.NAMES, False) | {"tags": True},
    names=test_protobuf_messages.NAMES,
    as_json=frozenset({"props", "inner"}),
)
ROWS = pa.table({"a": [1, None, 3] * 40, "b": ["x", "", None] * 40, "tags": [["x"], [], None] * 40})


DECODERS: dict[str, tuple[Callable[[], Decoder], Callable[[], bytes]]] = {
    "json": (lambda: JsonDecoder(WANTED), lambda: b'{"a": 17, "tags": ["x", {"y": [1, 2.5e3]}], "z": null}'),
    "csv": (lambda: CsvDecoder(WANTED, MessageCsv()), lambda: b'17,"x;y"'),
    "avro": (
        lambda: AvroDecoder(WANTED, SCHEMA),
        lambda: test_avro_bounds.written(test_avro_bounds.NESTED, TRIP),
    ),
    "arrow": (
        lambda: ArrowDecoder(WANTED),
        lambda: test_arrow_bounds.stream(pa.table({"a": [1, None, 3], "tags": [["x"], [], None]}), "zstd"),
    ),
    "protobuf": (
        lambda: ProtobufDecoder(CITIES, test_protobuf_messages.TEXT, "acme.Trip"),
        lambda: test_protobuf_messages.trip(City="Łódź", rides=-7, fare=1.5, tags=["x", "y"], props={"k": 1}),
    ),
}
SPEC = TableSpec(
    table_schema=TableSchema.model_validate(
        {"fields": [{"name": "a", "type": "LONG"}, {"name": "b", "type": "STRING"}, {"name": "c", "type": "STRING"}]}
    )
)


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, compression="zstd", row_group_size=50)
    return sink.getvalue()


def orc_file() -> bytes:
    sink = io.BytesIO()
    orc.write_table(ROWS, sink, compression="zlib")
    return sink.getvalue()


FILES: dict[str, Callable[[], bytes]] = {"PARQUET": parquet, "ORC": orc_file}


def spoiled(good: bytes, number: int) -> bytes:
    return spoiled_bytes(random.Random(f"{budget.seed()}-{number}"), good)


def decode_all(name: str, count: int) -> None:
    """In the child: every message is rows or bad."""
    make, write = DECODERS[name]
    decoder, good = make(), write()
    assert not [piece.bad for piece in decoder.decode(pa.array([good], pa.large_binary())) if piece.bad]
    bound_memory()
    watch, num_bad = Watch(), 0
    for number in range(count):
        message = spoiled(good, number)
        with watch.case(message):
            pieces = decoder.decode(pa.array([message], pa.large_binary()))
        bad = [row for piece in pieces for rows in piece.bad.values() for row in rows]
        has_rows = any(len(piece.messages) for piece in pieces)
        assert len(bad) <= 1, message
        assert not (bad and has_rows), message
        assert bad or has_rows or name == "arrow", message  # a stream of no rows is a whole message
        num_bad += bool(bad)
    print(f"fuzz {name}: {count} messages, {num_bad} bad", flush=True)
    assert not watch.slow, watch.slow[:5]


def read_all(name: str, count: int) -> None:
    """In the child: every file is rows or refused as input that is wrong."""
    good = FILES[name]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        assert rows_of(path, name, good) == ROWS.num_rows
        bound_memory()
        watch, num_bad = Watch(), 0
        for number in range(count):
            data = spoiled(good, number)
            with watch.case(data):
                num_bad += rows_of(path, name, data) is None
    print(f"fuzz {name}: {count} files, {num_bad} refused", flush=True)
    assert not watch.slow, watch.slow[:5]


def rows_of(path: Path, name: str, data: bytes) -> int | None:
    """How many rows a file has; None if it is refused."""
    path.write_bytes(data)
    try:
        made = plan.make(BatchIngestion.model_validate({"sourceUri": str(path), "format": name}), SPEC)
        return sum(rows.num_rows for rows in reader.read(made.request, made.pieces))
    except InvalidInputError:
        return None


@pytest.mark.parametrize("name", DECODERS)
def test_spoiled_messages_are_rows_or_counted(name: str) -> None:
    in_child(decode_all, name, budget.count("MERLOT_FUZZ_MESSAGES", quick=300, every=20_000, fuzz=250_000))


@pytest.mark.parametrize("name", FILES)
def test_spoiled_files_are_rows_or_refused(name: str) -> None:
    in_child(read_all, name, budget.count("MERLOT_FUZZ_FILES", quick=100, every=5_000, fuzz=100_000))
