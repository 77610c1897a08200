"""Read view of a table's stream for one request: each partition's log and valid docs, taken once.

In an upsert table the log and the valid docs are one reference (`views.UpsertView`). A row that moves from one
segment to another while a request is answered is therefore seen exactly once. Used on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from merlot.cluster.consuming.names import StreamSegmentName
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import Segment
from merlot.server.realtime.partition_log import CONSUMING_SUFFIX, PartitionLog, ResolvedRows
from merlot.server.realtime.upserts import UpsertListener
from merlot.server.realtime.views import UpsertView


class Consumer(Protocol):
    """Partition consumer, as a request sees it."""

    @property
    def log(self) -> PartitionLog: ...
    @property
    def is_ready(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ConsumedPartition:
    """Consumed partition with the listener that knows its valid docs; None if all docs are valid."""

    consumer: Consumer
    listener: UpsertListener | None


@dataclass(frozen=True, slots=True)
class _TakenPartition:
    log: PartitionLog
    view: UpsertView | None


class StreamReadView:
    """Read view for one request; implements `server.tables.ReadView`."""

    def __init__(self, sources: Mapping[int, ConsumedPartition], is_loaded: Callable[[str], bool]) -> None:
        self._sources = sources
        self._is_loaded = is_loaded
        self._taken: dict[int, _TakenPartition | None] = {}

    def resolve(self, key: str) -> ResolvedRows | None:
        """Return what answers for a `name@0`; None if it is not here."""
        name = key.removesuffix(CONSUMING_SUFFIX)
        parsed = StreamSegmentName.parse(name)
        source = None if parsed is None else self._sources.get(parsed.partition)
        if parsed is None or source is None or not source.consumer.is_ready:
            return None
        taken = self._take(parsed.partition)
        if taken is None:
            return None
        if taken.view is None:
            return taken.log.resolve(name, self._is_loaded)
        return taken.log.resolve(name, self._is_loaded, taken.view.masked)

    def behind(self, keys: Iterable[str]) -> Sequence[tuple[str, ResolvedRows | None]]:
        """Return, per partition, the last of the keys and what comes behind it, or None if that is not here.

        Only partitions of an upsert table of which nothing but sealed segments is asked for are returned. Their broker
        does not know yet that the partition is consumed: it would see neither a row that was replaced there, nor the
        row that replaced it."""
        last: dict[int, tuple[int, str]] = {}
        asked: set[int] = set()
        for key in keys:
            parsed = StreamSegmentName.parse(key.rpartition("@")[0])
            if parsed is None:
                continue
            if key.endswith(CONSUMING_SUFFIX):
                asked.add(parsed.partition)
            last[parsed.partition] = max(last.get(parsed.partition, (-1, "")), (parsed.sequence, key))
        results = []
        for partition, (sequence, key) in last.items():
            taken = None if partition in asked else self._take(partition)
            if taken is not None and taken.view is not None:
                results.append((key, taken.log.resolve_from(sequence + 1, self._is_loaded, taken.view.masked)))
        return results

    def masked(self, segment: ImmutableSegment) -> Segment | None:
        """Return a sealed segment masked with its valid docs; None if the index does not have it."""
        parsed = StreamSegmentName.parse(segment.key.name)
        taken = None if parsed is None else self._take(parsed.partition)
        if parsed is None or taken is None or taken.view is None:
            return None
        return taken.view.masked(parsed.sequence, segment)

    def _take(self, partition: int) -> _TakenPartition | None:
        if partition not in self._taken:
            source = self._sources.get(partition)
            self._taken[partition] = None if source is None else _taken(source)
        return self._taken[partition]


def _taken(source: ConsumedPartition) -> _TakenPartition | None:
    if source.listener is None:
        return _TakenPartition(source.consumer.log, None)
    view = source.listener.view
    return None if view is None else _TakenPartition(view.log, view)
