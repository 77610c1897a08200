"""Mapped files and arrays over them, and the process-wide cache of decoded columns.

A mapped array keeps the mapping alive. Closing a segment while a query holds arrays of it is safe: the pages go with
the last array. The array of a whole buffer is read-only, mapped or decoded, so that kernels see one type.
"""

import itertools
import mmap
import os
import shutil
import tempfile
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot import memory
from merlot.segment import compression, lost_pages
from merlot.segment.layout import ALIGNMENT, Layout, StoredBuffer, damaged, padding, read_layout
from merlot.segment.mapping import map_file, prefetch
from merlot.segment.metadata import BufferRef

Array = NDArray[Any]
CacheKey = tuple[int, str]

CHUNKED_SHARE: Final = 4
"""A lookup that needs more than one in this many chunks decodes the whole buffer, which is then cached."""
LARGE_SHARE: Final = 8
"""An array that takes more than one part in this many of the cache's bound is decoded into a file."""
SMALL_BYTES: Final = 1 << 20
"""Size up to which arrays are decoded in memory anyway."""
FILE_SHARE: Final = 16
"""An array in a file counts one byte in this many, because the kernel drops its pages when memory is short."""
FREE_SHARE: Final = 10
"""Files of arrays leave one part in this many of their disk free."""


class DecodeCache:
    """LRU cache of decoded arrays, bounded by bytes; safe on any thread.

    Two threads that miss at once both decode; the second result wins. That is rarer and cheaper than a lock held while
    decoding."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._entries: OrderedDict[CacheKey, Array] = OrderedDict()
        self._names: dict[int, set[str]] = {}
        self._lock = threading.Lock()
        self._bytes = 0
        self._hits = 0
        self._misses = 0
        self._evictions = 0

    def get(self, key: CacheKey, decode: Callable[[], Array]) -> Array:
        """Return the array of `key`, decoded at the first call and after eviction. An array larger than the bound is
        not kept."""
        with self._lock:
            cached = self._entries.get(key)
            if cached is not None:
                self._entries.move_to_end(key)
                self._hits += 1
                return cached
            self._misses += 1
        array = decode()
        array.flags.writeable = False
        with self._lock:
            self._insert(key, array)
        return array

    def peek(self, key: CacheKey) -> Array | None:
        """Return the array of `key` if it is decoded already."""
        with self._lock:
            return self._entries.get(key)

    def drop(self, owner: int) -> None:
        """Drop all arrays of one mapped file."""
        with self._lock:
            for name in self._names.pop(owner, set()):
                self._bytes -= _held_bytes(self._entries.pop((owner, name)))

    def is_large(self, size_bytes: int) -> bool:
        """Return True if an array of that size is not small and would take a large part of the bound."""
        return size_bytes > SMALL_BYTES and size_bytes * LARGE_SHARE > self._capacity

    def resize(self, capacity_bytes: int) -> None:
        """Set the bound and evict at once."""
        with self._lock:
            self._capacity = capacity_bytes
            self._evict()

    def stats(self) -> dict[str, int]:
        """Return counters for metrics."""
        with self._lock:
            return {
                "bytes": self._bytes,
                "capacity_bytes": self._capacity,
                "entries": len(self._entries),
                "hits": self._hits,
                "misses": self._misses,
                "evictions": self._evictions,
            }

    def _insert(self, key: CacheKey, array: Array) -> None:
        held = _held_bytes(array)
        if held > self._capacity:
            return
        old = self._entries.pop(key, None)
        self._bytes += held - (_held_bytes(old) if old is not None else 0)
        self._entries[key] = array
        self._names.setdefault(key[0], set()).add(key[1])
        self._evict()

    def _evict(self) -> None:
        while self._bytes > self._capacity and self._entries:
            (owner, name), evicted = self._entries.popitem(last=False)
            self._bytes -= _held_bytes(evicted)
            self._evictions += 1
            self._names[owner].discard(name)
            if not self._names[owner]:
                del self._names[owner]


DECODE_CACHE = DecodeCache(memory.total_bytes() // 4)
"""Cache of the process, bounded by a quarter of the memory until a server sets its own bound."""

_owners = itertools.count(1)
_ZEROS: Final = bytes(ALIGNMENT)


def buffer_problems(view: memoryview, buffers: Sequence[StoredBuffer]) -> list[str]:
    """Return the problems of a file's buffers, and of the padding between them."""
    problems = []
    crc32 = zlib.crc32
    for number, (offset, length, crc, _) in enumerate(buffers):
        end = offset + length
        if crc32(view[offset:end]) != crc:
            problems.append(f"buffer {number} crc mismatch offset={offset} length={length}")
        if length % ALIGNMENT and bytes(view[end : end + padding(length)]) != _ZEROS[: padding(length)]:
            problems.append(f"buffer {number} is not followed by zeros offset={end}")
    return problems


@lru_cache(maxsize=64)
def _dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(name).newbyteorder("<")


class MappedFile:
    """A segment file in memory, and its buffers as arrays."""

    def __init__(self, path: Path, view: memoryview | None = None) -> None:
        """view: the file's bytes, if they are in memory already."""
        self.path = path
        self.owner = next(_owners)
        self._view, self._slot = map_file(path) if view is None else (view, lost_pages.NOT_WATCHED)
        self.layout: Layout = read_layout(self._view, path)

    @property
    def size_bytes(self) -> int:
        return len(self._view)

    @property
    def is_lost(self) -> bool:
        """True if pages of it could not be read, and zeros stand in their place."""
        return lost_pages.is_lost(self._slot)

    def array(self, ref: BufferRef, size: int | None = None) -> Array:
        """Return the decoded buffer, zero-copy where it is stored uncompressed. Raises CorruptionError.

        size: number of elements that it must have, because kernels trust the sizes that they are given."""
        if size is not None and ref.size != size:
            raise damaged(self.path, f"buffer {ref.number} has {ref.size} elements instead of {size}")
        dtype = _dtype_of(ref.dtype)
        length = ref.size * dtype.itemsize
        stored = self.stored(ref)
        if stored.codec == compression.NONE:
            if stored.length != length:
                raise damaged(self.path, f"buffer {ref.number} has {stored.length} bytes instead of {length}")
            return np.frombuffer(self._view[stored.offset : stored.offset + length], dtype=dtype)
        return DECODE_CACHE.get((self.owner, str(ref.number)), lambda: self._expanded(ref, dtype))

    def plain(self, ref: BufferRef) -> memoryview | None:
        """Return the bytes of a buffer, whatever their number; None if it is compressed. Raises CorruptionError."""
        offset, length, _, codec = self.stored(ref)
        return self._view[offset : offset + length] if codec == compression.NONE else None

    def decoded(self, name: str, count: int, dtype: np.dtype[Any], fill: Callable[[Array], None]) -> Array:
        """Return the array of `count` elements that `fill` writes into zeros. It is cached under a name of this file.

        A large array lies in a nameless file beside this one, whose pages the kernel may write out and drop: many rows
        can be read with little memory, if slowly."""

        def decode() -> Array:
            out = self._room(count, dtype)
            fill(out)
            return out

        return DECODE_CACHE.get((self.owner, name), decode)

    def peek(self, name: str) -> Array | None:
        """Return the array of that name if it is decoded already."""
        return DECODE_CACHE.peek((self.owner, name))

    def take(self, ref: BufferRef, positions: NDArray[np.uint32]) -> Array:
        """Return a new array of the elements at `positions`. If the buffer is compressed and not decoded yet, and few
        of its chunks hold the elements, only those chunks are expanded. Raises CorruptionError."""
        if not self.is_compressed(ref) or self.peek(str(ref.number)) is not None:
            return self.array(ref)[positions]
        dtype = _dtype_of(ref.dtype)
        with self._damage_of(ref):
            table = self._chunks(ref, dtype)
            per_chunk = table.chunk_bytes // dtype.itemsize
            chunk_of = positions // per_chunk if per_chunk else positions
            wanted = np.unique(chunk_of)
            if table.chunk_bytes % dtype.itemsize or len(wanted) * CHUNKED_SHARE > table.num_chunks:
                return self.array(ref)[positions]
            out = np.empty(len(positions), dtype=dtype)
            for number in wanted.tolist():
                inside = chunk_of == number
                chunk = np.frombuffer(table.chunk(number), dtype=dtype)
                out[inside] = chunk[positions[inside] - number * per_chunk]
        return out

    def require(self, holds: bool, what: str) -> None:
        """Raise CorruptionError with the message `what` unless `holds`."""
        if not holds:
            raise damaged(self.path, what)

    def verify(self) -> list[str]:
        """Return the problems of all buffers and of the padding between them; empty if every byte is as it was
        written."""
        return buffer_problems(self._view, self.layout.buffers)

    def is_compressed(self, ref: BufferRef) -> bool:
        return self.stored(ref).codec != compression.NONE

    def prefetch(self, ref: BufferRef) -> None:
        """Ask the kernel to read the pages of a buffer soon."""
        stored = self.stored(ref)
        prefetch(self._view[stored.offset : stored.offset + stored.length])

    def close(self) -> None:
        """Drop decoded arrays. The mapping itself ends with this object and the last array over it."""
        DECODE_CACHE.drop(self.owner)

    def stored(self, ref: BufferRef) -> StoredBuffer:
        """Return the place of a buffer. Raises CorruptionError."""
        if not 0 <= ref.number < len(self.layout.buffers):
            raise damaged(self.path, f"buffer {ref.number} is not in the directory")
        return self.layout.buffers[ref.number]

    def _room(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return zeros to write to."""
        size = count * dtype.itemsize
        mapped = _nameless(size, self.path.parent) if DECODE_CACHE.is_large(size) else None
        return np.zeros(count, dtype) if mapped is None else np.frombuffer(mapped, dtype)

    def _expanded(self, ref: BufferRef, dtype: np.dtype[Any]) -> Array:
        with self._damage_of(ref):
            table = self._chunks(ref, dtype)
            out = self._room(ref.size, dtype)
            table.expand(out.view(np.uint8))
        return out

    def _chunks(self, ref: BufferRef, dtype: np.dtype[Any]) -> compression.ChunkTable:
        stored = self.stored(ref)
        view = self._view[stored.offset : stored.offset + stored.length]
        return compression.ChunkTable(view, stored.codec, ref.size * dtype.itemsize)

    @contextmanager
    def _damage_of(self, ref: BufferRef) -> Iterator[None]:
        try:
            yield
        except compression.ChunkError as error:
            raise damaged(self.path, f"buffer {ref.number}: {error}") from error


def _nameless(size_bytes: int, folder: Path) -> mmap.mmap | None:
    """Return a mapped file of zeros that is deleted with its last array; None if the disk has no room for it
    or the file cannot be made."""
    try:
        disk = shutil.disk_usage(folder)
        if disk.free - size_bytes < disk.total // FREE_SHARE:
            return None
        with tempfile.TemporaryFile(dir=folder) as file:
            # A page that is written when the disk is full would end the process, so the space is reserved now.
            os.posix_fallocate(file.fileno(), 0, size_bytes)
            return mmap.mmap(file.fileno(), size_bytes)
    except OSError:
        return None


def _held_bytes(array: Array) -> int:
    """Return the number of bytes for which an array counts in the cache."""
    is_file = isinstance(getattr(array.base, "obj", None), mmap.mmap)
    return array.nbytes // FILE_SHARE if is_file else array.nbytes
