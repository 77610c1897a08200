"""An Arrow message that expands far beyond its bytes is refused before it is expanded, and no other is."""

import io
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.ingest.decoders import arrow
from merlot.ingest.decoders.arrow import EXPANDS, ArrowDecoder
from merlot.ingest.decoders.protocol import NO_RECORD, Wanted
from merlot.vectors.arrow_bounds import LEAST_BYTES, MOST_BYTES, TIMES, check_column, most_bytes

MANY = 200 << 20


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def decoded(*payloads: bytes) -> tuple[list[int], dict[str, list[int]]]:
    pieces = ArrowDecoder(Wanted(columns={"a": False}, names=("a",))).decode(pa.array(payloads, pa.large_binary()))
    bad = {reason: rows.tolist() for piece in pieces for reason, rows in piece.bad.items()}
    return sorted({row for piece in pieces for row in piece.messages.tolist()}), bad


def zeros(num_bytes: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), num_bytes // 8, [None, pa.py_buffer(bytes(num_bytes))])


GOOD = stream(pa.table({"a": [1, 2, 3]}), "zstd")
HOSTILE = {
    "zstd": lambda: stream(pa.table({"a": zeros(MANY)}), "zstd"),
    "lz4": lambda: stream(pa.table({"a": zeros(MANY)}), "lz4"),
    "unwanted column": lambda: stream(pa.table({"b": zeros(MANY)}), "zstd"),
    "many batches": lambda: stream(pa.concat_tables([pa.table({"a": zeros(LEAST_BYTES // 2)})] * 20), "zstd"),
    "dictionary": lambda: stream(
        pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["x" * MANY]))}), "zstd"
    ),
    "nulls": lambda: stream(pa.table({"a": pa.nulls(1 << 24)})),
    "nulls in a list": lambda: stream(
        pa.table({"a": pa.LargeListArray.from_arrays(pa.array([0, 1 << 24], pa.int64()), pa.nulls(1 << 24))})
    ),
    "fixed of no bytes": lambda: stream(
        pa.table({"a": pa.Array.from_buffers(pa.binary(0), 1 << 24, [None, pa.py_buffer(b"")])})
    ),
    "one long text, many ids": lambda: stream(
        pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int8()), pa.array(["x" * 100_000]))})
    ),
}
TEXT = pa.array(["x" * 100_000, "y"])
IDS = np.zeros(10_000, np.int8)
VIEW = np.array([100_000, int.from_bytes(b"xxxx", "little"), 0, 0], np.int32)  # length, prefix, buffer, offset
VIEWS = pa.Array.from_buffers(
    pa.string_view(), 10_000, [None, pa.py_buffer(np.tile(VIEW, 10_000)), pa.py_buffer(b"x" * 100_000)]
)
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([10_000, 10_001], pa.int32()), TEXT)
LISTS = pa.ListViewArray.from_arrays(np.zeros(10_000, np.int32), np.full(10_000, 100_000, np.int32), zeros(800_000))
HIGH = 1 << 16


def views_of_all(values: pa.Array) -> pa.Array:
    return pa.ListViewArray.from_arrays(np.zeros(HIGH, np.int32), np.full(HIGH, HIGH, np.int32), values)


HOSTILE["views that have 2^64 bytes together"] = lambda: stream(
    pa.table({"a": views_of_all(views_of_all(views_of_all(pa.array(np.zeros(HIGH, np.int8)))))})
)
HOSTILE |= {
    name: partial(stream, pa.table({"a": column}), "zstd")
    for name, column in {
        "one long text, many views": VIEWS,
        "one long run": RUNS,
        "views of one list": LISTS,
        "views of one list in structs": pa.StructArray.from_arrays([LISTS], ["b"]),
        "a long run in lists": pa.ListArray.from_arrays(np.array([0, 10_001], np.int32), RUNS),
        "ids of bytes of one length": pa.DictionaryArray.from_arrays(
            IDS, pa.array([b"x" * 100_000], pa.binary(100_000))
        ),
        "ids of views": pa.DictionaryArray.from_arrays(IDS, TEXT.cast(pa.string_view())),
        "ids of lists": pa.DictionaryArray.from_arrays(IDS, pa.array([[1] * 100_000])),
        "runs of ids": pa.RunEndEncodedArray.from_arrays(
            pa.array([10_000], pa.int32()), pa.DictionaryArray.from_arrays(IDS[:1], TEXT)
        ),
    }.items()
}
SHARED = {
    "views": pa.array(["x" * 20, None, "y"], pa.string_view()),
    "runs of views": pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 5], pa.int32()), pa.array([None, "x"], pa.string_view())
    ),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["x", None])),
    "views of lists": pa.array([[1, 2], None, [3]], pa.list_view(pa.int64())),
    "views in lists": pa.array([["x"], None, ["y", None]], pa.list_(pa.string_view())),
    "views in lists of one length": pa.array([["x", "y"], None], pa.list_(pa.string_view(), 2)),
    "views in maps": pa.array([[("a", "b")], None, []], pa.map_(pa.string(), pa.string_view())),
    "views in structs": pa.array([{"b": "x"}, None], pa.struct({"b": pa.string_view()})),
    "ids of nothing": pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.string())),
    "ids of views": pa.DictionaryArray.from_arrays(IDS[:3], pa.array(["x"], pa.string_view())),
    "no lists": pa.array([], pa.list_view(pa.string_view())),
}


@pytest.mark.parametrize("name", SHARED)
def test_values_that_share_little_are_read(name: str) -> None:
    whole = pa.table({"a": SHARED[name]})
    rows, bad = decoded(stream(whole), stream(whole.slice(1)))
    assert (bad, rows) == ({}, [number for number, part in enumerate((whole, whole.slice(1))) if len(part)])


@pytest.mark.parametrize(
    "column",
    [
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", "y", "z"])),
        pa.Array.from_buffers(pa.string_view(), 1, [None, pa.py_buffer(b"\3\0\0\0abc" + bytes(9) + b"?")]),
    ],
)
def test_spare_values_and_bytes_of_a_column_count_nothing(column: pa.Array) -> None:
    column.validate(full=True)
    check_column(pa.chunked_array([column]), 100)


@pytest.mark.parametrize("name", HOSTILE)
def test_message_that_expands_beyond_its_bytes_is_bad_and_spoils_no_other(name: str) -> None:
    message = HOSTILE[name]()
    assert len(message) < most_bytes(len(message)), "the hostile message is small"
    assert decoded(GOOD, message, GOOD) == ([0, 2], {EXPANDS: [1]})


def test_message_that_expands_to_more_than_the_memory_is_refused_without_it() -> None:
    bomb = stream(pa.table({"a": zeros(MANY)}), "zstd")
    script = (
        "import sys, resource, pyarrow as pa\n"
        "from merlot.ingest.decoders.arrow import ArrowDecoder\n"
        "from merlot.ingest.decoders.protocol import Wanted\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (150 << 20), used + (150 << 20)))\n"
        "values = pa.array([sys.stdin.buffer.read()], pa.large_binary())\n"
        "print(*(reason for one in ArrowDecoder(Wanted(columns={'a': False}, names=())).decode(values)"
        " for reason in one.bad))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], input=bomb, capture_output=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout.decode().strip()) == (0, EXPANDS), ran.stderr.decode()


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_message_within_the_bounds_is_read(compression: str | None) -> None:
    tables: list[Any] = [
        pa.table({"a": zeros(LEAST_BYTES // 2)}),
        pa.table({"a": list(range(100_000))}),
        pa.table({"a": pa.array([None, "x", "y"] * 1_000).dictionary_encode()}),
        pa.table({"a": pa.array([[1, 2], None, []] * 1_000)}),
        pa.table({"a": pa.nulls(1_000)}),
        pa.table({"a": pa.array([True, None] * 10_000)}),
        pa.table({"a": pa.array(["x" * 100, None] * 10, pa.string_view())}),
        pa.table({"a": pa.array([], pa.int64())}),
    ]
    found, bad = decoded(*(stream(table, compression) for table in tables))
    assert (found, bad) == (list(range(len(tables) - 1)), {})


def test_large_message_may_always_be_as_large_as_it_is() -> None:
    assert most_bytes(1) == LEAST_BYTES
    assert most_bytes(LEAST_BYTES // TIMES * 2) == 2 * LEAST_BYTES
    assert most_bytes(2 * MOST_BYTES) == 2 * MOST_BYTES


@given(st.data())
def test_broken_message_is_bad_and_nothing_else_is_raised(data: st.DataObject) -> None:
    message = bytearray(stream(pa.table({"a": ["x", None, "y"] * 5, "b": range(15)}), "zstd"))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(message) - 9))
        message[place] = data.draw(st.integers(0, 255))
    found, bad = decoded(bytes(message), GOOD)
    assert 1 in found
    assert bad in ({}, {NO_RECORD: [0]}, {EXPANDS: [0]}, {"several columns may be meant": [0]})


def test_messages_that_expand_little_each_are_decoded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is left is said, none is left out, and the first is decoded however large it is."""
    monkeypatch.setattr(arrow, "MOST_TOGETHER", 3 << 20)
    message = stream(pa.table({"a": zeros(LEAST_BYTES // 2)}), "zstd")
    values = pa.array([message] * 20 + [b"?"] + [message] * 3, pa.large_binary())
    decoder = ArrowDecoder(Wanted(columns={"a": False}, names=("a",)))
    start, found, bad = 0, [], []
    while start < len(values):
        pieces = decoder.decode(values.slice(start))
        assert sum(column.nbytes for piece in pieces for column in piece.columns.values()) <= 4 << 20
        found += sorted({start + int(row) for piece in pieces for row in piece.messages})
        bad += [start + int(row) for piece in pieces for rows in piece.bad.values() for row in rows]
        rest = pieces[-1].rest
        assert rest != 0
        start = len(values) if rest is None else start + rest
    assert (found, bad) == ([row for row in range(24) if row != 20], [20])
