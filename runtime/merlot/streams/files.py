"""A folder of text files that grow, as a stream: each line is a message. No broker is needed.

Partitions are the folder's subfolders with numbers as names (`0`, `1`, …). If there are none, the folder itself is
partition 0. A partition's files are in the order of their numbers. A file's number is the last part of its name before
the extension (`trips-0007.jsonl` is 7, `trips.jsonl` is 0) and has up to eight digits. A writer that has begun a file
writes no more to the files before it. Names that begin with `.` or `_` are skipped. Links are followed if they lead to
files below the folders that streams may read.

An offset tells where a line begins: the file's number × 2^36 + the position of a byte within the file. By the byte, a
reader finds the line without counting lines. The number is needed since earlier files may be deleted.

A line is read once it has its line break, or once there is a next file. Blank lines are not messages.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from merlot.errors import InvalidInputError, UnavailableError
from merlot.streams.file_lines import CHUNK_BYTES, NO_LINES, Lines, read_lines
from merlot.streams.folders import EVERY_FOLDER, AllowedFolders
from merlot.streams.protocol import Messages, OffsetOutOfRangeError, OffsetRange, StreamSettings, TopicGoneError

FILE_BITS = 36
"""Bits of an offset for the byte within a file: a file may have 64 GiB."""
MAX_NUMBER = 99_999_999
_POSITION_MASK = (1 << FILE_BITS) - 1
LOOK_S = 0.002
"""Seconds between two checks for new lines, at first."""
LONGEST_LOOK_S = 0.016
"""Longest pause between checks while no lines come: 64 partitions that checked every 2 ms left a core no time for
rows."""
_NUMBER = re.compile(r"([0-9]+)(\.[^.]*)?$")


class FilesStream:
    """Stream of a folder."""

    def __init__(self, settings: StreamSettings, allowed: AllowedFolders = EVERY_FOLDER) -> None:
        if not settings.topic:
            raise InvalidInputError("a stream of files needs the folder as its topic")
        self._allowed = allowed
        self._root = Path(settings.topic)

    def identity(self) -> str:
        """Return an empty text: a folder that is filled anew is recognized by files that are gone, or have shrunk."""
        return ""

    def partitions(self) -> Sequence[int]:
        """Return the numbers of the subfolders, ascending; only 0 if no subfolder has a number as its name."""
        return sorted(self._folders())

    def offsets(self, partition: int) -> OffsetRange:
        """Return the offsets from the first line of the first file up to the end of the last whole line."""
        return _available(_files(self._folder(partition), self._allowed))

    def offset_at(self, partition: int, time_ms: int) -> int:
        """Raise InvalidInputError: lines have no time of their own."""
        raise InvalidInputError(f"lines of files have no times; start at earliest or latest folder={self._root}")

    def reader(self, partition: int, start: int) -> FilesReader:
        """Return a reader of a partition's lines."""
        return FilesReader(self._folder(partition), start, self._allowed)

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def _folders(self) -> Mapping[int, Path]:
        root = self._allowed.resolved(self._root)
        numbered: dict[int, Path] = {}
        try:
            folders = sorted(path for path in root.iterdir() if path.name.isdecimal() and path.is_dir())
        except FileNotFoundError as error:
            raise TopicGoneError(f"no such folder path={self._root}") from error
        except OSError as error:
            raise UnavailableError(f"folder cannot be read path={self._root} reason={error.strerror}") from error
        for path in folders:
            other = numbered.setdefault(int(path.name), path)
            if other != path:
                two = [other.name, path.name]
                raise InvalidInputError(f"two folders of a stream have one number folder={self._root} folders={two}")
        return numbered or {0: root}

    def _folder(self, partition: int) -> Path:
        folder = self._folders().get(partition)
        if folder is None:
            raise TopicGoneError(f"no such partition path={self._root} partition={partition}")
        return folder


class FilesReader:
    """Reader of the files of one partition, one after the other."""

    def __init__(self, folder: Path, start: int, allowed: AllowedFolders = EVERY_FOLDER) -> None:
        self._folder = folder
        self._allowed = allowed
        self._next = start
        self._searched = (-1, 0)
        """Offset of the last line that had no line break, and the position in its file up to which none was found."""

    def poll(self, max_messages: int, timeout_s: float) -> Messages:
        """Return the next lines, all from one file; none if `timeout_s` passes first."""
        deadline = time.monotonic() + timeout_s
        wait_s = LOOK_S
        while True:
            begin = self._next
            lines = self._take(max_messages)
            if len(lines.texts) or time.monotonic() >= deadline:
                return Messages(
                    values=lines.texts,
                    offsets=lines.starts + (begin & ~_POSITION_MASK),
                    timestamps_ms=np.full(len(lines.texts), -1, dtype=np.int64),
                    next_offset=self._next,
                )
            if self._next == begin:
                time.sleep(min(wait_s, max(deadline - time.monotonic(), 0)))
                wait_s = min(2 * wait_s, LONGEST_LOOK_S)

    def seek(self, offset: int) -> None:
        """Go on from another offset."""
        self._next = offset

    def close(self) -> None:
        """Do nothing: nothing is held between two polls."""

    def _take(self, max_messages: int) -> Lines:
        """Return the next lines of the current file, and move on past them, or to the next file. A file that is deleted
        after it was listed gives none: the next look finds that it is gone."""
        # List the files before reading lines: a file with a successor is no longer written to, so its end is final.
        files = _files(self._folder, self._allowed)
        number, position = self._next >> FILE_BITS, self._next & _POSITION_MASK
        later = [other for other in files if other > number]
        if number not in files:
            if position or not (later or self._next == 0):
                raise OffsetOutOfRangeError(f"folder={self._folder}", self._next, _available(files))
            lines = NO_LINES
        else:
            try:
                lines = self._read(files, number, max_messages)
            except FileNotFoundError:
                return NO_LINES
        self._next += lines.used
        if later and not lines.used:
            self._next = later[0] << FILE_BITS
        return lines

    def _read(self, files: Mapping[int, Path], number: int, max_messages: int) -> Lines:
        position, is_final = self._next & _POSITION_MASK, number < max(files)
        try:
            with _opened(files[number]) as file:
                size = _size(file, files[number])
                if position > size:
                    raise OffsetOutOfRangeError(f"folder={self._folder}", self._next, _available(files))
                if not is_final and not self._may_have_break(file, size):
                    return NO_LINES
                file.seek(position)
                lines = read_lines(file, position, max_messages, is_final=is_final)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnavailableError(f"file cannot be read path={files[number]} reason={error.strerror}") from error
        if not lines.used:
            self._searched = (self._next, size)
        return lines

    def _may_have_break(self, file: BinaryIO, size: int) -> bool:
        """Return False if the next line was seen without a line break, and none was written since. Only what was
        written since is read: the line may be as long as the file."""
        begin, searched = self._searched
        if begin != self._next or size < searched:
            return True
        file.seek(searched)
        while data := file.read(CHUNK_BYTES):
            if b"\n" in data:
                return True
            searched += len(data)
        self._searched = (begin, searched)
        return False


def _files(folder: Path, allowed: AllowedFolders) -> Mapping[int, Path]:
    """Return the files of a partition by their numbers, ascending; raise PlaceNotAllowedError if one of them, or the
    folder, has become a link that leads out of the allowed folders."""
    files: dict[int, Path] = {}
    folder = allowed.resolved(folder)
    try:
        with os.scandir(folder) as entries:
            shown = [entry for entry in entries if entry.name[0] not in "._" and entry.is_file()]
        links = {entry.name for entry in shown if entry.is_symlink()}
        names = sorted(entry.name for entry in shown)
    except FileNotFoundError as error:
        raise TopicGoneError(f"no such folder path={folder}") from error
    except OSError as error:
        raise UnavailableError(f"folder cannot be read path={folder} reason={error.strerror}") from error
    for name in names:
        match = _NUMBER.search(name)
        number = int(match[1]) if match else 0
        if number in files:
            two = [files[number].name, name]
            raise InvalidInputError(
                f"two files of a stream have one number folder={folder} number={number} files={two}"
            )
        if number > MAX_NUMBER:
            raise InvalidInputError(f"a file of a stream has too large a number folder={folder} file={name}")
        files[number] = allowed.resolved(folder / name) if name in links else folder / name
    return dict(sorted(files.items()))


def _opened(path: Path) -> BinaryIO:
    """Open a file that was listed, and nothing that somebody has put in its place meanwhile: no link, no pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(descriptor, "rb")


def _size(file: BinaryIO, path: Path) -> int:
    """Return the size of a file; raise InvalidInputError if an offset cannot hold it."""
    size = file.seek(0, os.SEEK_END)
    if size > _POSITION_MASK:
        raise InvalidInputError(f"a file of a stream must be smaller than 64 GiB, split it path={path} bytes={size}")
    return size


def _available(files: Mapping[int, Path]) -> OffsetRange:
    if not files:
        return OffsetRange(0, 0)
    first, last = min(files), max(files)
    return OffsetRange(first << FILE_BITS, (last << FILE_BITS) + _whole_bytes(files[last]))


def _whole_bytes(path: Path) -> int:
    """Return the number of bytes up to the end of the last whole line."""
    try:
        return _whole_bytes_of(path)
    except OSError as error:
        raise UnavailableError(f"file cannot be read path={path} reason={error.strerror}") from error


def _whole_bytes_of(path: Path) -> int:
    with _opened(path) as file:
        end = _size(file, path)
        while end:
            start = max(end - CHUNK_BYTES, 0)
            file.seek(start)
            position = file.read(end - start).rfind(b"\n")
            if position >= 0:
                return start + position + 1
            end = start
    return 0
