"""Docs that a filter keeps: whole spans, lists of an index, words of bits for the rest; and their walk in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.scan import count_words, list_docs
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns
from merlot.tree.nodes import Expr

FEW_DOCS = 4_096
"""Up to so many docs of a filter are listed at once: whoever reads their values needs the list."""
CHUNK_DOCS = 65_536
"""Docs of a chunk: vectors of 64-bit values of it stay in the L2 cache."""
Docs = NDArray[np.uint32]
Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Piece:
    """Docs [start, stop); of them those with bit doc - start set in `words`, or those in `listed`, if either is given.

    count says how many."""

    start: int
    stop: int
    count: int
    words: Words | None = None
    listed: Docs | None = None

    @property
    def is_span(self) -> bool:
        """Whether every doc of [start, stop) is in it."""
        return self.words is None and self.listed is None

    def docs(self) -> Docs | None:
        """The docs, ascending; None of a span."""
        return None if self.is_span else _list(self)


@dataclass(frozen=True, slots=True)
class DocSet:
    """Disjoint ascending pieces, none empty."""

    pieces: tuple[Piece, ...]

    @property
    def count(self) -> int:
        return sum(piece.count for piece in self.pieces)

    def has_docs(self, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each part [starts[k], starts[k + 1]), whether a doc of the set lies in it."""
        before = sum((_count_before(piece, starts) for piece in self.pieces), np.zeros(len(starts), np.int64))
        return np.diff(before) > 0

    def docs(self) -> Docs:
        """Every doc, ascending."""
        listed = [_list(piece) for piece in self.pieces]
        return np.concatenate(listed) if listed else np.zeros(0, np.uint32)

    def chunks(
        self,
        columns: Columns,
        *,
        null_handling: bool,
        max_docs: int = CHUNK_DOCS,
        shared: frozenset[Expr] = frozenset(),
    ) -> Iterator[Chunk]:
        """All docs, at most max_docs at a time; spans stay spans, small pieces are listed together."""
        made = partial(Chunk, columns, null_handling=null_handling, shared=shared)
        pending: list[Docs] = []
        num_pending = 0
        for piece in self.pieces:
            if piece.is_span and piece.count > max_docs // 4:
                for start in range(piece.start, piece.stop, max_docs):
                    yield made(start, min(start + max_docs, piece.stop))
                continue
            for docs in _slices(_list(piece), max_docs):
                if num_pending + len(docs) > max_docs:
                    yield _listed(made, pending)
                    pending, num_pending = [], 0
                pending.append(docs)
                num_pending += len(docs)
        if num_pending:
            yield _listed(made, pending)


def span(start: int, stop: int) -> DocSet:
    """All docs [start, stop)."""
    return DocSet((Piece(start, stop, stop - start),) if stop > start else ())


def from_words(start: int, stop: int, words: Words) -> DocSet:
    """The docs whose bits are set."""
    count = count_words(words)
    if count == stop - start:
        return span(start, stop)
    piece = Piece(start, stop, count, words)
    if 0 < count <= FEW_DOCS:
        piece = Piece(start, stop, count, listed=_list(piece))
    return DocSet((piece,) if count else ())


def from_list(start: int, stop: int, docs: Docs) -> DocSet:
    """Those of the docs, which ascend, that lie in [start, stop)."""
    first, last = np.searchsorted(docs, (start, stop)).tolist()
    return DocSet((Piece(start, stop, last - first, listed=docs[first:last]),) if last > first else ())


def _count_before(piece: Piece, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    if piece.listed is not None:
        return np.searchsorted(piece.listed, edges)
    inside = np.clip(edges - piece.start, 0, piece.stop - piece.start)
    if piece.words is None:
        return inside
    words = np.append(piece.words, np.uint64(0))
    counts = np.concatenate([[0], np.cumsum(np.bitwise_count(piece.words), dtype=np.int64)])
    place = inside >> 6
    partial = words[place] & ((np.uint64(1) << (inside & 63).astype(np.uint64)) - np.uint64(1))
    return np.asarray(counts[place] + np.bitwise_count(partial))


def _list(piece: Piece) -> Docs:
    if piece.listed is not None:
        return piece.listed
    if piece.words is None:
        return np.arange(piece.start, piece.stop, dtype=np.uint32)
    docs = np.empty(piece.count, np.uint32)
    list_docs(piece.words, piece.start, docs)
    return docs


def _slices(docs: Docs, max_docs: int) -> Iterator[Docs]:
    for first in range(0, len(docs), max_docs):
        yield docs[first : first + max_docs]


def _listed(made: Callable[[int, int, Docs], Chunk], parts: list[Docs]) -> Chunk:
    docs = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return made(int(docs[0]), int(docs[-1]) + 1, docs)
