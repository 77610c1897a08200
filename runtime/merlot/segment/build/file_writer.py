"""Write a segment file once, from front to back, and make it visible by a rename.

Until `commit` only a temporary file exists, `.<name>.<pid>.<thread>.tmp`; afterwards the file is complete. It is not
durable: no process relies on a file where it was built, and `store.deepstore` makes it durable where it is kept. A
failure, a full disk included, deletes the temporary file; an older file of the same name stays.
"""

import contextlib
import errno
import os
import threading
import zlib
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from merlot.errors import UnavailableError
from merlot.segment import compression
from merlot.segment.buffers import Array
from merlot.segment.layout import SUFFIX, Footer, StoredBuffer, footer_bytes, header_bytes, padding
from merlot.segment.metadata import BufferRef

_WRITE_BYTES: Final = 1 << 20


class FileWriter:
    """Writer of the buffers and the footer of one file; used by one thread."""

    def __init__(self, directory: Path, name: str, suffix: str = SUFFIX) -> None:
        self.path = directory / f"{name}{suffix}"
        self._temporary = directory / f".{name}.{os.getpid()}.{threading.get_ident()}.tmp"
        self._directory: list[StoredBuffer] = []
        self._offset = 0

    def __enter__(self) -> Self:
        try:
            self._file = self._temporary.open("wb", buffering=_WRITE_BYTES)
        except OSError as error:
            raise self._unavailable(error) from error
        self._append(header_bytes())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._discard()

    def add(self, array: Array, codec: str | None) -> BufferRef:
        """Append a buffer. It is compressed only if that makes it smaller; if the codec is None, only if much smaller.

        The crc in the result is that of the uncompressed bytes."""
        data = array.data.cast("B") if array.size else memoryview(b"")
        crc = zlib.crc32(data)
        packed = _compressed(data, codec)
        if packed is None:
            stored, buffer = data, StoredBuffer(self._offset, len(data), crc, compression.NONE)
        else:
            stored = memoryview(packed)
            buffer = StoredBuffer(self._offset, len(packed), zlib.crc32(packed), codec or compression.ZSTD)
        self._directory.append(buffer)
        self._append(stored)
        self._append(bytes(padding(len(stored))))
        return BufferRef(len(self._directory) - 1, array.dtype.str.lstrip("<|"), array.size, crc)

    def commit(self, footer: Footer) -> int:
        """Write the footer, make the file visible, and return its size."""
        self._append(footer_bytes(footer, self._directory, self._offset))
        try:
            self._file.close()
            self._temporary.rename(self.path)
        except OSError as error:
            raise self._unavailable(error) from error
        return self._offset

    def _append(self, data: bytes | memoryview) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise self._unavailable(error) from error
        self._offset += len(data)

    def _discard(self) -> None:
        # On a full disk, closing flushes again and fails again; the file is deleted anyway.
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _unavailable(self, error: OSError) -> UnavailableError:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else error.strerror
        return UnavailableError(f"cannot write segment file path={self.path}: {reason}")


def _compressed(data: memoryview, codec: str | None) -> bytes | None:
    """Return the chunks to store instead of `data`, or None to store it uncompressed."""
    if codec is None:
        return compression.compress_if_small(data)
    if codec == compression.NONE or not len(data):
        return None
    packed = compression.compress(data, codec)
    return packed if len(packed) < len(data) else None
