"""Which segments of an upsert table were merged into another one, as records tell. Pure.

A record names the files that its own was made of (`MERGED`). They stay beside it until every server answers by the new
file; whoever can have that one asks for none of them (`taken`). See `merges` for the swaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final

from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.records import SegmentRecord, StreamSegmentRecord

MERGED: Final = "UpsertCompactMergeTask.mergedSegments"
"""Key of a segment's custom map: the files that its own was made of, `name@crc` in the order of the stream. The last
one was the segment's own."""


def merged_keys(record: SegmentRecord) -> tuple[str, ...]:
    """The files that the segment's was made of, its own former one last; none if it was never merged."""
    text = record.custom_map.get(MERGED, "")
    return tuple(text.split(",")) if text else ()


def merged_sequences(record: SegmentRecord) -> Mapping[int, str]:
    """The same by sequence."""
    return {sequence_of(key): key for key in merged_keys(record)}


def taken(records: Iterable[SegmentRecord]) -> Mapping[str, StreamSegmentRecord]:
    """By the name of each segment that is there still though another one has its rows: that one."""
    found: dict[str, StreamSegmentRecord] = {}
    by_name: dict[str, SegmentRecord] | None = None
    for record in records:
        if not isinstance(record, StreamSegmentRecord) or MERGED not in record.custom_map:
            continue
        if by_name is None:
            by_name = {one.name: one for one in records}
        for key in merged_keys(record)[:-1]:
            name = key.rpartition("@")[0]
            if name in by_name and by_name[name].key_text == key:
                found[name] = record
    return found


def is_merged(records: Iterable[StreamSegmentRecord]) -> bool:
    """Whether one of them was made of several."""
    return any(MERGED in record.custom_map for record in records)


def names_under_way(records: Iterable[StreamSegmentRecord]) -> Set[str]:
    """Segments of merges whose second swap is to come: nothing else may happen to them."""
    found = taken(list(records))
    return found.keys() | {one.name for one in found.values()}


def sequence_of(key: str) -> int:
    """Place in the chain of a segment, by its `name@crc`; -1 if it is none of a stream."""
    parsed = StreamSegmentName.parse(key.rpartition("@")[0])
    return -1 if parsed is None else parsed.sequence
