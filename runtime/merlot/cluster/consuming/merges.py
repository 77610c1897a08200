"""Small sealed segments of a partition of an upsert table become one: two swaps of the table's root. Pure.

The first puts a file with the valid rows of a run of segments in the place of the last one's; its record names what it
was made of (`merged`). The others stay beside it until every server answers by the new file; whoever can have that file
asks for none of them. The second swap removes them. So there is always a whole set of files that brokers can
ask for: all of the old ones, or the new one.
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
    """A file with the valid rows of some segments, for the place of the last of them."""

    keys: tuple[SegmentKey, ...]
    """In the order of the stream."""
    file: SegmentRecord
    now_ms: int


def merge(view: TableView, merged: Merged) -> list[Mutation]:
    """Put the file in the place of the last segment's; the others stay as they are. Nothing happens if that is done."""
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
    update |= {"snapshot_url": "", "snapshot_time_ms": -1, "checkpoint": None}  # of the docs as they were
    update |= {"custom_map": {**last.custom_map, **marks}, "refresh_time_ms": merged.now_ms}
    return [PutSegments((last.model_copy(update=update),), {last.name: last.crc})]


def finish(view: TableView, key: SegmentKey) -> list[Mutation]:
    """Remove the segments whose rows this one has; it begins where they did."""
    record = stream_segment(view, key.name)
    if record is None or record.crc != key.crc:
        return []
    left = [view.segments[name] for name, one in taken(view.stream_segments).items() if one.name == record.name]
    if not left:
        return []
    first = min((one for one in left if isinstance(one, StreamSegmentRecord)), key=lambda one: one.sequence)
    update = {"start_offset": first.start_offset, "lost_from": first.lost_from}
    return [
        RemoveSegments(tuple(one.key for one in left)),
        PutSegments((record.model_copy(update=update),), {record.name: record.crc}),
    ]
