"""Read and write theta sketches in bytes, many at a time: images of Apache DataSketches, serial version 3,
uncompressed.

A compact image has a word of flags, a word with the number of hashes if there is more than one or theta is below 1, a
word of theta if that is below 1, and the hashes. Images of Java's updatable sketches have a hash table instead, with
zeros. Other layouts, of older versions or compressed, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.sketches import SketchError, bytes_of
from merlot.kernels.murmur3 import SEED_HASH

MAX_THETA: Final = np.uint64((1 << 63) - 1)
"""Theta of a sketch that keeps every hash."""
_WORD: Final = 8
_VERSION: Final = 3
_UPDATABLE, _COMPACT = 2, 3
"""Families of sketches."""
_READ_ONLY, _EMPTY, _IS_COMPACT, _ORDERED, _SINGLE = 2, 4, 8, 16, 32
_PROBABILITY_ONE: Final = 0x3F800000 << 32
NO_SKETCH: Final = "bytes are no serialized theta sketch"

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Sketches:
    """Theta and hashes of each row."""

    thetas: Words
    bounds: NDArray[np.int64]
    """Offset of each row's first hash, then the end of the last row's hashes."""
    hashes: Words
    present: NDArray[np.bool_]
    """True for rows with a sketch, even an empty one."""

    def counts(self) -> NDArray[np.int64]:
        return np.diff(self.bounds)


def empty_image() -> bytes:
    """Return the image of an empty sketch."""
    flags = _READ_ONLY | _EMPTY | _IS_COMPACT | _ORDERED
    return bytes([1, _VERSION, _COMPACT, 0, 0, flags]) + SEED_HASH.to_bytes(2, "little")


def images(given: Sketches) -> pa.Array:
    """Return compact images of sketches whose hashes ascend; empty bytes for absent ones."""
    counts = given.counts()
    is_cut = given.thetas < MAX_THETA
    lengths = np.where(is_cut, 3, np.where(counts > 1, 2, 1)) * given.present
    is_single = (lengths == 1) & (counts == 1)
    is_empty = (lengths == 1) & (counts == 0)
    starts = np.concatenate([[0], np.cumsum(lengths + np.where(given.present, counts, 0))])
    out = np.zeros(int(starts[-1]), np.uint64)
    flags = _READ_ONLY | _IS_COMPACT | _ORDERED | np.where(is_single, _SINGLE, 0) | np.where(is_empty, _EMPTY, 0)
    firsts = starts[:-1]
    heads = lengths | _VERSION << 8 | _COMPACT << 16 | flags.astype(np.int64) << 40
    out[firsts[given.present]] = (heads.astype(np.uint64) | np.uint64(SEED_HASH << 48))[given.present]
    has_count = lengths > 1
    out[firsts[has_count] + 1] = (counts[has_count] | _PROBABILITY_ONE).astype(np.uint64)
    out[firsts[is_cut & given.present] + 2] = given.thetas[is_cut & given.present]
    within = np.arange(len(given.hashes)) - np.repeat(given.bounds[:-1], counts)
    out[np.repeat(firsts + lengths, counts) + within] = given.hashes
    offsets = (starts * _WORD).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out.astype("<u8").tobytes())]
    return pa.Array.from_buffers(pa.large_binary(), len(counts), buffers).cast(pa.binary())


def read_images(stored: pa.Array) -> Sketches:
    """Return the sketches; raise SketchError for bytes that are no sketch, or have another seed."""
    places, data = bytes_of(stored)
    _check(np.diff(places) % _WORD == 0, NO_SKETCH)
    lengths = np.diff(places) // _WORD
    words = data[places[0] : places[-1]].copy().view("<u8").astype(np.uint64)
    firsts = (places[:-1] - places[0]) // _WORD
    present = lengths > 0
    heads = np.zeros(len(lengths), np.uint64)
    heads[present] = words[firsts[present]]
    before, flags = (heads & np.uint64(0x3F)).astype(np.int64), (heads >> np.uint64(40)).astype(np.int64) & 0xFF
    family = heads >> np.uint64(16) & np.uint64(0xFF)
    is_table = family == _UPDATABLE
    _check(is_table | (family == _COMPACT) | ~present, NO_SKETCH)
    _check((heads >> np.uint64(8) & np.uint64(0xFF) == _VERSION) | ~present, "theta sketch is not of serial version 3")
    is_empty = (flags & _EMPTY) != 0
    _check((before >= 1) & (before <= 3) & (before <= lengths) | ~present, NO_SKETCH)
    seeds = (heads >> np.uint64(48)).astype(np.int64)
    _check(is_empty | ~present | (seeds == SEED_HASH), "theta sketch was made with another seed")
    thetas = np.full(len(lengths), MAX_THETA, np.uint64)
    is_cut = present & (before == 3)
    thetas[is_cut] = words[firsts[is_cut] + 2]
    _check((thetas > 0) & (thetas <= MAX_THETA), NO_SKETCH)
    declared = np.where(present & (before == 1) & ~is_empty, 1, 0)
    is_counted = present & (before > 1)
    declared[is_counted] = (words[firsts[is_counted] + 1] & np.uint64(0x7FFFFFFF)).astype(np.int64)
    sizes = np.where(is_empty | ~present, 0, lengths - before)
    _check(np.where(is_table, declared <= sizes, is_empty | (declared == sizes)), NO_SKETCH)
    return _hashes(Sketches(thetas, np.concatenate([[0], np.cumsum(sizes)]), words, present), firsts + before, declared)


def _hashes(given: Sketches, starts: NDArray[np.int64], declared: NDArray[np.int64]) -> Sketches:
    """Return sketches with the hashes from `starts` on, without the zeros of tables. declared: number of hashes that
    each sketch says it has; raise SketchError if it has another number."""
    sizes = given.counts()
    within = np.arange(int(sizes.sum())) - np.repeat(given.bounds[:-1], sizes)
    hashes = given.hashes[np.repeat(starts, sizes) + within]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    is_kept = (hashes > 0) & (hashes < given.thetas[owners])
    counts = np.bincount(owners[is_kept], minlength=len(sizes))
    _check(counts == declared * (sizes > 0), NO_SKETCH)
    return Sketches(given.thetas, np.concatenate([[0], np.cumsum(counts)]), hashes[is_kept], given.present)


def _check(is_sound: NDArray[np.bool_], problem: str) -> None:
    wrong = np.flatnonzero(~is_sound)
    if len(wrong):
        raise SketchError(problem, int(wrong[0]))
