"""CSV text to records: what is one, what is none, and that it does not depend on where blocks end."""

import csv
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from merlot.errors import InvalidInputError
from merlot.ingest.source import blocks, csv_files, csv_records
from merlot.ingest.transform import CORRUPT_RECORD, SOURCE_ROW
from merlot.spec.ingestion import CsvOptions

COLUMNS = ["a", "b"]
Row = tuple[Any, ...]


class Memory:
    """A file system of one file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open_input_stream(self, _: str) -> pa.NativeFile:
        return pa.BufferReader(self._data)


def read(data: bytes, **options: Any) -> tuple[list[Row], list[tuple[int, str]]]:
    """Good rows and corrupt ones, each with its number first."""
    chosen = CsvOptions.model_validate(options)
    memory: fs.FileSystem = Memory(data)
    names = csv_files.read_header(memory, "f.csv", chosen) if chosen.header else COLUMNS
    found = csv_files.read(
        memory, "f.csv", chosen, names, {name: names.index(name) for name in COLUMNS if name in names}
    )
    rows = [row for table in found for row in table.to_pylist()]
    good = [row for row in rows if row.get(CORRUPT_RECORD) is None]
    corrupt = [(row[SOURCE_ROW], row[CORRUPT_RECORD]) for row in rows if row.get(CORRUPT_RECORD) is not None]
    return [(row[SOURCE_ROW], *(row[name] for name in COLUMNS if name in names)) for row in good], corrupt


@pytest.fixture(params=[1, 3, 8 << 20])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", request.param)
    monkeypatch.setattr(csv_files, "HEADER_BYTES", request.param)
    return int(request.param)


CASES: dict[str, tuple[bytes, list[Row], list[tuple[int, str]]]] = {
    "line breaks within quotes": (b'a,b\n1,"x\r\n2,y"\n3,z\n', [(1, "1", "x\r\n2,y"), (2, "3", "z")], []),
    "doubled quotes": (b'a,b\n1,"q""q"\n2,""""\n', [(1, "1", 'q"q'), (2, "2", '"')], []),
    "no quotes are null, quotes are empty": (b'a,b\n,""\n"",\n', [(1, None, ""), (2, "", None)], []),
    "a byte order mark and CRLF": (b"\xef\xbb\xbfa,b\r\n1,x\r\n", [(1, "1", "x")], []),
    "no line break in the end": (b"a,b\n1,x", [(1, "1", "x")], []),
    "blank lines": (b"\n\na,b\n\n1,x\n\r\n2,y\n\n", [(1, "1", "x"), (2, "2", "y")], []),
    "a quote within a value": (b'a,b\n1,5" pipe\n2,y\n', [(1, "1", '5" pipe'), (2, "2", "y")], []),
    "a carriage return within a value": (b"a,b\n1,x\ry\n2,y\n", [(1, "1", "x\ry"), (2, "2", "y")], []),
    "too few and too many values": (
        b"a,b\n1\n2,x,y\n3,z\n",
        [(3, "3", "z")],
        [(1, "1 value, the header has 2 names: 1"), (2, "3 values, the header has 2 names: 2,x,y")],
    ),
    "a quote that goes on": (b'a,b\n1,"x"y\n2,y\n', [(2, "2", "y")], [(1, '1,"x"y')]),
    "a quote that is never closed": (b'a,b\n1,x\n2,"y\n3,z\n', [(1, "1", "x")], [(2, '2,"y'), (3, "3,z")]),
    "a quote that the next one closes": (
        b'a,b\n1,"x\n2,y\n3,"z"\n4,w\n',
        [(4, "4", "w")],
        [(1, '1,"x'), (2, "2,y"), (3, '3,"z"')],
    ),
    "bytes that are no UTF-8": (b"a,b\n1,caf\xe9\n2,\xc3\xa9\n", [(2, "2", "é")], [(1, "1,caf\ufffd")]),
    "a header alone": (b"a,b\n", [], []),
    "nothing": (b"", [], []),
}


@pytest.mark.parametrize("name", CASES)
def test_records_are_the_same_wherever_blocks_end(name: str, block_bytes: int) -> None:
    data, rows, corrupt = CASES[name]
    found, bad = read(data)
    assert (sorted(found), sorted(bad)) == (rows, corrupt)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("is_quoted", [False, True])
def test_an_empty_line_of_one_column_is_a_null(block_bytes: int, ending: str, is_quoted: bool) -> None:
    """As DuckDB reads it. A quote that is not as it should be has records read one by one."""
    values = ["", "1", "", '"q"' if is_quoted else 'q"', "", ""]
    found, corrupt = read(("a" + ending + "".join(value + ending for value in values)).encode())
    assert (found, corrupt) == (
        [(number, one) for number, one in enumerate([None, "1", None, "q" if is_quoted else 'q"', None, None], 1)],
        [],
    )


def test_other_texts_and_signs_are_the_sources() -> None:
    assert read(b"1;NA\n2;\n3;x\n", header=False, delimiter=";", nullValue="NA")[0] == [
        (1, "1", None),
        (2, "2", None),
        (3, "3", "x"),
    ]
    assert read(b'a\tb\n1\t"NA"\n', delimiter="\t", nullValue="NA")[0] == [(1, "1", "NA")]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"a,caf\xe9\n1,2\n", "the header is not UTF-8"), (b'a,"b"c\n1,2\n', "no record"), (b'a,"b\n1,2\n', "no record")],
)
def test_a_header_that_cannot_be_read_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"header is .*{message}.* file=f\.csv|{message}.*file=f\.csv"):
        read(data)


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize(
    "data",
    [
        b"a,b\r1,x\r2,y\r",
        b"a,b\r1,x",
        b"\xef\xbb\xbfa,b\r\r1,x\r",
        b"a\r1\r2\r",
        b"a,b\r" + b"1,x\r" * 100,
        b'"a",b\r1,"x\r"\r2,""\r',
    ],
)
def test_a_file_whose_lines_end_in_carriage_returns_alone_is_refused_and_loses_no_rows(
    data: bytes, header: bool, block_bytes: int
) -> None:
    with pytest.raises(InvalidInputError, match=r"a carriage return alone file=f\.csv"):
        read(data, header=header)


def test_a_header_that_ends_in_a_carriage_return_is_a_header(block_bytes: int) -> None:
    assert read(b"a,b\r") == ([], [])
    assert read(b"a,b\r\n1,x") == ([(1, "1", "x")], [])
    assert read(b'"a\rc",b\n1,x\n') == ([(1, "x")], [])
    assert read(b"1,x\ry\n", header=False) == ([(1, "1", "x\ry")], [])


def test_a_record_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 8)
    monkeypatch.setattr(blocks, "MAX_RECORD_BYTES", 64)
    with pytest.raises(InvalidInputError, match=r"a record is too long file=f\.csv"):
        read(b'a,b\n1,"' + b"x\n" * 100)


def test_a_delimiter_that_cannot_be_one_is_refused() -> None:
    for delimiter in '"\n§':
        with pytest.raises(InvalidInputError, match="a delimiter of CSV"):
            csv_files.check(CsvOptions(delimiter=delimiter))


@given(
    st.lists(st.tuples(*[st.text('ab",;\n é\0', max_size=6)] * 2), max_size=8),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_another_program_writes_is_read_back(rows: list[tuple[str, str]], quoting: Any, ending: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=quoting, lineterminator=ending).writerows([COLUMNS, *rows])
    found, corrupt = read(text.getvalue().encode())
    assert [tuple(value or "" for value in row[1:]) for row in found] == rows
    assert corrupt == []


@given(st.text('a,"\n\r', max_size=40), st.integers(1, 9))
def test_whole_blocks_are_read_as_single_records_are(text: str, size: int) -> None:
    data = b"a,b\n" + text.encode()
    whole = read(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_records, "_well_formed", lambda *_: (np.zeros(0, np.int64), 0))
        assert read(data) == whole, "one by one"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", size)
        assert read(data) == whole, "in small blocks"
