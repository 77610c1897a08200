"""Log of one partition on a server: segments end to end, the last of which still grows.

`name@0` asks for everything from a segment's beginning on, so a log keeps parts whose segment is committed for a while:
brokers that have not heard of the commit still ask for them. A part is read from its rows until its sealed file is
loaded, and from the file then. If another server loads the file in place of this one, the part keeps its rows until it
is dropped. Logs are immutable; the partition's thread replaces them, any thread reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.reader import Segment

CONSUMING_SUFFIX: Final = "@0"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Part of a log: one segment of the partition, from offset `start` on."""

    sequence: int
    start: int
    name: str = ""
    """Name of the segment; empty if this server went on into it before it was named."""
    rows: ConsumingSegment | None = None
    """Consumed rows; None if the part is read from its file."""
    end: int | None = None
    """Agreed end offset; None if there is none yet."""
    num_docs: int | None = None
    """Number of docs in `rows` that are this part's, once it has ended. Rows behind them are also in the next part."""
    key: str = ""
    """Key (`name@crc`) of the segment, once it is committed."""
    loaded_at: float | None = None
    """Monotonic time at which its file was loaded, here or elsewhere, or at which the part ended without a file."""
    reported_at: float | None = None
    """Monotonic time at which the server's report showed that."""

    @property
    def is_whole(self) -> bool:
        """True if all its rows are here."""
        return self.num_docs is not None or self.rows is None

    def snapshot(self) -> Segment:
        """Return its rows as they are now."""
        assert self.rows is not None
        return self.rows.snapshot(self.num_docs)


Mask = Callable[[int, Segment], Segment | None]
"""Mask a segment, given its sequence, with its valid docs; None if these are not known."""


def _as_it_is(_sequence: int, segment: Segment) -> Segment | None:
    return segment


@dataclass(frozen=True, slots=True)
class ResolvedRows:
    """Sealed segments, by key, and consumed rows that answer for a `name@0`."""

    keys: tuple[str, ...]
    rows: tuple[Segment, ...]
    newest_ms: int = 0
    """Timestamp of the newest message among the rows; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """Consecutive parts of a partition, without a gap between them."""

    parts: tuple[LogPart, ...] = ()

    @property
    def open_part(self) -> LogPart | None:
        """Part that rows are appended to; None if nothing is consumed."""
        last = self.parts[-1] if self.parts else None
        return None if last is None or last.is_whole else last

    def part(self, sequence: int) -> LogPart | None:
        """Return the part of this sequence."""
        return next((part for part in self.parts if part.sequence == sequence), None)

    def names(self) -> list[str]:
        """Return the names of the parts that can be queried."""
        return [part.name for part in self.parts if part.name]

    def with_part(self, part: LogPart) -> PartitionLog:
        """Return a log with this part in place of the part of its sequence, or behind all others."""
        if self.part(part.sequence) is None:
            return PartitionLog((*self.parts, part))
        return PartitionLog(tuple(part if old.sequence == part.sequence else old for old in self.parts))

    def before(self, sequence: int) -> PartitionLog:
        """Return the log of the parts before this sequence."""
        return PartitionLog(tuple(part for part in self.parts if part.sequence < sequence))

    def resolve(self, name: str, is_loaded: Callable[[str], bool], mask: Mask = _as_it_is) -> ResolvedRows | None:
        """Return everything from the segment `name` on; None if some of it is not here. `mask` applies valid docs."""
        first = next((part.sequence for part in self.parts if part.name == name), None)
        return None if first is None else self.resolve_from(first, is_loaded, mask)

    def resolve_from(
        self, sequence: int, is_loaded: Callable[[str], bool], mask: Mask = _as_it_is
    ) -> ResolvedRows | None:
        """Return everything from this sequence on; None if some of it is not here."""
        keys: list[str] = []
        rows: list[Segment] = []
        newest_ms = 0
        for part in self.parts:
            if part.sequence < sequence:
                continue
            if part.rows is not None:
                segment = mask(part.sequence, part.snapshot())
                if segment is None:
                    return None
                rows.append(segment)
                newest_ms = max(newest_ms, part.rows.newest_ms)
            elif part.key and is_loaded(part.key):
                keys.append(part.key)
            else:
                return None
        return ResolvedRows(tuple(keys), tuple(rows), newest_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRule:
    """Rule by which a log drops its parts. `now` and `reported_as_of` are monotonic."""

    is_loaded: Callable[[str], bool]
    is_elsewhere: Callable[[str], bool]
    """Return True if a committed segment, `name@crc`, is not this server's to load, and others answer for it."""
    reported_as_of: float
    """Time whose state the server's report shows; brokers ask by the report."""
    now: float
    grace_s: float
    """Seconds for which brokers may ask by an older report."""

    def of(self, log: PartitionLog, worked: int) -> PartitionLog:
        """Return the log without rows that are loaded as files and without parts that no broker asks for any more. Only
        parts before the segment that is worked on are dropped."""
        parts = [self._of(part) if part.sequence < worked else part for part in log.parts]
        while parts and parts[0].reported_at is not None and self.now - parts[0].reported_at >= self.grace_s:
            parts.pop(0)
        return PartitionLog(tuple(parts))

    def _of(self, part: LogPart) -> LogPart:
        if part.rows is not None and part.key and self.is_loaded(part.key):
            part = replace(part, rows=None, loaded_at=self.now, reported_at=None)
        elif part.loaded_at is None and part.key and self.is_elsewhere(part.key):
            part = replace(part, loaded_at=self.now)
        is_told = part.loaded_at is not None and part.loaded_at <= self.reported_as_of
        return replace(part, reported_at=self.now) if is_told and part.reported_at is None else part
