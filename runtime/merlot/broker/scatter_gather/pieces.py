"""Split the docs of a query into pieces, so that no answer is large: a few small segments, or a range of docs. Pure.

A range is a condition on `$docId`: a version of a segment keeps its docs in their order. Segments whose rows may change
while they are read, or whose number of docs is not known, are a piece each and cannot be cut: open segments of streams,
and versions whose record is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from merlot.broker.routing.routes import ServerRoute
from merlot.tree.nodes import Call, Column, Expr, Literal
from merlot.tree.tree_json import both_wheres, where_to_json
from merlot.tree.types import BOOLEAN, INT

_DOC_ID = Column("$docId", INT)


@dataclass(frozen=True, slots=True)
class RoutePiece:
    """Docs that are asked for at once: some segments of one server, or a range of docs of one segment."""

    route: ServerRoute
    sizes: tuple[int | None, ...]
    """Docs of each segment, or of the range; None if they are not known."""
    start: int = 0
    """First doc of the range."""
    is_range: bool = False

    @property
    def num_docs(self) -> int:
        """Docs of the piece, as far as they are known."""
        return sum(size or 0 for size in self.sizes)

    @property
    def is_cuttable(self) -> bool:
        """True if the piece has more than one doc, and all its sizes are known."""
        return None not in self.sizes and self.num_docs > 1

    def halves(self) -> tuple[RoutePiece, RoutePiece]:
        """Split the docs into two pieces."""
        middle = len(self.sizes) // 2
        if middle:
            return self._of(slice(None, middle)), self._of(slice(middle, None))
        return self.cut(self.num_docs // 2)

    def cut(self, num_docs: int) -> tuple[RoutePiece, RoutePiece]:
        """Split one segment into its first `num_docs` docs and the others."""
        (size,) = self.sizes
        assert size is not None
        assert num_docs < size
        first = replace(self, sizes=(num_docs,), is_range=True)
        return first, replace(self, sizes=(size - num_docs,), start=self.start + num_docs, is_range=True)

    def where(self, where: bytes) -> bytes:
        """Restrict an encoded filter to the docs of the piece."""
        if not self.is_range:
            return where
        from_start = _compared("greater_than_or_equal", self.start)
        before_stop = _compared("less_than", self.start + self.num_docs)
        return both_wheres(where, where_to_json(Call("and", (from_start, before_stop), BOOLEAN)))

    def _of(self, part: slice) -> RoutePiece:
        return RoutePiece(replace(self.route, segments=self.route.segments[part]), self.sizes[part])


class Pieces:
    """Hands out the pieces of a query, in turn from each server. Each doc is handed out once."""

    def __init__(self, routes: Sequence[ServerRoute], docs_of: Callable[[str], int | None]) -> None:
        """Start with all docs of `routes`. `docs_of` returns the docs of a key; None if the key cannot be cut. Such
        keys come first, and each by itself."""
        alone: list[deque[RoutePiece]] = []
        others: list[deque[RoutePiece]] = []
        for route in routes:
            pieces = [RoutePiece(replace(route, segments=(key,)), (docs_of(key),)) for key in route.segments]
            alone.append(deque(piece for piece in pieces if None in piece.sizes))
            others.append(deque(piece for piece in pieces if None not in piece.sizes))
        self._left = deque(pieces for pieces in (*alone, *others) if pieces)

    def take(self, num_docs: int) -> RoutePiece | None:
        """Return a piece of about `num_docs` of the docs that are left; None if none are."""
        if not self._left:
            return None
        turn = self._left.popleft()
        piece = _taken(turn, num_docs)
        if turn:
            self._left.append(turn)
        return piece


def _taken(pieces: deque[RoutePiece], num_docs: int) -> RoutePiece:
    first = pieces.popleft()
    if None in first.sizes:
        return first
    if first.num_docs > num_docs:
        first, rest = first.cut(num_docs)
        pieces.appendleft(rest)
        return first
    if first.is_range:
        return first
    together = [first]
    total = first.num_docs
    while pieces and (total := total + pieces[0].num_docs) <= num_docs:
        together.append(pieces.popleft())
    segments = tuple(piece.route.segments[0] for piece in together)
    return RoutePiece(replace(first.route, segments=segments), tuple(piece.sizes[0] for piece in together))


def _compared(function: str, doc: int) -> Expr:
    return Call(function, (_DOC_ID, Literal(doc, INT)), BOOLEAN)
