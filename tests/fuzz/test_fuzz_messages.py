"""Spoiled messages of each decoder end no process, under 512 MiB beyond what it began with; each is rows or is counted.

A case is decoded in a child of its own limits, a hundred at a time, with a second of CPU for each case."""

import json
import multiprocessing
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests import budget
from tests.fuzz.fuzzing import spoiled_bytes
from tests.unit.ingest import test_arrow_bounds, test_avro_bounds

from merlot.ingest.decoders.arrow import ArrowDecoder
from merlot.ingest.decoders.avro import AvroDecoder
from merlot.ingest.decoders.csv import CsvDecoder
from merlot.ingest.decoders.json import JsonDecoder
from merlot.ingest.decoders.protocol import Decoder, Wanted
from merlot.spec.stream import MessageCsv

BATCH = 100
MEMORY_BYTES = 512 << 20
WANTED = Wanted(columns={"a": False, "tags": True}, types={"a": pa.int64()}, names=("a", "tags"))
TRIP = {"a": "x", "tags": [None, "y", 7], "by": {"k": [1.5]}, "color": "RED", "hash": b"abc",
        "in": {"f": 0.5, "b": True, "c": None}, "chain": {"a": "z", "next": {"a": "", "next": None}}}  # fmt: skip
SCHEMA = json.dumps(test_avro_bounds.NESTED)
DECODERS: dict[str, tuple[Callable[[], Decoder], bytes]] = {
    "json": (lambda: JsonDecoder(WANTED), b'{"a": 17, "tags": ["x", {"y": [1, 2.5e3]}], "z": null}'),
    "csv": (lambda: CsvDecoder(WANTED, MessageCsv()), b'17,"x;y"'),
    "avro": (lambda: AvroDecoder(WANTED, SCHEMA), test_avro_bounds.written(test_avro_bounds.NESTED, TRIP)),
    "arrow": (
        lambda: ArrowDecoder(WANTED),
        test_arrow_bounds.stream(pa.table({"a": [1, None, 3], "tags": [["x"], [], None]}), "zstd"),
    ),
}


def decode_all(name: str, first: int, last: int) -> None:
    """In the child: every message of every batch is rows or bad."""
    make, good = DECODERS[name]
    decoder = make()
    decoder.decode(pa.array([good], pa.large_binary()))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES,) * 2)
    spent = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime) + 1
    for start in range(first, last, BATCH):
        spent += BATCH
        resource.setrlimit(resource.RLIMIT_CPU, (spent, resource.RLIM_INFINITY))
        cases = [random.Random(f"{budget.seed()}-{case}") for case in range(start, min(start + BATCH, last))]
        messages = [spoiled_bytes(rng, good) for rng in cases]
        pieces = decoder.decode(pa.array(messages, pa.large_binary()))
        bad = {int(row) for piece in pieces for rows in piece.bad.values() for row in rows}
        told = bad | {int(row) for piece in pieces for row in piece.messages}
        assert name == "arrow" or told == set(range(len(messages))), "a message is neither rows nor counted"


@pytest.mark.parametrize("name", DECODERS)
def test_spoiled_messages_end_no_process(name: str) -> None:
    count = budget.count("MERLOT_FUZZ_MESSAGES", quick=1_000, every=20_000, fuzz=250_000)
    child = multiprocessing.get_context("spawn").Process(target=decode_all, args=(name, 0, count))
    child.start()
    child.join()
    assert child.exitcode == 0
