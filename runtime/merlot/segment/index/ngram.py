"""n-gram index: the docs that hold three given bytes in a row, for LIKE and REGEXP_LIKE. FORMAT.md §5.15.

A doc that matches holds every three bytes of the texts that the pattern spells out, wherever they are. The docs of the
index are candidates, whose values are read. A pattern that spells out fewer than three bytes in a row is not looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.functions.comparisons import spelled_out_by_like
from merlot.functions.regular import spelled_out
from merlot.segment.buffers import Array
from merlot.segment.index.terms import AllOf, Offsets, Search, TermIndex, buffers_of, exactly
from merlot.tree.nodes import Call, Literal

GRAM_BYTES: Final = 3
MOST_GRAMS: Final = 8
"""Number of grams of a pattern that are looked up: more would exclude few docs."""
CHUNK_BYTES: Final = 4 << 20
"""Bytes of text that are cut into grams at a time: meanwhile each takes some forty bytes of memory."""


class _Ngram(TermIndex):
    name = "ngram"
    buffers = buffers_of("ngram")
    searches = frozenset({"like", "regexplike"})
    value_ns = 300.0

    def terms_of(self, values: pa.Array) -> tuple[pa.Array, Offsets]:
        terms, ids, ends = self.coded_terms(values)
        return terms.take(pa.array(ids)), ends

    def coded_terms(self, values: pa.Array) -> tuple[pa.Array, Array, Offsets]:
        texts = values.cast(pa.large_binary())
        ends = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
        data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
        grams, counts, first = [np.zeros(0, np.uint32)], [np.zeros(1, np.int64)], 0
        while first < len(texts):
            stop = int(np.searchsorted(ends, ends[first] + CHUNK_BYTES, side="right")) - 1
            stop = min(max(stop, first + 1), len(texts))
            chunk_grams, chunk_counts = _grams(data[ends[first] : ends[stop]], np.diff(ends[first : stop + 1]))
            grams.append(chunk_grams)
            counts.append(chunk_counts)
            first = stop
        every = np.concatenate(grams)
        present = np.flatnonzero(np.bincount(every, minlength=1)).astype(np.uint32)
        ranks = np.zeros(int(present[-1]) + 1 if len(present) else 0, np.uint32)
        ranks[present] = np.arange(len(present), dtype=np.uint32)
        return _bytes_of(present), ranks[every], np.cumsum(np.concatenate(counts)).astype(np.uint32)

    def search(self, call: Call) -> Search | None:
        pattern = call.args[1]
        if len(call.args) != 2 or not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            return None
        texts = spelled_out_by_like(pattern.value) if call.function == "like" else spelled_out(pattern.value)
        wanted = _cover(texts)
        return Search(AllOf(tuple(map(exactly, wanted))), is_exact=False) if wanted else None


def _grams(data: NDArray[np.uint8], lengths: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return each text's grams as numbers, once each and in order, one text's after another's; and the number of grams
    of each."""
    if len(data) < GRAM_BYTES:
        return np.zeros(0, np.uint32), np.zeros(len(lengths), np.int64)
    owners = np.repeat(np.arange(len(lengths), dtype=np.uint64), lengths)
    wide = data.astype(np.uint64)
    keys = owners[:-2] << np.uint64(24) | wide[:-2] << np.uint64(16) | wide[1:-1] << np.uint64(8) | wide[2:]
    keys = np.sort(keys[owners[:-2] == owners[2:]])
    keys = keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys  # a tenth of what np.unique takes
    counts = np.bincount((keys >> np.uint64(24)).astype(np.int64), minlength=len(lengths))
    return (keys & np.uint64(0xFFFFFF)).astype(np.uint32), counts


def _bytes_of(grams: NDArray[np.uint32]) -> pa.Array:
    columns = [(grams >> np.uint32(shift)).astype(np.uint8) for shift in (16, 8, 0)]
    offsets = np.arange(len(grams) + 1, dtype=np.int32) * GRAM_BYTES
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.stack(columns, axis=1).tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(grams), buffers)


def _cover(texts: Iterable[str]) -> list[bytes]:
    """Return grams that texts hold, side by side where there is room: overlapping grams exclude fewer docs."""
    grams: dict[bytes, None] = {}
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        last = len(data) - GRAM_BYTES
        if last >= 0:
            grams.update((data[start : start + GRAM_BYTES], None) for start in (*range(0, last, GRAM_BYTES), last))
    return list(grams)[:MOST_GRAMS]


INDEX = _Ngram()
