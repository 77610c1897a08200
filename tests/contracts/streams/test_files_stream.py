"""Files keep the contract of streams, and what only files can do to a reader."""

from pathlib import Path

import pytest
from folder_topic import Folder, stream_of

from merlot.errors import InvalidInputError
from merlot.streams.files import FILE_BITS, MAX_LINE_BYTES
from merlot.streams.protocol import OffsetOutOfRangeError, OffsetRange, TopicGoneError
from merlot.testing.stream_contract import StreamContract, read, values_of


class TestFilesStream(StreamContract):
    @pytest.fixture
    def topic(self, tmp_path: Path) -> Folder:
        return Folder(tmp_path / "topic")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "topic").mkdir()
    return tmp_path / "topic"


def test_a_folder_of_files_is_one_partition(folder: Path) -> None:
    (folder / "a.jsonl").write_text("1\n2\n")
    assert list(stream_of(folder).partitions()) == [0]
    assert stream_of(folder).offsets(0) == OffsetRange(0, 4)


def test_half_a_line_is_not_read_before_its_line_break(folder: Path) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a"')
    stream = stream_of(folder)
    reader = stream.reader(0, 0)
    assert values_of([reader.poll(10, 0)]) == [b'{"a": 1}']
    assert stream.offsets(0).latest == 9
    assert len(reader.poll(10, 0.01)) == 0
    with path.open("ab") as file:
        file.write(b": 2}\n")
    assert values_of([reader.poll(10, 0)]) == [b'{"a": 2}']


def test_blank_lines_are_no_messages(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(b"\n1\n\n  \r\n2\n\n")
    polls = read(stream_of(folder).reader(0, 0), 2, at_most=1)
    assert [poll.values.to_pylist() for poll in polls] == [[b"1"], [b"2"]]
    assert [poll.offsets.tolist() for poll in polls] == [[1], [8]]


def test_next_file_is_read_after_all_of_the_one_before(folder: Path) -> None:
    (folder / "trips-1.jsonl").write_bytes(b"a\nb\nc")
    reader = stream_of(folder).reader(0, 0)
    assert values_of(read(reader, 2)) == [b"a", b"b"]
    (folder / "trips-10.jsonl").write_bytes(b"d\n")
    (folder / "trips-9.jsonl").write_bytes(b"")
    polls = read(reader, 2)
    assert values_of(polls) == [b"c", b"d"]
    assert polls[-1].next_offset == (10 << FILE_BITS) + 2
    assert len(reader.poll(10, 0.01)) == 0


def test_deleted_files_are_out_of_range(folder: Path) -> None:
    (folder / "trips-1.jsonl").write_bytes(b"a\nb\n")
    reader = stream_of(folder).reader(0, 1 << FILE_BITS)
    assert values_of([reader.poll(1, 0)]) == [b"a"]
    (folder / "trips-2.jsonl").write_bytes(b"c\n")
    (folder / "trips-1.jsonl").unlink()
    with pytest.raises(OffsetOutOfRangeError) as raised:
        reader.poll(10, 0)
    assert raised.value.available == OffsetRange(2 << FILE_BITS, (2 << FILE_BITS) + 2)


def test_a_file_that_has_shrunk_is_out_of_range(folder: Path) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(b"abc\ndef\n")
    reader = stream_of(folder).reader(0, 0)
    assert len(reader.poll(10, 0)) == 2
    path.write_bytes(b"x\n")
    with pytest.raises(OffsetOutOfRangeError, match="wanted=8 earliest=0 latest=2"):
        reader.poll(10, 0)


def test_a_line_beyond_all_bounds_is_cut_and_passed(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(b"a\n" + b"x" * (MAX_LINE_BYTES + (3 << 20)) + b"\nb\n")
    values = values_of(read(stream_of(folder).reader(0, 0), 3))
    assert values == [b"a", b"x" * MAX_LINE_BYTES, b"b"]


def test_two_files_of_one_number_are_refused(folder: Path) -> None:
    for name in ("a-1.jsonl", "b-01.jsonl"):
        (folder / name).write_bytes(b"a\n")
    with pytest.raises(InvalidInputError, match="two files of a stream have one number"):
        stream_of(folder).offsets(0)


def test_lines_have_no_times(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match="have no times"):
        stream_of(folder).offset_at(0, 0)


def test_folder_that_is_deleted_is_gone(folder: Path) -> None:
    reader = stream_of(folder).reader(0, 0)
    folder.rmdir()
    with pytest.raises(TopicGoneError):
        reader.poll(10, 0)
