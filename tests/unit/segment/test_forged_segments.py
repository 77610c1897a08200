"""Files whose checksums are right and whose footer or buffers are not what the other says: refused, never read.

Random ones are in tests/oracle/test_forged_segments.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from pyroaring import BitMap
from tests.support.forgery import Parts, expand, put_together, taken_apart
from tests.unit.segment.segment_tables import build, field_of, table_of

from merlot.errors import CorruptionError
from merlot.segment import contents, inspect
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.layout import FACTS_BYTES, TRAILER_BYTES
from merlot.spec.indexing import Compression, IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

NUM_DOCS = 40_000
FIELDS = (
    field_of(TypeName.INT, name="sorted"),
    field_of(TypeName.STRING, name="few"),
    field_of(TypeName.BIG_DECIMAL, name="exact"),
    field_of(TypeName.BYTES, name="bytes"),
    field_of(TypeName.DOUBLE, name="double"),
    field_of(TypeName.LONG, name="packed"),
    field_of(TypeName.LONG, name="some"),
    field_of(TypeName.INT, name="aligned"),
    field_of(TypeName.STRING, name="text"),
    field_of(TypeName.INT, name="maybe"),
    field_of(TypeName.STRING, name="tags", multi_value=True),
)
SCHEMA = TableSchema(fields=FIELDS)
INDEXING = IndexingSpec(
    sorted_columns=("sorted",),
    inverted=("few", "tags"),
    bloom=("few",),
    no_dictionary=("packed", "text"),
    compression={"text": Compression.ZSTD},
)


def honest_rows() -> dict[str, list[Any]]:
    return {
        "sorted": [number // 400 for number in range(NUM_DOCS)],
        "few": [f"f{number % 5}" if number % 9000 != 5 else "f9" for number in range(NUM_DOCS)],
        "exact": [("-1.5", "0", "2", "10", "10.25")[number % 5] for number in range(NUM_DOCS)],
        "bytes": [bytes([number % 7]) for number in range(NUM_DOCS)],
        "double": [(-0.0, 0.0, 1.5, float("nan"))[number % 4] for number in range(NUM_DOCS)],
        "packed": [number * 7 % 1000 for number in range(NUM_DOCS)],
        "some": [number * 11 % 3000 for number in range(NUM_DOCS)],
        "aligned": [number * 13 % 200 for number in range(NUM_DOCS)],
        "text": [f"é{number % 97}" for number in range(NUM_DOCS)],
        "maybe": [None if number % 50 == 0 else number % 6 for number in range(NUM_DOCS)],
        "tags": [["a", "b", "c"][: number % 4] for number in range(NUM_DOCS)],
    }


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    table = table_of(SCHEMA, honest_rows())
    return build(tmp_path_factory.mktemp("honest"), SCHEMA, table, INDEXING).path.read_bytes()


def ref(parts: Parts, column: str, buffer: str) -> list[Any]:
    """`[number, dtype, size, crc]`."""
    found: list[Any] = parts.column(column)["buffers"][buffer]
    return found


def elements(parts: Parts, column: str, buffer: str) -> np.ndarray[Any, Any]:
    number, dtype, size, _ = ref(parts, column, buffer)
    expand(parts, number, size * int(dtype[1]))
    return np.frombuffer(parts.buffers[number], dtype).copy()


def edit(column: str, buffer: str, change: Callable[[Any], Any]) -> Callable[[Parts], None]:
    """Change the elements of a buffer, the footer told of how many there are then."""

    def lie(parts: Parts) -> None:
        changed = change(elements(parts, column, buffer))
        number = ref(parts, column, buffer)[0]
        parts.buffers[number] = changed.tobytes()
        ref(parts, column, buffer)[2] = len(changed)

    return lie


def put(column: str, buffer: str, place: int, value: Any) -> Callable[[Parts], None]:
    def change(values: Any) -> Any:
        values[place] = value
        return values

    return edit(column, buffer, change)


def say(column: str, **fields: Any) -> Callable[[Parts], None]:
    """Change what the footer says of a column."""
    return lambda parts: parts.column(column).update(fields)


def many_docs(parts: Parts) -> None:
    """Four times the docs that there are, in the footer only."""
    parts.content["num_docs"] *= 4
    for column in parts.columns:
        column["total_values"] *= 4


def entries(parts: Parts, column: str, dict_id: int, change: Callable[[bytearray], None]) -> None:
    offsets = elements(parts, column, "inverted.offsets")
    number = ref(parts, column, "inverted.docs")[0]
    payload = bytearray(parts.buffers[number])
    start, stop = int(offsets[dict_id]), int(offsets[dict_id + 1])
    entry = payload[start:stop]
    change(entry)
    assert len(entry) == stop - start
    payload[start:stop] = entry
    parts.buffers[number] = bytes(payload)


def entry(dict_id: int, change: Callable[[bytearray], None]) -> Callable[[Parts], None]:
    """Change what the inverted index of `few` says of a dict id."""
    return lambda parts: entries(parts, "few", dict_id, change)


def set_bits(roaring: bytearray) -> None:
    """More bits in a container than its header counts: CRoaring then writes past what it allocated."""
    roaring[-8192:] = b"\xff" * 8192


def high_docs(plain: bytearray) -> None:
    plain[-4:] = (1 << 31).to_bytes(4, "little")


def reverse_docs(plain: bytearray) -> None:
    plain[:] = np.frombuffer(bytes(plain), "<u4")[::-1].tobytes()


def chunks(parts: Parts, change: Callable[[bytearray], None]) -> None:
    number = ref(parts, "text", "raw.bytes")[0]
    assert parts.codecs[number] == "zstd"
    stored = bytearray(parts.buffers[number])
    change(stored)
    parts.buffers[number] = bytes(stored)


def bomb(parts: Parts) -> None:
    """A chunk whose frame holds a thousand times what the footer says."""
    number = ref(parts, "text", "raw.bytes")[0]
    frame = zstandard.ZstdCompressor().compress(bytes(1 << 30))
    stored = parts.buffers[number]
    parts.buffers[number] = stored[:8] + len(frame).to_bytes(8, "little") + frame
    assert int.from_bytes(stored[4:8], "little") == 1


LIES: dict[str, Callable[[Parts], None]] = {
    "runs that end past the docs": put("sorted", "ids.runs", -1, 50_000_000),
    "runs that begin later": put("sorted", "ids.runs", 0, 1),
    "runs that go back": put("sorted", "ids.runs", 50, 39_999),
    "more docs than buffers hold": many_docs,
    "an id past the dictionary": put("aligned", "ids", 39_000, 200),
    "ids of another dtype": lambda parts: ref(parts, "aligned", "ids").__setitem__(1, "i1"),
    "ids as objects": lambda parts: ref(parts, "aligned", "ids").__setitem__(1, "O"),
    "ids of another buffer": lambda parts: ref(parts, "aligned", "ids").__setitem__(0, 0),
    "a buffer that is not there": lambda parts: ref(parts, "aligned", "ids").__setitem__(0, 10_000),
    "no ids": lambda parts: parts.column("aligned")["buffers"].pop("ids"),
    "ids in two ways": lambda parts: parts.column("aligned")["buffers"].update(
        {"ids.packed": ref(parts, "aligned", "ids")}
    ),
    "more distinct values than there are": say("maybe", cardinality=300),
    "wide values": say("packed", bits=64),
    "values of no width": say("packed", bits=-1),
    "fewer bits": say("packed", bits=3),
    "a base beyond 64 bits": say("packed", base=1 << 63),
    "values of another type": say("packed", type="DOUBLE"),
    "text as numbers": say("few", type="LONG"),
    "raw text in a dictionary's place": say("few", encoding="RAW_VARIABLE"),
    "a multi-value column of single values": say("few", multi_value=True),
    "single values of a multi-value column": say("tags", multi_value=False),
    "a longer longest list": say("tags", max_values_per_doc=9),
    "lists of more values": say("tags", total_values=59_999),
    "texts that end past their bytes": put("few", "dict.offsets", -1, 1_000),
    "a text that ends past its bytes": put("few", "dict.offsets", 2, 1_000),
    "a text of half a character": put("few", "dict.bytes", -1, 0xC3),
    "texts out of order": put("few", "dict.bytes", 1, ord("8")),
    "texts twice": put("few", "dict.bytes", 1, ord("1")),
    "numbers out of order": put("double", "dict.values", 1, 7.0),
    "two times no number": put("double", "dict.values", 1, float("nan")),
    "a number that is none": put("exact", "dict.bytes", 1, ord("x")),
    "decimals out of order": put("exact", "dict.bytes", 0, ord("9")),
    "a least value that is not the first": say("few", min="f00"),
    "a greatest value that is not the last": say("double", max=1.0),
    "a least value of another type": say("packed", min="1"),
    "bytes that are no hex": say("bytes", max="zz"),
    "null docs past the last": say("maybe", num_nulls=801),
    "more null docs than it says": put("maybe", "nulls", 0, 0xFF),
    "no null docs where some are": say("maybe", num_nulls=0),
    "zones of ids past the dictionary": put("maybe", "zones.max", 0, 77),
    "zones that are reversed": put("packed", "zones.min", 1, 5_000),
    "no zones": lambda parts: (
        [parts.column("packed")["buffers"].pop(f"zones.{one}") for one in ("min", "max")] and None
    ),
    "fewer zones": edit("packed", "zones.min", lambda values: values[:1]),
    "a list of docs past the last": entry(5, high_docs),
    "a list of docs that descend": entry(5, reverse_docs),
    "a bitmap with more bits than docs": entry(1, set_bits),
    "a bitmap of other bytes": entry(1, lambda roaring: roaring.__setitem__(slice(0, 4), b"\x3b\x30\xff\xff")),
    "a bitmap of docs of another segment": entry(1, lambda roaring: roaring.__setitem__(slice(8, 10), b"\xff\x0f")),
    "entries past their buffer": put("few", "inverted.offsets", -1, 1 << 40),
    "entries that go back": put("few", "inverted.offsets", 2, 0),
    "more docs in an index than there are": put("few", "inverted.counts", 1, 4_000_000_000),
    "a filter of half a block": edit("few", "bloom.words", lambda words: words[:4]),
    "a compressed dictionary": lambda parts: parts.codecs.__setitem__(ref(parts, "few", "dict.bytes")[0], "zstd"),
    "chunks of an unknown codec": lambda parts: parts.codecs.__setitem__(ref(parts, "text", "raw.bytes")[0], "rot13"),
    "chunks past their buffer": lambda parts: chunks(parts, lambda data: data.__setitem__(slice(8, 16), b"\xff" * 8)),
    "chunks of no bytes": lambda parts: chunks(parts, lambda data: data.__setitem__(slice(0, 4), bytes(4))),
    "a chunk that swells": bomb,
    "a column twice": lambda parts: parts.columns.append(dict(parts.column("few"))),
    "times that are reversed": lambda parts: parts.content.update(start_time_ms=2, end_time_ms=1),
    "a sorted column that is not": say("maybe", is_sorted=True),
    "a negative number of docs": lambda parts: parts.content.update(num_docs=-1),
    "columns that are none": lambda parts: parts.content.update(columns=[1, 2]),
    "facts that are none": lambda parts: parts.content.update(columns={"few": 3}),
    "bounds of other values": say("packed", max=998),
    "docs of another value in an index": entry(
        5, lambda plain: plain.__setitem__(slice(0, 4), (6).to_bytes(4, "little"))
    ),
    "a filter without its values": edit("few", "bloom.words", lambda words: words * 0),
    "zones of other values": put("packed", "zones.max", 1, 998),
}


@pytest.mark.parametrize("lie", list(LIES))
def test_a_forged_file_is_refused_by_whoever_reads_all_of_it(tmp_path: Path, honest: bytes, lie: str) -> None:
    parts = taken_apart(honest)
    LIES[lie](parts)
    path = tmp_path / "forged.mseg"
    path.write_bytes(put_together(parts))
    with pytest.raises(CorruptionError, match=r"forged\.mseg"):
        contents.check_file(path)
    assert inspect.verify(path)


def test_a_file_put_together_as_it_was_is_right(tmp_path: Path, honest: bytes) -> None:
    path = tmp_path / "honest.mseg"
    path.write_bytes(put_together(taken_apart(honest)))
    contents.check_file(path)
    assert inspect.verify(path) == []
    assert len(path.read_bytes()) > FACTS_BYTES + TRAILER_BYTES


def test_bitmaps_of_the_library_are_what_is_looked_for(honest: bytes) -> None:
    parts = taken_apart(honest)
    offsets, counts = elements(parts, "few", "inverted.offsets"), elements(parts, "few", "inverted.counts")
    entry_1 = parts.buffers[ref(parts, "few", "inverted.docs")[0]][int(offsets[1]) : int(offsets[2])]
    assert len(BitMap.deserialize(entry_1)) == counts[1] > 4096
    assert len(entry_1) < 4 * counts[1]
    assert int(offsets[6] - offsets[5]) == 4 * counts[5]


def test_what_the_footer_lies_about_is_found_without_a_look_at_any_buffer(tmp_path: Path, honest: bytes) -> None:
    parts = taken_apart(honest)
    many_docs(parts)
    path = tmp_path / "forged.mseg"
    path.write_bytes(put_together(parts))
    with ImmutableSegment.open(path, verify=True) as segment, pytest.raises(CorruptionError, match="instead of"):
        segment.check_columns()
