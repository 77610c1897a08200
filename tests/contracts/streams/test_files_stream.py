"""Files keep the contract of streams, and what only files can do to a reader."""

import io
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.contracts.streams.folder_topic import Folder, stream_of

from merlot.errors import InvalidInputError, UnavailableError
from merlot.streams import files
from merlot.streams.file_lines import MAX_LINE_BYTES
from merlot.streams.files import FILE_BITS, FilesReader, FilesStream
from merlot.streams.folders import AllowedFolders, PlaceNotAllowedError
from merlot.streams.protocol import OffsetOutOfRangeError, OffsetRange, StreamSettings, TopicGoneError
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


def below(folder: Path) -> FilesStream:
    """The stream of a folder by a process that may read nothing else."""
    return FilesStream(StreamSettings(topic=str(folder), properties={}), AllowedFolders((str(folder),)))


def leads_out(stream: FilesStream, reader: FilesReader) -> None:
    """Neither a reader from before, nor a new one, nor a look at offsets gets at what is outside."""
    for read_it in (lambda: reader.poll(10, 0), lambda: stream.offsets(0), lambda: stream.reader(0, 0).poll(10, 0)):
        with pytest.raises(PlaceNotAllowedError, match="--stream-folders"):
            read_it()


def test_a_file_that_links_out_of_the_folders_that_are_allowed_is_refused(folder: Path) -> None:
    (folder.parent / "shadow").write_text("root:secret\n")
    (folder / "a-0.jsonl").write_text("1\n")
    (folder / "a-1.jsonl").symlink_to(folder / "a-0.jsonl")
    stream = below(folder)
    reader = stream.reader(0, 0)
    assert values_of(read(reader, 2)) == [b"1", b"1"], "a link to a file below the folder is a file of it"
    (folder / "a-2.jsonl").symlink_to(folder.parent / "shadow")
    leads_out(stream, reader)


def test_a_partition_that_becomes_a_link_out_is_refused(folder: Path) -> None:
    (folder / "0").mkdir()
    (folder / "0" / "a.jsonl").write_text("1\n")
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "a.jsonl").write_text("1\nroot:secret\n")
    stream = below(folder)
    reader = stream.reader(0, 0)
    assert values_of([reader.poll(10, 0)]) == [b"1"]
    (folder / "0").rename(folder / "old")
    (folder / "0").symlink_to(folder.parent / "other")
    leads_out(stream, reader)


def test_a_link_that_takes_the_place_of_a_file_after_it_was_listed_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "shadow").write_text("root:secret\n")
    (folder / "a.jsonl").write_text("1\n")
    opened = files._opened

    def swapped(path: Path) -> BinaryIO:
        path.unlink()
        path.symlink_to(folder.parent / "shadow")
        return opened(path)

    reader = below(folder).reader(0, 0)
    monkeypatch.setattr(files, "_opened", swapped)
    with pytest.raises(UnavailableError, match="file cannot be read"):
        reader.poll(10, 0)


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


def test_a_line_that_is_still_written_is_not_read_again_at_every_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_read: list[int] = []

    class Counted(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            num_read.append(len(data))
            return data

    monkeypatch.setattr(files, "_opened", lambda path: Counted(io.FileIO(path)))
    path = folder / "a.jsonl"
    path.write_bytes(b"x" * (3 << 20))
    reader = stream_of(folder).reader(0, 0)
    assert len(reader.poll(10, 0)) == 0
    assert sum(num_read) == 3 << 20
    with path.open("ab") as file:
        file.write(b"y")
    num_read.clear()
    assert len(reader.poll(10, 0)) == 0
    assert sum(num_read) == 1
    with path.open("ab") as file:
        file.write(b"z\nnext\n")
    assert values_of(read(reader, 2)) == [b"x" * (3 << 20) + b"yz", b"next"]


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


def test_a_file_that_is_deleted_after_it_was_listed_is_not_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "trips-1.jsonl").write_bytes(b"a\nb\n")
    (folder / "trips-2.jsonl").write_bytes(b"c\n")
    opened = files._opened

    def deleted(path: Path) -> BinaryIO:
        (folder / "trips-1.jsonl").unlink(missing_ok=True)
        return opened(path)

    reader = stream_of(folder).reader(0, 1 << FILE_BITS)
    assert values_of([reader.poll(1, 0)]) == [b"a"]
    monkeypatch.setattr(files, "_opened", deleted)
    assert len(reader.poll(10, 0)) == 0
    with pytest.raises(OffsetOutOfRangeError):
        reader.poll(10, 0)


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


def test_two_folders_of_one_number_are_refused(folder: Path) -> None:
    for name in ("1", "01"):
        (folder / name).mkdir()
    with pytest.raises(InvalidInputError, match=r"two folders of a stream have one number .*folders=\['01', '1'\]"):
        stream_of(folder).partitions()


def test_a_file_that_no_offset_can_hold_is_refused(folder: Path) -> None:
    with (folder / "a.jsonl").open("wb") as file:
        file.truncate(1 << FILE_BITS)
    stream = stream_of(folder)
    for read_it in (lambda: stream.offsets(0), lambda: stream.reader(0, 0).poll(10, 0)):
        with pytest.raises(InvalidInputError, match="must be smaller than 64 GiB"):
            read_it()


def test_lines_have_no_times(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match="have no times"):
        stream_of(folder).offset_at(0, 0)


def test_folder_that_is_deleted_is_gone(folder: Path) -> None:
    reader = stream_of(folder).reader(0, 0)
    folder.rmdir()
    with pytest.raises(TopicGoneError):
        reader.poll(10, 0)
