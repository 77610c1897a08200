"""How the segments of a stream's partition are asked for: sealed ones by version, the newest ones by where they begin.

The segments of a partition form a line: each begins at the offset where the one before ends. `name@0` asks a server for
everything that it has of the partition from the beginning of that segment on, whatever became of it: rows that are
consumed, rows that are sealed and not published yet, later segments. So each line has a *cut*: segments before it are
asked for as `name@crc`, everything from it on by one `name@0`. The cut is as new as holders allow: every sealed segment
before it must have one, and so must the `name@0` of the cut. A commit moves the cut by one segment in one snapshot, and
no row is lost or counted twice; if the only server that holds a sealed segment dies, the cut moves back, as long as
another one still answers for the segment as it was consumed. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.records import ConsumingStatus, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.parts import is_of_stream, offsets_of

CONSUMING_SUFFIX = "@0"
"""Of keys that ask for everything from a segment on. No sealed segment has the crc 0."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a line, asked for as one: `record` is its first segment, as it was while it was consumed."""

    record: StreamSegmentRecord
    names: frozenset[str]
    """All segments that it stands for."""


def present(records: Mapping[str, SegmentRecord]) -> Mapping[str, SegmentRecord]:
    """Without segments that only keep the place of a partition that is paused: they have no rows."""
    if not any(record.status == ConsumingStatus.PAUSED for record in records.values()):
        return records
    return {name: record for name, record in records.items() if record.status != ConsumingStatus.PAUSED}


def open_names(records: Mapping[str, SegmentRecord]) -> frozenset[str]:
    """Names of the segments that rows may still come to."""
    return frozenset(name for name, record in records.items() if record.is_open)


def consuming_names(keys: Iterable[str]) -> frozenset[str]:
    """Names of the segments that somebody answers for as `name@0`."""
    return frozenset(key[: -len(CONSUMING_SUFFIX)] for key in keys if key.endswith(CONSUMING_SUFFIX))


def tails(
    records: Mapping[str, SegmentRecord],
    live: Set[str],
    holders: Collection[str],
    servers: Sequence[Set[str]] = (),
) -> tuple[Tail, ...]:
    """The tail of each line that has one. `live`: names held as `name@0`; `holders`: all keys that may be asked for.

    `servers`: keys of each server, or of several together, of which one shall answer for a line as a whole; preferred
    ones first.
    """
    stand_ins = _stand_ins(records, live)
    records = {name: stand_ins.get(name, record) for name, record in records.items()} if stand_ins else records
    named = {record.name: record for record in records.values()} if stand_ins else records
    names = live & named.keys()
    if not names:
        return ()
    own = [(consuming_names(keys), keys) for keys in servers]
    held = _keys_by_partition(records.values(), holders) if own else {}
    found = (
        _own_tail(line, own, held.get(line[0].partition, ())) or _tail(line, live, holders)
        for line in _lines(records, names)
    )
    opened = {record.name: frozenset({name}) for name, record in stand_ins.items()}
    return tuple(
        Tail(tail.record, tail.names.union(*(opened.get(name, frozenset()) for name in tail.names)))
        for tail in found
        if tail is not None
    )


def _stand_ins(records: Mapping[str, SegmentRecord], live: Set[str]) -> Mapping[str, StreamSegmentRecord]:
    """By open segment that nobody reports yet, the one before it that had no rows: its record is gone, and whoever is
    asked for it answers for what has come since."""
    of_streams = (record for record in records.values() if isinstance(record, StreamSegmentRecord))
    gone: list[StreamSegmentName] | None = None
    found: dict[str, StreamSegmentRecord] = {}
    for by_sequence in chains(of_streams).values():
        last = by_sequence[max(by_sequence)]
        if not last.is_open or last.name in live:
            continue
        if gone is None:
            gone = [name for name in map(StreamSegmentName.parse, sorted(live - records.keys())) if name is not None]
        known = max((one for one in by_sequence if one != last.sequence), default=-1)
        between = [one for one in gone if one.partition == last.partition and known < one.sequence < last.sequence]
        if between:
            newest = max(between, key=lambda one: one.sequence)
            update = {"name": newest.segment, "sequence": newest.sequence}
            found[last.name] = last.model_copy(update=update)
    return found


def _keys_by_partition(records: Iterable[SegmentRecord], holders: Collection[str]) -> Mapping[int, list[str]]:
    """Of the sealed segments that somebody has, merged ones among them."""
    found: dict[int, list[str]] = defaultdict(list)
    for record in records:
        if is_of_stream(record) and not record.is_open and record.key_text in holders:
            for partition in offsets_of(record):
                found[partition].append(record.key_text)
    return found


def _own_tail(
    line: Sequence[StreamSegmentRecord],
    servers: Iterable[tuple[Set[str], Collection[str]]],
    held: Iterable[str],
) -> Tail | None:
    """The newest tail before which some server has all of the partition (`held`); None if no server has."""
    own: list[Tail] = []
    in_line = {record.key_text: record.name for record in line}
    for live, keys in servers:
        tail = _tail(line, live, keys)
        if tail is None or any(one.key_text not in keys for one in line if one.name not in tail.names):
            continue
        if all(key in keys or in_line.get(key) in tail.names for key in held):
            own.append(tail)
    return max(own, key=lambda tail: tail.record.sequence, default=None)


def _lines(records: Mapping[str, SegmentRecord], names: Set[str]) -> Iterable[Sequence[StreamSegmentRecord]]:
    """Records of these segments' partitions, in order, without those before a gap: what was there is replaced by
    others, or removed, and must not be asked for by what came before it."""
    of_streams = (record for record in records.values() if isinstance(record, StreamSegmentRecord))
    for by_sequence in chains(of_streams).values():
        if names.isdisjoint(record.name for record in by_sequence.values()):
            continue
        sequence = max(by_sequence)
        line = []
        while sequence in by_sequence:
            line.append(by_sequence[sequence])
            sequence -= 1
        yield line[::-1]


def _tail(line: Sequence[StreamSegmentRecord], live: Set[str], holders: Collection[str]) -> Tail | None:
    cuts = [position for position, record in enumerate(line) if record.name in live]
    if not cuts:
        return None
    unheld = (position for position in range(cuts[0], len(line)) if line[position].key_text not in holders)
    first_unheld = next(unheld, len(line))
    if first_unheld == len(line) and not line[-1].is_open:
        return None  # all that there is is sealed, and can answer
    cut = max(position for position in cuts if position <= first_unheld)
    return Tail(_as_consumed(line[cut]), frozenset(record.name for record in line[cut:]))


def _as_consumed(record: StreamSegmentRecord) -> StreamSegmentRecord:
    """Without what is true of the sealed segment alone."""
    if record.is_open:
        return record
    unknown: dict[str, Any] = {"ranges": {}, "partitions": {}, "blooms": {}, "start_time_ms": None, "end_time_ms": None}
    return record.model_copy(update={**unknown, "crc": 0, "total_docs": 0, "status": ConsumingStatus.CONSUMING.value})
