"""Find the segments of an upsert table that were merged into another, from the records. Pure.

A record names the files that its own file was made of (`MERGED`). They stay beside it until every server answers by the
new file; readers that can have the new file use none of them (`taken`). See `merges` for the swaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final

from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.records import SegmentRecord, StreamSegmentRecord

MERGED: Final = "UpsertCompactMergeTask.mergedSegments"
"""Key of a segment's custom map: the files that its own file was made of, `name@crc` in the order of the stream. The
last of them was the segment's former file."""


def merged_keys(record: SegmentRecord) -> tuple[str, ...]:
    """Return the files that the segment's file was made of, its own former file last; none if it was never merged."""
    text = record.custom_map.get(MERGED, "")
    return tuple(text.split(",")) if text else ()


def merged_sequences(record: SegmentRecord) -> Mapping[int, str]:
    """Return the same files by sequence."""
    return {sequence_of(key): key for key in merged_keys(record)}


def taken(records: Iterable[SegmentRecord]) -> Mapping[str, StreamSegmentRecord]:
    """Return the segments that hold the rows of other segments that still exist, by the names of these."""
    holders: dict[str, StreamSegmentRecord] = {}
    by_name: dict[str, SegmentRecord] | None = None
    for record in records:
        if not isinstance(record, StreamSegmentRecord) or MERGED not in record.custom_map:
            continue
        if by_name is None:
            by_name = {segment.name: segment for segment in records}
        for key in merged_keys(record)[:-1]:
            name = key.rpartition("@")[0]
            if name in by_name and by_name[name].key_text == key:
                holders[name] = record
    return holders


def is_merged(records: Iterable[StreamSegmentRecord]) -> bool:
    """Return True if one of the segments was made of several."""
    return any(MERGED in record.custom_map for record in records)


def names_under_way(records: Iterable[StreamSegmentRecord]) -> Set[str]:
    """Return the names of segments in merges whose second swap is to come: nothing else may happen to them."""
    holders = taken(list(records))
    return holders.keys() | {record.name for record in holders.values()}


def sequence_of(key: str) -> int:
    """Return the sequence of the segment with this `name@crc`; -1 if it is not a stream's."""
    parsed = StreamSegmentName.parse(key.rpartition("@")[0])
    return -1 if parsed is None else parsed.sequence
