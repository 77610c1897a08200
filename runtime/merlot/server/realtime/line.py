"""What a server has of one partition: segments end to end, the last of which still grows.

`name@0` asks for everything from a segment's beginning on, so a line keeps parts whose segment is committed for a
while: brokers that have not heard of the commit ask by them. A part is read from its rows until its sealed file is
loaded, and from the file then. Lines are immutable; the partition's thread replaces them, anybody reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.reader import Segment

CONSUMING_SUFFIX: Final = "@0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One segment of the partition, from `start` on."""

    sequence: int
    start: int
    name: str = ""
    """Empty: this server went on into it before anybody gave it a name."""
    rows: ConsumingSegment | None = None
    """None: it is read from its file."""
    end: int | None = None
    """None: it has no agreed end yet."""
    num_docs: int | None = None
    """Of `rows`, once it has ended: what comes after belongs to the next part, too."""
    key: str = ""
    """`name@crc`, once it is committed."""
    loaded_at: float | None = None
    """Since when its file is loaded, monotonic."""
    told_at: float | None = None
    """Since when that is in the server's report."""

    @property
    def is_whole(self) -> bool:
        """Whether all its rows are here."""
        return self.num_docs is not None or self.rows is None

    def snapshot(self) -> Segment:
        """Its rows as they are now."""
        assert self.rows is not None
        return self.rows.snapshot(self.num_docs)


Dress = Callable[[int, Segment], Segment | None]
"""A segment, by its sequence, with the docs of it that are rows of the table; None if they are not known."""


def _as_it_is(_sequence: int, segment: Segment) -> Segment | None:
    return segment


@dataclass(frozen=True, slots=True)
class Resolved:
    """What answers for a `name@0`: sealed segments by key, and rows."""

    keys: tuple[str, ...]
    rows: tuple[Segment, ...]
    newest_ms: int = 0
    """When the newest message among the rows was made; 0: there is none."""


@dataclass(frozen=True, slots=True)
class Line:
    """Parts without a gap between them."""

    parts: tuple[Part, ...] = ()

    @property
    def head(self) -> Part | None:
        """The part that rows are appended to; None if nothing is consumed."""
        last = self.parts[-1] if self.parts else None
        return None if last is None or last.is_whole else last

    def part(self, sequence: int) -> Part | None:
        """The part of this place in the chain."""
        return next((part for part in self.parts if part.sequence == sequence), None)

    def names(self) -> list[str]:
        """Of the parts that may be asked for."""
        return [part.name for part in self.parts if part.name]

    def with_part(self, part: Part) -> Line:
        """With this part in place of the one of its sequence, or behind all others."""
        if self.part(part.sequence) is None:
            return Line((*self.parts, part))
        return Line(tuple(part if one.sequence == part.sequence else one for one in self.parts))

    def before(self, sequence: int) -> Line:
        """The parts before one."""
        return Line(tuple(part for part in self.parts if part.sequence < sequence))

    def resolve(self, name: str, is_loaded: Callable[[str], bool], dress: Dress = _as_it_is) -> Resolved | None:
        """Everything from the segment `name` on; None if some of it is not here. `dress` says which docs count."""
        first = next((part.sequence for part in self.parts if part.name == name), None)
        return None if first is None else self.resolve_from(first, is_loaded, dress)

    def resolve_from(
        self, sequence: int, is_loaded: Callable[[str], bool], dress: Dress = _as_it_is
    ) -> Resolved | None:
        """Everything from a place in the chain on; None if some of it is not here."""
        keys: list[str] = []
        rows: list[Segment] = []
        newest_ms = 0
        for part in self.parts:
            if part.sequence < sequence:
                continue
            if part.rows is not None:
                segment = dress(part.sequence, part.snapshot())
                if segment is None:
                    return None
                rows.append(segment)
                newest_ms = max(newest_ms, part.rows.newest_ms)
            elif part.key and is_loaded(part.key):
                keys.append(part.key)
            else:
                return None
        return Resolved(tuple(keys), tuple(rows), newest_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The rule by which a line lets go of its parts. `now` and `told_as_of` are monotonic."""

    is_loaded: Callable[[str], bool]
    told_as_of: float
    """The server's report shows the state of that time, and brokers ask by it."""
    now: float
    grace_s: float
    """How long brokers may ask by what they heard before."""

    def of(self, line: Line, worked: int) -> Line:
        """Without rows that are loaded as files, and without parts that no broker asks for any more, before the segment
        that is worked on."""
        parts = [self._of(part) if part.sequence < worked else part for part in line.parts]
        while parts and parts[0].told_at is not None and self.now - parts[0].told_at >= self.grace_s:
            parts.pop(0)
        return Line(tuple(parts))

    def _of(self, part: Part) -> Part:
        if part.loaded_at is None and part.key and self.is_loaded(part.key):
            part = replace(part, rows=None, loaded_at=self.now)
        is_told = part.loaded_at is not None and part.loaded_at <= self.told_as_of
        return replace(part, told_at=self.now) if is_told and part.told_at is None else part
