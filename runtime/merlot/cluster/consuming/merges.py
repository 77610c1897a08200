"""Merge small sealed segments of a partition of an upsert table, in two swaps of the table's root. Pure.

The first swap replaces the file of the last segment of a run by a file with the valid rows of the whole run. Its record
names the files that it was made of (`merged`). The other segments stay beside it until every server answers by the new
file; readers that can have the new file use none of them. The second swap removes them. So brokers always have a whole
set of files to query: all of the old ones, or the new one.
"""

from __future__ import annotations

from dataclasses import dataclass

from merlot.cluster.consuming.merged import MERGED, names_under_way, sequence_of, taken
from merlot.cluster.consuming.partitions import chains, stream_segment
from merlot.cluster.consuming.transactions import COMPACTED, STAYING, is_decided_by_age
from merlot.cluster.records import SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.mutations import Mutation, PreconditionError, PutSegments, RemoveSegments
from merlot.cluster.segments.remnants import OF_FILE
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import is_held
from merlot.ids import SegmentKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A file with the valid rows of some segments, which replaces that of the last of them."""

    keys: tuple[SegmentKey, ...]
    """Keys of the segments, in the order of the stream."""
    file: SegmentRecord
    now_ms: int


def merge(view: TableView, merged: Merged) -> list[Mutation]:
    """Replace the last segment's file; the other segments stay as they are. Nothing happens if that is done already."""
    last = stream_segment(view, merged.keys[-1].name)
    if last is not None and last.crc == merged.file.crc:
        return []
    for key in merged.keys:
        record = stream_segment(view, key.name)
        if record is None or record.is_open or record.crc != key.crc or is_held(record, view.lineage):
            raise PreconditionError(f"segment to merge was replaced or removed meanwhile segment={key}")
    assert last is not None
    chain = chains(view.stream_segments)[last.partition]
    if is_decided_by_age(chain):
        raise PreconditionError(f"a time to live decides rows of the partition segment={last.key}")
    if len({chain[sequence_of(str(key))].upsert for key in merged.keys}) > 1:
        raise PreconditionError(f"segments to merge were decided by several settings segment={last.key}")
    busy = names_under_way(chain.values())
    if any(key.name in busy for key in merged.keys):
        raise PreconditionError(f"another merge is not over yet segment={last.key}")
    inside = [number for number in chain if sequence_of(str(merged.keys[0])) <= number <= last.sequence]
    if len(inside) != len(merged.keys):
        raise PreconditionError(f"segments to merge do not follow each other segment={last.key}")
    marks = {COMPACTED: str(merged.now_ms), STAYING: "0", MERGED: ",".join(map(str, merged.keys))}
    update: dict[str, object] = {name: getattr(merged.file, name) for name in OF_FILE}
    update |= {"snapshot_url": "", "snapshot_time_ms": -1, "checkpoint": None}  # they are of the old file's docs
    update |= {"custom_map": {**last.custom_map, **marks}, "refresh_time_ms": merged.now_ms}
    return [PutSegments((last.model_copy(update=update),), {last.name: last.crc})]


def finish(view: TableView, key: SegmentKey) -> list[Mutation]:
    """Remove the segments whose rows this segment has; it begins where they did."""
    record = stream_segment(view, key.name)
    if record is None or record.crc != key.crc:
        return []
    left = [view.segments[name] for name, holder in taken(view.stream_segments).items() if holder.name == record.name]
    if not left:
        return []
    stream_segments = (segment for segment in left if isinstance(segment, StreamSegmentRecord))
    first = min(stream_segments, key=lambda segment: segment.sequence)
    update = {"start_offset": first.start_offset, "lost_from": first.lost_from}
    return [
        RemoveSegments(tuple(segment.key for segment in left)),
        PutSegments((record.model_copy(update=update),), {record.name: record.crc}),
    ]
