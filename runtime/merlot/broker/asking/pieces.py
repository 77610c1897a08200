"""The docs of a query in pieces: a few small segments, or a range of docs of one, so that no answer is large. Pure.

A range is a condition on `$docId`: a version of a segment keeps its docs in their order. What may change while it is
read, or of which nobody knows how many docs it has, is one piece and cannot be cut: rows of streams, and versions whose
record is gone.
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
class Piece:
    """What is asked for at once. `num_docs`: how many docs it has, None if nobody knows."""

    route: ServerRoute
    sizes: tuple[int | None, ...]
    """Docs of each segment; of one that is cut, of the range."""
    start: int = 0
    """First doc of the range."""
    is_range: bool = False

    @property
    def num_docs(self) -> int:
        """As far as they are known."""
        return sum(size or 0 for size in self.sizes)

    @property
    def is_cuttable(self) -> bool:
        """Whether it is more than one doc, of segments that may be cut."""
        return None not in self.sizes and self.num_docs > 1

    def halves(self) -> tuple[Piece, Piece]:
        """The same docs in two pieces."""
        middle = len(self.sizes) // 2
        if middle:
            return self._of(slice(None, middle)), self._of(slice(middle, None))
        return self.cut(self.num_docs // 2)

    def cut(self, num_docs: int) -> tuple[Piece, Piece]:
        """The first docs of one segment, and the others."""
        (size,) = self.sizes
        assert size is not None
        assert num_docs < size
        first = replace(self, sizes=(num_docs,), is_range=True)
        return first, replace(self, sizes=(size - num_docs,), start=self.start + num_docs, is_range=True)

    def where(self, where: bytes) -> bytes:
        """A filter, encoded, for the docs of the piece alone."""
        if not self.is_range:
            return where
        from_start = _compared("greater_than_or_equal", self.start)
        before_stop = _compared("less_than", self.start + self.num_docs)
        return both_wheres(where, where_to_json(Call("and", (from_start, before_stop), BOOLEAN)))

    def _of(self, part: slice) -> Piece:
        return Piece(replace(self.route, segments=self.route.segments[part]), self.sizes[part])


class Pieces:
    """Hands out the pieces of a query, of each server in turn; each doc once."""

    def __init__(self, routes: Sequence[ServerRoute], docs_of: Callable[[str], int | None]) -> None:
        """docs_of: docs of a key that may be cut; None of any other. Those come first, and each by itself."""
        alone: list[deque[Piece]] = []
        others: list[deque[Piece]] = []
        for route in routes:
            ones = [Piece(replace(route, segments=(key,)), (docs_of(key),)) for key in route.segments]
            alone.append(deque(one for one in ones if None in one.sizes))
            others.append(deque(one for one in ones if None not in one.sizes))
        self._left = deque(some for some in (*alone, *others) if some)

    def take(self, num_docs: int) -> Piece | None:
        """About so many of the docs that are left; None: there are none."""
        if not self._left:
            return None
        turn = self._left.popleft()
        piece = _taken(turn, num_docs)
        if turn:
            self._left.append(turn)
        return piece


def _taken(ones: deque[Piece], num_docs: int) -> Piece:
    first = ones.popleft()
    if None in first.sizes:
        return first
    if first.num_docs > num_docs:
        first, rest = first.cut(num_docs)
        ones.appendleft(rest)
        return first
    if first.is_range:
        return first
    together = [first]
    total = first.num_docs
    while ones and (total := total + ones[0].num_docs) <= num_docs:
        together.append(ones.popleft())
    segments = tuple(one.route.segments[0] for one in together)
    return Piece(replace(first.route, segments=segments), tuple(one.sizes[0] for one in together))


def _compared(function: str, doc: int) -> Expr:
    return Call(function, (_DOC_ID, Literal(doc, INT)), BOOLEAN)
