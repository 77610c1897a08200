"""Check of roaring bitmaps in their portable form, for bytes that a trusting library is about to read.

CRoaring checks that a bitmap fits in its bytes, but not that its containers are what their headers say. If a container
claims fewer docs than it has bits set, CRoaring writes past its own memory.
https://github.com/RoaringBitmap/RoaringFormatSpec
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

_WITHOUT_RUNS = 12346
_WITH_RUNS = 12347
_OFFSETS_FROM = 4
"""Number of containers from which on a bitmap with runs stores their offsets."""
_ARRAY_DOCS = 4096
"""Most docs of a container that lists them; a larger one has a bit for each of 65,536."""
_BITSET_BYTES = 8192
_BITS_OF = np.array([byte.bit_count() for byte in range(256)], np.uint8)

Bytes = NDArray[np.uint8]


@kernel
def _short(data: Bytes, at: int) -> int:
    value: int = np.int64(data[at]) | np.int64(data[at + 1]) << 8  # type: ignore[assignment]
    return value


@kernel
def _array(data: Bytes, at: int, num_docs: int) -> int:
    """Return the number of bytes of a container that lists docs, ascending; -1 if it is malformed. `_bitset` and
    `_runs` do so for the other kinds."""
    if at + 2 * num_docs > data.size:
        return -1
    descents = 0
    for place in range(at, at + 2 * num_docs - 2, 2):
        descents += _short(data, place) >= _short(data, place + 2)
    return -1 if descents else 2 * num_docs


@kernel
def _bitset(data: Bytes, at: int, num_docs: int) -> int:
    if at + _BITSET_BYTES > data.size:
        return -1
    total = 0
    for place in range(at, at + _BITSET_BYTES):
        total += _BITS_OF[data[place]]
    return _BITSET_BYTES if total == num_docs else -1


@kernel
def _runs(data: Bytes, at: int, num_docs: int) -> int:
    if at + 2 > data.size or at + 2 + 4 * _short(data, at) > data.size:
        return -1
    # At least one doc separates two runs: runs that touch would be one run.
    total, end = 0, -2
    stop = at + 2 + 4 * _short(data, at)
    for run in range(at + 2, stop, 4):
        start, more = _short(data, run), _short(data, run + 2)
        if start <= end + 1 or start + more > 0xFFFF:
            return -1
        total, end = total + more + 1, start + more
    return stop - at if total == num_docs else -1


@kernel
def _last(data: Bytes, at: int, stop: int, is_run: bool, is_bitset: bool) -> int:
    """Return the last doc of a well-formed container."""
    if is_run:
        return _short(data, stop - 4) + _short(data, stop - 2)
    if not is_bitset:
        return _short(data, stop - 2)
    byte = _BITSET_BYTES - 1
    while not data[at + byte]:
        byte -= 1
    bit = 7
    while not data[at + byte] >> bit & 1:
        bit -= 1
    return 8 * byte + bit


@kernel
def count_bitmap(data: Bytes, num_docs: int) -> int:
    """Return the number of docs of a bitmap, each once and less than `num_docs`; -1 if these bytes are no such bitmap.

    data (N,): the bitmap and its padding"""
    if data.size < 8:
        return -1
    cookie = _short(data, 0)
    has_runs = cookie == _WITH_RUNS
    if not has_runs and (cookie != _WITHOUT_RUNS or _short(data, 2) != 0):
        return -1
    count = _short(data, 2) + 1 if has_runs else _short(data, 4) | _short(data, 6) << 16
    flags = 4 if has_runs else 8
    keys = flags + (count + 7) // 8 if has_runs else flags
    at = keys + (8 if not has_runs or count >= _OFFSETS_FROM else 4) * count
    if count > 1 << 16 or at > data.size:
        return -1
    total, key, last = 0, -1, -1
    for number in range(count):
        before, key = key, _short(data, keys + 4 * number)
        docs = _short(data, keys + 4 * number + 2) + 1
        is_run = has_runs and data[flags + number // 8] >> (number % 8) & 1 != 0
        is_bitset = docs > _ARRAY_DOCS
        length = _runs(data, at, docs) if is_run else _bitset(data, at, docs) if is_bitset else _array(data, at, docs)
        if length < 0 or key <= before:
            return -1
        last = key << 16 | _last(data, at, at + length, is_run, is_bitset)
        at, total = at + length, total + docs
    return total if last < num_docs else -1


@kernel
def ascend(docs: NDArray[np.uint32]) -> bool:
    """Return True if each doc is less than the next."""
    descents = 0
    for place in range(1, docs.size):
        descents += docs[place] <= docs[place - 1]
    return descents == 0
