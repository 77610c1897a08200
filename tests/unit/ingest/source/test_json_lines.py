"""JSON lines to records: exact texts, lines that are none, and stretches of a file."""

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from merlot.ingest.source import blocks, json_lines
from merlot.ingest.transform import CORRUPT_RECORD, SOURCE_ROW


def read(path: Path, columns: Mapping[str, bool], stretch: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    found = json_lines.read(fs.LocalFileSystem(), str(path), stretch, columns)
    return [row for table in found for row in table.to_pylist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "f.json"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("12345678901234567890.123456789", "12345678901234567890.123456789"),
        ("9007199254740993", "9007199254740993"),
        ("1.10", "1.10"),
        ("-1e400", "-1e400"),
        ("true", "true"),
        ("null", None),
        ('""', ""),
        ('"null"', "null"),
        (r'"a\n\"\u00e9\ud83d\ude00\\"', 'a\n"é😀\\'),
        ('{"x": 1,  "y":null}', '{"x": 1,  "y":null}'),
        ("{}", "{}"),
        ("[1, 2.50]", "[1, 2.50]"),
    ],
)
def test_values_are_texts_as_they_are_written_whatever_other_rows_hold(
    path: Path, written: str, text: str | None
) -> None:
    others = '{"a": 1.5}\n{"a": "s"}\n{"a": {"x": "s"}}\n{}\n'
    path.write_text(others + f'{{"a" : {written} , "b": 1}}\n' + others)
    assert read(path, {"a": False})[4]["a"] == text


def test_lists_are_lists_of_texts(path: Path) -> None:
    path.write_text('{"a":[1,null,"x\\n",{"k": 1}]}\n{"a":5}\n{"a":null}\n{"b":1}\n{"a":[]}\n{"a":"[1]"}\n')
    assert [row["a"] for row in read(path, {"a": True})] == [
        ["1", None, "x\n", '{"k": 1}'],
        ["5"],
        None,
        None,
        [],
        ["[1]"],
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":1}{"a":3}',
        b'{"a":1},{"a":3}',
        b'{"a":1} trailing',
        b"[1]",
        b"7",
        b"{oops",
        b'{"a":01}',
        b'{"a":NaN}',
        b'{"b":{"c":01}}',
        b'{"a":"\\ud800"}',
        b'{"a":"caf\xe9"}',
        b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
def test_a_line_that_is_not_one_object_is_a_corrupt_row(path: Path, line: bytes) -> None:
    path.write_bytes(b'{"a":1}\n\n' + line + b'\r\n{"a":2}')
    rows = read(path, {"a": False})
    assert [row["a"] for row in rows if row.get(CORRUPT_RECORD) is None] == ["1", "2"]
    assert [(row[SOURCE_ROW], row[CORRUPT_RECORD]) for row in rows if row.get(CORRUPT_RECORD) is not None] == [
        (2, line.decode(errors="replace"))
    ]


def test_keys_are_found_in_each_record(path: Path) -> None:
    path.write_text('{"b":1}\n{"B":2}\n{"B":3,"b":4}\n{"b":5,"b":6}\n{"c":{"B":7}}\n{"bB":8,"bb":9,"BB":9}\n')
    rows = read(path, {"b": False, "Bb": False})
    assert [row["b"] for row in rows] == ["1", "2", "4", "6", None, None]
    assert [row[SOURCE_ROW] for row in rows if row.get(CORRUPT_RECORD)] == [6], "bB, bb or BB"


def test_a_column_that_no_record_has_is_left_out(path: Path) -> None:
    path.write_text('\ufeff{"a":1}\n')
    assert read(path, {"a": False, "b": False}) == [{"a": "1", SOURCE_ROW: 1}]


@given(
    st.lists(st.text('a"\n{}é', max_size=5), max_size=12), st.lists(st.integers(0, 200), max_size=5), st.integers(1, 9)
)
def test_every_line_is_in_one_stretch(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], cuts: list[int], size: int
) -> None:
    path = tmp_path_factory.mktemp("stretches") / "f.json"
    path.write_bytes("\n".join(texts).encode())
    length = path.stat().st_size
    bounds = sorted({0, length, *(min(cut, length) for cut in cuts)})
    whole = [row.get(CORRUPT_RECORD) for row in read(path, {"a": False})]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", size)
        patch.setattr(json_lines, "BLOCK_BYTES", size)
        stretches = itertools.pairwise(bounds)
        found = [row.get(CORRUPT_RECORD) for one in stretches for row in read(path, {"a": False}, one)]
    assert Counter(found) == Counter(whole)
