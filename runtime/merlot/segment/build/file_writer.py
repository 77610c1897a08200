"""One segment file, written once from front to back and made visible by a rename.

Until `commit` there is only `.<name>.<pid>.tmp`; after it the file is whole. It is not durable: nobody relies on a file
where it was built, and `store.deepstore` makes it so where it is kept. A failure, a full disk included, leaves no file
of either name.
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
    """The buffers and the footer of one file; one thread's."""

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
        """Append a buffer; compressed only if that makes it smaller, with None much smaller.

        The crc in the result is of the plain bytes."""
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
        """Write the footer and make the file visible; returns its size."""
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
        # Closing flushes again, and fails again, on a full disk; the file goes anyway.
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _unavailable(self, error: OSError) -> UnavailableError:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else error.strerror
        return UnavailableError(f"cannot write segment file path={self.path}: {reason}")


def _compressed(data: memoryview, codec: str | None) -> bytes | None:
    """The chunks to store instead of `data`, or None if it is stored plainly."""
    if codec is None:
        return compression.compress_if_small(data)
    if codec == compression.NONE or not len(data):
        return None
    packed = compression.compress(data, codec)
    return packed if len(packed) < len(data) else None
