"""Bytes of a text file in blocks that end where a record does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from merlot.errors import InvalidInputError

BLOCK_BYTES = 8 << 20
MAX_RECORD_BYTES = 64 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Stream(Protocol):
    """What blocks are read from: a file of pyarrow."""

    def read(self, num_bytes: int) -> bytes:
        """That many bytes or fewer; none at the end."""


class Files(Protocol):
    """What files are opened by: a file system of pyarrow, or one file of it."""

    def open_input_file(self, path: str, /) -> Any:
        """For random access."""
        ...

    def open_input_stream(self, path: str, /) -> Any:
        """From its beginning on, unpacked if its name ends so."""
        ...


def blocks(stream: Stream, take: Callable[[bytes, bool], int], file: str) -> Iterator[None]:
    """Hand blocks to `take(data, is_last)`, which answers how many bytes it has used up; the rest comes again with more
    behind it. Yields after each. InvalidInputError for a record longer than MAX_RECORD_BYTES."""
    rest, wanted = b"", BLOCK_BYTES
    while True:
        more = stream.read(wanted)
        data = rest + more if rest else more
        used = take(data, not more)
        yield
        if not more:
            return
        rest = data[used:]
        if len(rest) > MAX_RECORD_BYTES:
            raise InvalidInputError(f"a record is too long file={file} bytes={len(rest)} most={MAX_RECORD_BYTES}")
        # A record that goes on and on is looked at from its start each time: twice as far, so that it stays linear.
        wanted = max(BLOCK_BYTES, len(rest))


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are text."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
