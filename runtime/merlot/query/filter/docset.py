"""Docs that a filter keeps, as spans, lists of docs or words of bits, and their iteration in chunks."""

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
"""Most docs of a filter that are listed at once, since reading their values needs the list."""
CHUNK_DOCS = 65_536
"""Docs of a chunk. Vectors of its 64-bit values fit the L2 cache."""
Docs = NDArray[np.uint32]
Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class DocPiece:
    """Docs [start, stop), or some of them: those with bit doc - start set in `words`, or those in `listed`.

    `count` is the number of docs."""

    start: int
    stop: int
    count: int
    words: Words | None = None
    listed: Docs | None = None

    @property
    def is_span(self) -> bool:
        """True if the piece has every doc of [start, stop)."""
        return self.words is None and self.listed is None

    def docs(self) -> Docs | None:
        """Return the docs, ascending; None for a span."""
        return None if self.is_span else _list(self)


@dataclass(frozen=True, slots=True)
class DocSet:
    """Disjoint ascending pieces, none empty."""

    pieces: tuple[DocPiece, ...]

    @property
    def count(self) -> int:
        return sum(piece.count for piece in self.pieces)

    def has_docs(self, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each part [starts[k], starts[k + 1]) whether it holds a doc of the set."""
        before = sum((_count_before(piece, starts) for piece in self.pieces), np.zeros(len(starts), np.int64))
        return np.diff(before) > 0

    def docs(self) -> Docs:
        """Return every doc, ascending."""
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
        """Yield all docs, at most max_docs at a time. Long spans stay spans; other pieces are listed together. Listed
        docs may come after a span that follows them."""
        new_chunk = partial(Chunk, columns, null_handling=null_handling, shared=shared)
        pending: list[Docs] = []
        num_pending = 0
        for piece in self.pieces:
            if piece.is_span and piece.count > max_docs // 4:
                for start in range(piece.start, piece.stop, max_docs):
                    yield new_chunk(start, min(start + max_docs, piece.stop))
                continue
            for docs in _slices(_list(piece), max_docs):
                if num_pending + len(docs) > max_docs:
                    yield _listed(new_chunk, pending)
                    pending, num_pending = [], 0
                pending.append(docs)
                num_pending += len(docs)
        if num_pending:
            yield _listed(new_chunk, pending)


def span(start: int, stop: int) -> DocSet:
    """Return all docs [start, stop)."""
    return DocSet((DocPiece(start, stop, stop - start),) if stop > start else ())


def from_words(start: int, stop: int, words: Words) -> DocSet:
    """Return the docs whose bits are set."""
    count = count_words(words)
    if count == stop - start:
        return span(start, stop)
    piece = DocPiece(start, stop, count, words)
    if 0 < count <= FEW_DOCS:
        piece = DocPiece(start, stop, count, listed=_list(piece))
    return DocSet((piece,) if count else ())


def from_list(start: int, stop: int, docs: Docs) -> DocSet:
    """Return the docs within [start, stop). `docs` ascend."""
    first, last = np.searchsorted(docs, (start, stop)).tolist()
    return DocSet((DocPiece(start, stop, last - first, listed=docs[first:last]),) if last > first else ())


def _count_before(piece: DocPiece, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    if piece.listed is not None:
        return np.searchsorted(piece.listed, edges)
    inside = np.clip(edges - piece.start, 0, piece.stop - piece.start)
    if piece.words is None:
        return inside
    words = np.append(piece.words, np.uint64(0))
    counts = np.concatenate([[0], np.cumsum(np.bitwise_count(piece.words), dtype=np.int64)])
    position = inside >> 6
    partial = words[position] & ((np.uint64(1) << (inside & 63).astype(np.uint64)) - np.uint64(1))
    return np.asarray(counts[position] + np.bitwise_count(partial))


def _list(piece: DocPiece) -> Docs:
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


def _listed(new_chunk: Callable[[int, int, Docs], Chunk], parts: list[Docs]) -> Chunk:
    docs = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return new_chunk(int(docs[0]), int(docs[-1]) + 1, docs)
