"""Open segments of each table, with a count of their readers. Used on the event loop only.

Versions exist side by side under their keys, `name@crc`: a query gets exactly the version it asks for, or is told that
it is missing. A segment that is dropped cannot be acquired any more, and is closed when its last reader releases it.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from merlot.cluster.segments.editions import is_edition
from merlot.cluster.segments.view import TableView
from merlot.ids import TableName
from merlot.query.answer.partial import Partial
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import Segment
from merlot.server.pruning import SetStatistics
from merlot.server.realtime.partition_log import CONSUMING_SUFFIX, ResolvedRows

SHARED_KEYS = 64
"""Number of segments from which on a request shares what an equal request acquired before."""
MAX_SHARED = 16
"""Most sets of segments that stay acquired: one per broker and turn, while routes stay the same."""

Dispose = Callable[[ImmutableSegment], None]


class ReadView(Protocol):
    """Read view of a table's partitions at one moment, for a single request."""

    def resolve(self, key: str) -> ResolvedRows | None:
        """Return what answers for a `name@0`, or beside the segments of an edition; None if it is not here."""

    def behind(self, keys: Iterable[str]) -> Sequence[tuple[str, ResolvedRows | None]]:
        """Return what comes behind the keys, of partitions of which only sealed segments are asked for."""

    def masked(self, segment: ImmutableSegment) -> Segment | None:
        """Return a sealed segment masked with its valid docs; None if these are not known yet."""


class KeyIndexes(Protocol):
    """Indexes that know the valid docs of an upsert table's segments; they may be behind the segments."""

    def cut(self) -> ReadView:
        """Return the state of this moment, for one request."""

    def answerable(self, keys: Collection[str]) -> list[str]:
        """Return the keys that can be queried while these segments are served."""

    def needed(self, view: TableView) -> set[str]:
        """Return the segments that answer although the view has replaced them."""


@dataclass(slots=True, eq=False)
class _Held:
    segment: ImmutableSegment
    num_readers: int = 0
    is_dropped: bool = False
    read_columns: frozenset[str] = frozenset()
    """Columns that a query has read: their pages are probably in memory."""


@dataclass(slots=True, eq=False)
class Acquired:
    """Segments that stay open until released, in the order they were asked for; `missing` are keys that are not
    held."""

    segments: tuple[Segment, ...]
    missing: tuple[str, ...]
    held: tuple[_Held, ...]
    statistics: SetStatistics
    rows: tuple[Segment, ...] = ()
    """Consumed rows of streams, as they were when they were asked for. They need no releasing, and have no
    statistics."""
    newest_ms: int = 0
    """Timestamp of the newest message in the partition that is farthest behind; 0 if no rows of streams were asked for,
    or none has come."""
    num_readers: int = 1
    is_shared: bool = False
    """True if it is kept for the next request, with or without readers."""

    def has_read(self, columns: Collection[str], positions: Sequence[int] | None = None) -> bool:
        """Return True if queries have read these columns of all or some of its segments, and no footer has to be read
        again."""
        return all(
            held.read_columns and held.segment.is_open and held.read_columns.issuperset(columns)
            for held in self._held_at(positions)
        )

    def count(self, partial: Partial) -> Partial:
        """Return the partial answer with the figures on consuming segments that Pinot's clients expect."""
        if not self.rows:
            return partial
        stats = replace(
            partial.stats,
            num_consuming_segments_queried=len(self.rows),
            min_consuming_freshness_time_ms=self.newest_ms,
        )
        return Partial(partial.content, stats)

    def note_read(self, columns: Collection[str], positions: Sequence[int] | None = None) -> None:
        """Note that a query is about to read these columns, of all segments or some."""
        noted = frozenset(columns or ("*",))
        for held in self._held_at(positions):
            if not noted <= held.read_columns:
                held.read_columns = _union(held.read_columns, noted)

    def _held_at(self, positions: Sequence[int] | None) -> Sequence[_Held]:
        return self.held if positions is None else [self.held[position] for position in positions]


@functools.lru_cache(maxsize=1024)
def _union(columns: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """Return the union; the same object for the same columns, since thousands of segments note them."""
    return columns | other


def _is_resolved(key: str) -> bool:
    """Return True if a key is not a segment's own."""
    return key.endswith(CONSUMING_SUFFIX) or is_edition(key)


class TableSegments:
    """Open segments of one table."""

    def __init__(self, table: TableName, dispose: Dispose, cut: Callable[[], ReadView | None] = lambda: None) -> None:
        self.table = table
        self.is_upsert = False
        """True if some docs of segments are no rows of the table: segments are then handed out by a read view only."""
        self.has_editions = False
        """True if requests name the edition of the segments they want: the same keys are then the same docs."""
        self._dispose = dispose
        self._cut = cut
        self._held: dict[str, _Held] = {}
        self._shared: OrderedDict[tuple[str, ...], Acquired] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._held

    @property
    def keys(self) -> KeysView[str]:
        """Keys that can be acquired now."""
        return self._held.keys()

    @property
    def segments(self) -> Mapping[str, ImmutableSegment]:
        """Open segments by key; for reports, not for queries."""
        return MappingProxyType({key: held.segment for key, held in self._held.items()})

    def get(self, key: str) -> ImmutableSegment | None:
        """Return the open segment of a key; for the care of files, not for queries."""
        held = self._held.get(key)
        return None if held is None else held.segment

    def add(self, segment: ImmutableSegment) -> None:
        """Serve a segment from now on. A segment under the same key is dropped."""
        key = sys.intern(str(segment.key))
        if key in self._held:
            self.drop(key)
        self._unshare(0)
        self._held[key] = _Held(segment)

    def replace(self, key: str, segment: ImmutableSegment) -> None:
        """Serve another form of a version, such as with more indexes, to queries from now on."""
        read_columns = self._held[key].read_columns
        self.add(segment)
        self._held[key].read_columns = read_columns

    def editions_changed(self) -> None:
        """Forget shared sets: what was missing may be here now."""
        self._unshare(0)

    def drop(self, key: str) -> ImmutableSegment | None:
        """Hand a segment out no more, and close it when its last reader releases it. Return it if it has readers."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        self._unshare(0)
        held.is_dropped = True
        self._close_if_unread(held)
        return held.segment if held.num_readers else None

    def acquire(self, keys: Sequence[str]) -> Acquired:
        """Acquire every requested version that is here; it stays open until `release`."""
        shared = self.acquire_again(keys)
        if shared is not None:
            return shared
        consumed = [key for key in keys if _is_resolved(key)]
        if not consumed and not self.is_upsert:
            return self._acquire_sealed(keys)
        acquired = self._acquire_consumed(keys, consumed, self._cut())
        return self._share(keys, acquired) if self.has_editions else acquired

    def acquire_again(self, keys: Sequence[str]) -> Acquired | None:
        """Acquire what an equal request was given before, if that is kept: then no key has to be looked up."""
        is_fixed = not self.is_upsert or self.has_editions
        if len(keys) < SHARED_KEYS or not is_fixed:
            return None
        wanted = tuple(keys)
        shared = self._shared.get(wanted)
        if shared is not None:
            self._shared.move_to_end(wanted)
            shared.num_readers += 1
        return shared

    @contextmanager
    def borrowed(self, key: str) -> Iterator[ImmutableSegment | None]:
        """Hold a sealed segment as it is stored, to compute its valid docs; None if it is not here."""
        held = self._held.get(key)
        if held is None:
            yield None
            return
        held.num_readers += 1
        try:
            yield held.segment
        finally:
            held.num_readers -= 1
            if held.is_dropped:
                self._close_if_unread(held)

    def _acquire_consumed(self, keys: Sequence[str], consumed: Sequence[str], cut: ReadView | None) -> Acquired:
        """Acquire sealed segments and consumed rows: all or nothing of each partition log. In an upsert table of
        batches, acquire segments of the editions that are named."""
        sealed = [key for key in keys if not _is_resolved(key)]
        missing: list[str] = []
        rows: list[Segment] = []
        times_ms: list[int] = []
        results = [(key, None if cut is None else cut.resolve(key)) for key in consumed]
        if self.is_upsert and cut is not None:
            results += cut.behind(keys)
        for key, resolved in results:
            if resolved is None:
                missing.append(key)
            else:
                sealed += resolved.keys
                rows += resolved.rows
                times_ms += [resolved.newest_ms] if resolved.newest_ms else []
        acquired = self._acquire(sealed, cut)
        newest_ms = min(times_ms, default=0)
        return replace(acquired, rows=tuple(rows), newest_ms=newest_ms, missing=(*acquired.missing, *missing))

    def _acquire_sealed(self, keys: Sequence[str]) -> Acquired:
        return self._share(keys, self._acquire(keys, None))

    def _share(self, keys: Sequence[str], acquired: Acquired) -> Acquired:
        """Keep a large set for later requests."""
        if len(keys) >= SHARED_KEYS:
            self._shared[tuple(keys)] = acquired
            acquired.is_shared = True
            self._unshare(MAX_SHARED)
        return acquired

    def _acquire(self, keys: Iterable[str], cut: ReadView | None) -> Acquired:
        acquired: list[_Held] = []
        segments: list[Segment] = []
        missing: list[str] = []
        for key in keys:
            held = self._held.get(key)
            segment = None if held is None else self._masked(held.segment, cut)
            if held is None or segment is None:
                missing.append(key)
            else:
                held.num_readers += 1
                acquired.append(held)
                segments.append(segment)
        statistics = SetStatistics([held.segment for held in acquired])
        return Acquired(tuple(segments), tuple(missing), tuple(acquired), statistics)

    def _masked(self, segment: ImmutableSegment, cut: ReadView | None) -> Segment | None:
        if not self.is_upsert:
            return segment
        return None if cut is None else cut.masked(segment)

    def release(self, acquired: Acquired) -> None:
        """Give back what `acquire` gave, once."""
        acquired.num_readers -= 1
        if not acquired.num_readers and not acquired.is_shared:
            self._release(acquired)

    def _unshare(self, max_shared: int) -> None:
        """Keep `max_shared` sets for later requests; the others are released with their last reader."""
        while len(self._shared) > max_shared:
            _, acquired = self._shared.popitem(last=False)
            acquired.is_shared = False
            if not acquired.num_readers:
                self._release(acquired)

    def _release(self, acquired: Acquired) -> None:
        for held in acquired.held:
            held.num_readers -= 1
            if held.is_dropped:
                self._close_if_unread(held)

    def close(self) -> None:
        """Drop everything."""
        self._unshare(0)
        for key in list(self._held):
            self.drop(key)

    def _close_if_unread(self, held: _Held) -> None:
        if not held.num_readers:
            self._dispose(held.segment)
