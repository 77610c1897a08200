"""Read and write integer-sum tuple sketches in bytes, many at a time: images of Apache DataSketches for Java.

A compact image has a word of flags, a word with the number of entries if there is more than one or theta is below 1, a
word of theta if that is below 1, and the entries. An entry is a hash, a sum of 32 bits, and a byte that says how values
are combined. Images of Java's updatable sketches have the same entries after flags, theta if it is below 1, and, if
there are entries, their number in 32 bits. Older forms are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.sketches import SketchError, bytes_of
from merlot.aggregates.theta_images import MAX_THETA
from merlot.kernels.murmur3 import SEED_HASH

ENTRY: Final = np.dtype([("hash", "<u8"), ("value", "<i4"), ("mode", "u1")])
_BYTES: Final = ("words", "version", "family", "kind", "table_flags", "flags")
_HEAD: Final = np.dtype([*((name, "u1") for name in _BYTES), ("seed", "<u2")])
"""Head of an image. An updatable sketch has its flags one byte earlier, and no seed."""
_FAMILY: Final = 9
_UPDATABLE, _COMPACT = 0, 1
"""Kinds of sketches, which have different serial versions."""
_UPDATABLE_VERSION, _COMPACT_VERSION = 2, 3
_READ_ONLY, _IS_EMPTY, _IS_COMPACT = 2, 4, 8
_BIG_ENDIAN, _SAMPLED, _HAS_ENTRIES, _HAS_THETA = 1, 2, 8, 16
"""Flags of updatable sketches, besides the flag of empty ones. Compact sketches share only the first."""
_MOST_HEAD: Final = 24
_MOST_MODE: Final = 3
NO_SKETCH: Final = "bytes are no serialized tuple sketch of integers"

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TupleSketches:
    """Theta, hashes and sums of each row."""

    thetas: NDArray[np.uint64]
    bounds: Places
    """Offset of each row's first entry, then the end of the last row's entries."""
    hashes: NDArray[np.uint64]
    values: NDArray[np.int64]

    def counts(self) -> Places:
        return np.diff(self.bounds)


def image(theta: int, hashes: NDArray[np.uint64], values: NDArray[np.int64]) -> bytes:
    """Return the compact image of one sketch, whose sums fit into 32 bits."""
    is_cut, is_empty = theta < int(MAX_THETA), len(hashes) == 0 and theta == int(MAX_THETA)
    words = 3 if is_cut else 1 if len(hashes) <= 1 else 2
    head = np.zeros(1, _HEAD)
    flags = _READ_ONLY | _IS_COMPACT | (_IS_EMPTY if is_empty else 0)
    head[0] = (words, _COMPACT_VERSION, _FAMILY, _COMPACT, 0, flags, SEED_HASH)
    more = np.array([len(hashes), theta], "<u8")[: words - 1]
    entries = np.zeros(len(hashes), ENTRY)
    entries["hash"], entries["value"] = hashes, values
    return head.tobytes() + more.tobytes() + entries.tobytes()


def read_images(stored: pa.Array) -> TupleSketches:
    """Return the sketches of images, none of which is empty bytes; raise SketchError for bytes that are no sketch, or
    have another seed."""
    places, data = bytes_of(stored)
    lengths, starts = np.diff(places), places[:-1] - places[0]
    content = np.concatenate([data[places[0] : places[-1]], np.zeros(_MOST_HEAD, np.uint8)])
    heads = _cells(content, starts, _HEAD)
    is_compact = heads["kind"] == _COMPACT
    _check((lengths >= _HEAD.itemsize) & (heads["family"] == _FAMILY) & (heads["kind"] <= _COMPACT), NO_SKETCH)
    versions = np.where(is_compact, _COMPACT_VERSION, _UPDATABLE_VERSION)
    _check(heads["version"] == versions, "tuple sketch is of an old serial version")
    flags = np.where(is_compact, heads["flags"], heads["table_flags"])
    foreign = np.where(is_compact, _BIG_ENDIAN, _BIG_ENDIAN | _SAMPLED)
    _check(flags & foreign == 0, "tuple sketch is big-endian or sampled")
    is_empty = flags & _IS_EMPTY != 0
    _check(~is_compact | is_empty | (heads["seed"] == SEED_HASH), "tuple sketch was made with another seed")
    sizes, counts, thetas = _layout(content, starts, heads["words"].astype(np.int64), flags, is_compact)
    _check(lengths == sizes + ENTRY.itemsize * counts, NO_SKETCH)
    return _entries(content, starts + sizes, counts, thetas)


def _layout(
    content: NDArray[np.uint8], starts: Places, words: Places, flags: NDArray[np.uint8], is_compact: NDArray[np.bool_]
) -> tuple[Places, Places, NDArray[np.uint64]]:
    """Return, for each image, the number of bytes before its entries, the number of entries, and theta."""
    is_empty = flags & _IS_EMPTY != 0
    _check(~is_compact | ((words >= 1) & (words <= 3) & (~is_empty | (words == 1))), NO_SKETCH)
    is_cut = np.where(is_compact, words == 3, flags & _HAS_THETA != 0)
    has_count = np.where(is_compact, words > 1, flags & _HAS_ENTRIES != 0)
    count_at = np.where(is_compact | ~is_cut, 8, 16)
    counts = _cells(content, starts + count_at, np.dtype("<u4")).astype(np.int64)
    counts = np.where(has_count, counts, np.where(is_compact & ~is_empty, 1, 0))
    thetas = _cells(content, starts + np.where(is_compact, 16, 8), np.dtype("<u8")).astype(np.uint64)
    thetas = np.where(is_cut, thetas, MAX_THETA)
    sizes = np.where(is_compact, 8 * words, 8 + 8 * is_cut + 4 * has_count)
    return sizes, counts, thetas


def _entries(content: NDArray[np.uint8], starts: Places, counts: Places, thetas: NDArray[np.uint64]) -> TupleSketches:
    bounds = np.concatenate([[0], np.cumsum(counts)])
    changes = np.zeros(len(content) + 1, np.int8)
    np.add.at(changes, starts, 1)
    np.add.at(changes, starts + ENTRY.itemsize * counts, -1)
    entries = content[np.cumsum(changes[:-1], dtype=np.int8).view(np.bool_)].view(ENTRY)
    owners = np.repeat(np.arange(len(counts)), counts)
    hashes = entries["hash"].astype(np.uint64)
    is_sound = (hashes > 0) & (hashes < thetas[owners]) & (entries["mode"] <= _MOST_MODE)
    is_whole = np.ones(len(counts), np.bool_)
    is_whole[owners[~is_sound]] = False
    _check(is_whole & (thetas > 0) & (thetas <= MAX_THETA), NO_SKETCH)
    return TupleSketches(thetas, bounds, hashes, entries["value"].astype(np.int64))


def _cells(content: NDArray[np.uint8], places: Places, layout: np.dtype[Any]) -> NDArray[Any]:
    """Return the record at each position."""
    width = np.arange(layout.itemsize)
    if not len(places):
        return np.zeros(0, layout)
    return np.ascontiguousarray(content[places[:, np.newaxis] + width]).view(layout)[:, 0]


def _check(is_sound: NDArray[np.bool_], problem: str) -> None:
    wrong = np.flatnonzero(~is_sound)
    if len(wrong):
        raise SketchError(problem, int(wrong[0]))
