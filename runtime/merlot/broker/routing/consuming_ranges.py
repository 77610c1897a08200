"""Choose how the segments of a stream's partition are asked for: sealed ones by version, the newest by offset.

The segments of a partition form a chain: each begins at the offset where the one before ends. The key `name@0` asks a
server for all its rows of the partition from the beginning of that segment on: rows that are consumed, rows that are
sealed and not published yet, and later segments. So each chain is split: segments before the split are asked for as
`name@crc`, everything from it on, the *consuming range*, by one `name@0`.

The split is as late as holders allow: every sealed segment before it must have a holder, and so must the `name@0` at
the split. A commit moves the split by one segment in one snapshot, and no row is lost or counted twice. If the only
server that holds a sealed segment dies, the split moves back, as long as another server still answers for the segment
as it was consumed. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.records import ConsumingStatus, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.parts import is_of_stream, offsets_of

CONSUMING_SUFFIX = "@0"
"""Suffix of keys that ask for everything from a segment on. No sealed segment has the crc 0."""


@dataclass(frozen=True, slots=True)
class ConsumingRange:
    """The end of a chain, asked for by one key. `record` is its first segment, as it was while it was consumed."""

    record: StreamSegmentRecord
    names: frozenset[str]
    """Names of all segments that the key covers."""


def present(records: Mapping[str, SegmentRecord]) -> Mapping[str, SegmentRecord]:
    """Return the records without those that only mark the position of a paused partition: they have no rows."""
    if not any(record.status == ConsumingStatus.PAUSED for record in records.values()):
        return records
    return {name: record for name, record in records.items() if record.status != ConsumingStatus.PAUSED}


def open_names(records: Mapping[str, SegmentRecord]) -> frozenset[str]:
    """Return the names of the segments that may still get rows."""
    return frozenset(name for name, record in records.items() if record.is_open)


def consuming_names(keys: Iterable[str]) -> frozenset[str]:
    """Return the names of the segments that servers answer for as `name@0`."""
    return frozenset(key[: -len(CONSUMING_SUFFIX)] for key in keys if key.endswith(CONSUMING_SUFFIX))


def find_ranges(
    records: Mapping[str, SegmentRecord],
    live: Set[str],
    holders: Collection[str],
    servers: Sequence[Set[str]] = (),
) -> tuple[ConsumingRange, ...]:
    """Return the consuming range of each chain that has one.

    `live`: names held as `name@0`. `holders`: all keys that may be asked for. `servers`: sets of keys, preferred ones
    first, each held by a server, or by several together, that may answer for a chain as a whole.
    """
    stand_ins = _stand_ins(records, live)
    records = {name: stand_ins.get(name, record) for name, record in records.items()} if stand_ins else records
    named = {record.name: record for record in records.values()} if stand_ins else records
    names = live & named.keys()
    if not names:
        return ()
    own = [(consuming_names(keys), keys) for keys in servers]
    held = _keys_by_partition(records.values(), holders) if own else {}
    ranges = (
        _range_of_one_server(chain, own, held.get(chain[0].partition, ())) or _range(chain, live, holders)
        for chain in _unbroken_chains(records, names)
    )
    opened = {record.name: frozenset({name}) for name, record in stand_ins.items()}
    return tuple(
        replace(consuming, names=consuming.names.union(*(opened.get(name, frozenset()) for name in consuming.names)))
        for consuming in ranges
        if consuming is not None
    )


def _stand_ins(records: Mapping[str, SegmentRecord], live: Set[str]) -> Mapping[str, StreamSegmentRecord]:
    """Map each open segment that no server reports yet to the segment before it, which had no rows and whose record is
    gone: servers that are asked for that segment answer for all that has come since."""
    of_streams = (record for record in records.values() if isinstance(record, StreamSegmentRecord))
    gone: list[StreamSegmentName] | None = None
    stand_ins: dict[str, StreamSegmentRecord] = {}
    for by_sequence in chains(of_streams).values():
        last = by_sequence[max(by_sequence)]
        if not last.is_open or last.name in live:
            continue
        if gone is None:
            gone = [name for name in map(StreamSegmentName.parse, sorted(live - records.keys())) if name is not None]
        before = max((sequence for sequence in by_sequence if sequence != last.sequence), default=-1)
        between = [name for name in gone if name.partition == last.partition and before < name.sequence < last.sequence]
        if between:
            newest = max(between, key=lambda name: name.sequence)
            update = {"name": newest.segment, "sequence": newest.sequence}
            stand_ins[last.name] = last.model_copy(update=update)
    return stand_ins


def _keys_by_partition(records: Iterable[SegmentRecord], holders: Collection[str]) -> Mapping[int, list[str]]:
    """Return, by partition, the keys of the sealed segments that have a holder, merged segments included."""
    keys: dict[int, list[str]] = defaultdict(list)
    for record in records:
        if is_of_stream(record) and not record.is_open and record.key_text in holders:
            for partition in offsets_of(record):
                keys[partition].append(record.key_text)
    return keys


def _range_of_one_server(
    chain: Sequence[StreamSegmentRecord],
    servers: Iterable[tuple[Set[str], Collection[str]]],
    held: Iterable[str],
) -> ConsumingRange | None:
    """Return the newest range for which one server has all of the partition before it (`held`); None if none has."""
    own: list[ConsumingRange] = []
    in_chain = {record.key_text: record.name for record in chain}
    for live, keys in servers:
        consuming = _range(chain, live, keys)
        if consuming is None:
            continue
        earlier = (record for record in chain if record.name not in consuming.names)
        if any(record.key_text not in keys for record in earlier):
            continue
        if all(key in keys or in_chain.get(key) in consuming.names for key in held):
            own.append(consuming)
    return max(own, key=lambda consuming: consuming.record.sequence, default=None)


def _unbroken_chains(records: Mapping[str, SegmentRecord], names: Set[str]) -> Iterable[Sequence[StreamSegmentRecord]]:
    """Yield the records of the partitions that `names` belong to, in order, without those before a gap. What filled the
    gap was replaced or removed, so what came before it must not stand for it."""
    of_streams = (record for record in records.values() if isinstance(record, StreamSegmentRecord))
    for by_sequence in chains(of_streams).values():
        if names.isdisjoint(record.name for record in by_sequence.values()):
            continue
        sequence = max(by_sequence)
        chain = []
        while sequence in by_sequence:
            chain.append(by_sequence[sequence])
            sequence -= 1
        yield chain[::-1]


def _range(chain: Sequence[StreamSegmentRecord], live: Set[str], holders: Collection[str]) -> ConsumingRange | None:
    splits = [position for position, record in enumerate(chain) if record.name in live]
    if not splits:
        return None
    unheld = (position for position in range(splits[0], len(chain)) if chain[position].key_text not in holders)
    first_unheld = next(unheld, len(chain))
    if first_unheld == len(chain) and not chain[-1].is_open:
        return None  # everything is sealed and has a holder
    split = max(position for position in splits if position <= first_unheld)
    return ConsumingRange(_as_consumed(chain[split]), frozenset(record.name for record in chain[split:]))


def _as_consumed(record: StreamSegmentRecord) -> StreamSegmentRecord:
    """Return the record without facts that hold for the sealed segment only."""
    if record.is_open:
        return record
    unknown: dict[str, Any] = {"ranges": {}, "partitions": {}, "blooms": {}, "start_time_ms": None, "end_time_ms": None}
    return record.model_copy(update={**unknown, "crc": 0, "total_docs": 0, "status": ConsumingStatus.CONSUMING.value})
