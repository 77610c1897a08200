"""Footers that expand to far more than they take: refused before they are expanded, or before they are parsed.

Each file is opened in a process of its own that may take 200 MB more than it has."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from tests.support.forgery import put_together, taken_apart
from tests.unit.segment.segment_tables import build, field_of, table_of

from merlot.errors import CorruptionError, InvalidInputError
from merlot.segment import layout
from merlot.segment.layout import FACTS_BYTES, TRAILER_BYTES, Footer, footer_bytes, read_layout
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName

SPARE_BYTES = 200 << 20
HUGE = 300 << 20
SCHEMA = TableSchema(fields=(field_of(TypeName.INT, name="a"),))

OPENED = """
import os, resource, sys
from pathlib import Path
from merlot.errors import CorruptionError
from merlot.ids import SegmentKey
from merlot.segment.immutable import ImmutableSegment, verify_file

def open_each_way(path):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]),) * 2)
    ways = {
        "upload, load": lambda: ImmutableSegment.open(path, verify=True),
        "recover": lambda: verify_file(path),
        "first read": lambda: ImmutableSegment.checked(str(path.parent), SegmentKey('s', 1), path.read_bytes()),
    }
    for name, way in ways.items():
        try:
            way()
        except CorruptionError as error:
            print(f"{name}: {error}", flush=True)

for path in map(Path, sys.argv[2:]):
    print("file", path, flush=True)
    if not (child := os.fork()):
        open_each_way(path)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, path
"""


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("honest")
    return build(folder, SCHEMA, table_of(SCHEMA, {"a": [1, 2, 3]}), IndexingSpec()).path.read_bytes()


def with_footer(honest: bytes, stored: bytes, raw_length: int) -> bytes:
    """The file with another footer, and all checksums that can be right."""
    old = layout._TRAILER.unpack(honest[-TRAILER_BYTES:])
    body, facts = honest[: old[0]], honest[-TRAILER_BYTES - FACTS_BYTES : -TRAILER_BYTES]
    length = len(body) + len(stored) + FACTS_BYTES + TRAILER_BYTES
    front = (len(body), len(stored), raw_length, length, zlib.crc32(stored), *old[5:8])
    crc = zlib.crc32(layout._TRAILER.pack(*front, 0, layout.TRAILER_MAGIC))
    return body + stored + facts + layout._TRAILER.pack(*front, crc, layout.TRAILER_MAGIC)


def compressed(pieces: Iterator[bytes], size: int | None) -> bytes:
    """A frame that says its size, or one that does not."""
    packer = zstandard.ZstdCompressor(level=3).compressobj(size=-1 if size is None else size)
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def blanks(length: int) -> Iterator[bytes]:
    return itertools.repeat(b" " * (1 << 20), length >> 20)


def with_unknown(honest: bytes, unknown: Any) -> bytes:
    parts = taken_apart(honest)
    parts.content["unknown"] = unknown
    return put_together(parts)


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "footer expands to": lambda file: with_footer(file, compressed(blanks(HUGE), HUGE), HUGE),
    "instead of": lambda file: with_footer(file, compressed(blanks(HUGE), HUGE), 1 << 20),
    "footer does not decompress": lambda file: with_footer(file, compressed(blanks(HUGE), None), 3 << 20),
    "another length": lambda file: with_footer(file, compressed(blanks(1 << 20), None), 3 << 20),
    "footer has 10000": lambda file: with_unknown(file, [[]] * 5_000_000),
    "bytes, more than": lambda file: with_unknown(file, "x" * (20 << 20)),
}
"""What is said of each."""


def test_footers_that_expand_to_much_are_refused_with_little_memory(tmp_path: Path, honest: bytes) -> None:
    paths = [tmp_path / f"bomb{number}.mseg" for number in range(len(BOMBS))]
    for path, bomb in zip(paths, BOMBS.values(), strict=True):
        path.write_bytes(bomb(honest))
    command = [sys.executable, "-c", OPENED, str(SPARE_BYTES), *map(str, paths)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert child.returncode == 0, child.stderr
    reports = [lines.splitlines()[1:] for lines in re.split(r"^(?=file )", child.stdout, flags=re.MULTILINE)[1:]]
    for words, lines in zip(BOMBS, reports, strict=True):
        assert [line.partition(":")[0] for line in lines] == ["upload, load", "recover", "first read"], words
        assert all(words in line for line in lines), lines


def test_fields_that_are_not_known_are_ignored(honest: bytes, tmp_path: Path) -> None:
    parts = taken_apart(honest)
    parts.content["unknown"] = {"a": [1] * 1000}
    parts.columns[0]["unknown"] = "x" * 1000
    assert read_layout(memoryview(put_together(parts)), tmp_path).content["unknown"] == {"a": [1] * 1000}


@pytest.mark.parametrize("num_columns", [1, 100, 5_000])
def test_footers_of_many_equal_columns_are_far_from_the_limits(num_columns: int) -> None:
    """The most alike columns that there are, and the largest entries."""
    bounds = {"min": "é" * 512, "max": "ü" * 512}
    entry = {"type": "STRING", "role": "dimension", "encoding": "DICTIONARY_ALIGNED", "cardinality": 9, **bounds}
    buffers = {f"buffer{number}": [number, "u4", 1000, 0x7FFFFFFF] for number in range(8)}
    columns = [{"name": f"c{number}", **entry, "buffers": buffers} for number in range(num_columns)]
    content = orjson.dumps({"num_docs": 1, "columns": columns})
    for text in (content, orjson.dumps({"num_docs": 1, "columns": [{"name": "c", "total_values": 1}] * num_columns})):
        footer_bytes(Footer(text, {"name": "s", "table": "t"}, {}), [], 64)


def test_writer_refuses_a_footer_that_no_reader_would_take() -> None:
    content = orjson.dumps({"columns": [[]] * 600_000})
    with pytest.raises(InvalidInputError, match="too many columns"):
        footer_bytes(Footer(content, {}, {}), [], 64)
    file = layout.header_bytes() + footer_bytes(Footer(content, {}, {}), [], 64, has_limits=False)
    with pytest.raises(CorruptionError, match="footer has"):
        read_layout(memoryview(file), "large")


def test_chunk_that_claims_to_be_huge_is_refused_before_memory_is_taken(tmp_path: Path, honest: bytes) -> None:
    from merlot.segment.compression import ChunkError, ChunkTable

    frame = compressed(blanks(64 << 20), 64 << 20)
    table = (64 << 20).to_bytes(4, "little") + (1).to_bytes(4, "little") + len(frame).to_bytes(8, "little")
    with pytest.raises(ChunkError, match="larger than"):
        ChunkTable(memoryview(table + frame), "zstd", 64 << 20)
