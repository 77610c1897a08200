"""Read a text file in blocks that end where a record does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from merlot.errors import InvalidInputError

BLOCK_BYTES = 8 << 20
MAX_RECORD_BYTES = 64 << 20
PACKED: Final[Mapping[bytes, str]] = {
    b"\x1f\x8b": "compressed by gzip",
    b"BZh91AY&SY": "compressed by bzip2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\x04\x22\x4d\x18": "compressed by lz4",
    b"\xfd7zXZ\x00": "compressed by xz",
    b"\xff\x06\x00\x00sNaPpY": "compressed by snappy",
    b"\x78\x9c": "compressed by deflate",
    b"\x78\xda": "compressed by deflate",
    b"PK\x03\x04": "a zip archive",
    b"PAR1\x15": "a Parquet file",
    b"Obj\x01": "an Avro file",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""First bytes of files that are no text, and the kind of file that begins so."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ByteStream(Protocol):
    """Stream that blocks are read from: a file of pyarrow."""

    def read(self, num_bytes: int) -> bytes:
        """Return that many bytes or fewer; none at the end."""


class FileOpener(Protocol):
    """Opener of files: a file system of pyarrow, or one file of it."""

    def open_input_file(self, path: str, /) -> Any:
        """Open a file for random access."""
        ...

    def open_input_stream(self, path: str, /) -> Any:
        """Open a file as a stream from its beginning, unpacked if the end of its name says so."""
        ...


def blocks(stream: ByteStream, take: Callable[[bytes, bool], int], file: str) -> Iterator[None]:
    """Hand blocks to `take(data, is_last)`, which returns how many bytes it has used; the rest comes again with more
    behind it. Yields after each block. Raises InvalidInputError for a record longer than MAX_RECORD_BYTES."""
    rest, wanted, is_first = b"", BLOCK_BYTES, True
    while True:
        more = stream.read(wanted)
        if is_first:
            _check_is_text(more, file)
            is_first = False
        data = rest + more if rest else more
        used = take(data, not more)
        yield
        if not more:
            return
        rest = data[used:]
        if len(rest) > MAX_RECORD_BYTES:
            raise InvalidInputError(f"a record is too long file={file} bytes={len(rest)} most={MAX_RECORD_BYTES}")
        # A very long record is scanned from its start each time. Reading twice as far each time keeps this linear.
        wanted = max(BLOCK_BYTES, len(rest))


def _check_is_text(start: bytes, file: str) -> None:
    for magic, kind in PACKED.items():
        if start.startswith(magic):
            raise InvalidInputError(
                f"the file is {kind}, not text file={file}; text files are unpacked if their names end in .gz, .bz2, "
                ".zst or .lz4"
            )


def is_utf8(data: bytes) -> bool:
    """Return True if the bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
