"""What a table's stream is to one request: every partition is taken once, what is here and which docs of it count.

Of an upsert table both are one reference (`upserts.View`), so that a row that moves from one segment to another while
a request is answered is seen once: not in both, and not in neither. On the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from merlot.cluster.consuming.names import StreamSegmentName
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import Segment
from merlot.server.realtime.line import CONSUMING_SUFFIX, Line, Resolved
from merlot.server.realtime.upserts import UpsertSink
from merlot.server.realtime.views import View


class Consumer(Protocol):
    """A partition as its thread leaves it."""

    @property
    def line(self) -> Line: ...
    @property
    def is_ready(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A partition, and what knows which of its docs count; None: they all do."""

    consumer: Consumer
    sink: UpsertSink | None


@dataclass(frozen=True, slots=True)
class _Taken:
    line: Line
    view: View | None


class StreamCut:
    """For one request; `server.tables.Cut`."""

    def __init__(self, sources: Mapping[int, Source], is_loaded: Callable[[str], bool]) -> None:
        self._sources = sources
        self._is_loaded = is_loaded
        self._taken: dict[int, _Taken | None] = {}

    def resolve(self, key: str) -> Resolved | None:
        """What answers for a `name@0`; None if it is not here."""
        name = key.removesuffix(CONSUMING_SUFFIX)
        parsed = StreamSegmentName.parse(name)
        source = None if parsed is None else self._sources.get(parsed.partition)
        if parsed is None or source is None or not source.consumer.is_ready:
            return None
        taken = self._take(parsed.partition)
        if taken is None:
            return None
        if taken.view is None:
            return taken.line.resolve(name, self._is_loaded)
        return taken.line.resolve(name, self._is_loaded, taken.view.dressed)

    def behind(self, keys: Iterable[str]) -> Sequence[tuple[str, Resolved | None]]:
        """What comes behind the last of the keys, beside that key, of each partition of an upsert table of which only
        sealed segments are asked for; None if it is not here.

        The broker does not know yet that somebody consumes the partition. Rows that were replaced there would be seen
        in neither place."""
        last: dict[int, tuple[int, str]] = {}
        asked: set[int] = set()
        for key in keys:
            parsed = StreamSegmentName.parse(key.rpartition("@")[0])
            if parsed is None:
                continue
            if key.endswith(CONSUMING_SUFFIX):
                asked.add(parsed.partition)
            last[parsed.partition] = max(last.get(parsed.partition, (-1, "")), (parsed.sequence, key))
        found = []
        for partition, (sequence, key) in last.items():
            taken = None if partition in asked else self._take(partition)
            if taken is not None and taken.view is not None:
                found.append((key, taken.line.resolve_from(sequence + 1, self._is_loaded, taken.view.dressed)))
        return found

    def dressed(self, segment: ImmutableSegment) -> Segment | None:
        """A sealed segment with the docs of it that are rows of the table; None if the index does not have it."""
        parsed = StreamSegmentName.parse(segment.key.name)
        taken = None if parsed is None else self._take(parsed.partition)
        if parsed is None or taken is None or taken.view is None:
            return None
        return taken.view.dressed(parsed.sequence, segment)

    def _take(self, partition: int) -> _Taken | None:
        if partition not in self._taken:
            source = self._sources.get(partition)
            self._taken[partition] = None if source is None else _taken(source)
        return self._taken[partition]


def _taken(source: Source) -> _Taken | None:
    if source.sink is None:
        return _Taken(source.consumer.line, None)
    view = source.sink.view
    return None if view is None else _Taken(view.line, view)
