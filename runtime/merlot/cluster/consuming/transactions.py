"""Transactions on a stream's segments: pure functions from a view to mutations.

Each looks at the very view that its write is checked against, so it needs no version of its own. It returns no mutation
if it is done already or comes too late; the caller reads the outcome in the view after it. It raises PreconditionError,
and nothing else, for what can never become possible.

CONSUMING ── propose_end ──► SEALING ── commit ──► DONE, and the next segment CONSUMING, or PAUSED
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from merlot.cluster.consuming import recovery
from merlot.cluster.consuming.checkpoints import DECIDED_UNTIL, is_kept, newest
from merlot.cluster.consuming.merged import names_under_way
from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.consuming.partitions import chains, last_segments, open_segments, segment_after, stream_segment
from merlot.cluster.consuming.pinned import decides_by_age, pinned_upsert
from merlot.cluster.records import AskedEnd, ConsumingStatus, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.mutations import Assign, Mutation, PreconditionError, PutSegments, RemoveSegments
from merlot.cluster.segments.remnants import OF_FILE
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId, SegmentKey, TableName, raw_name

COMPACTED = "UpsertCompactionTask.time"
"""Key of a segment's custom map: when replaced rows were last removed from it, in epoch milliseconds."""
STAYING = "UpsertCompactionTask.staying"
"""Key of a segment's custom map: how many invalid rows stayed then (`upsert.rewriting`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The first segment of a partition. `offset` counts only if the table has no segment of the partition."""

    partition: int
    offset: int
    servers: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End of a segment, and the replica that makes its file. `next_offset`: start of the next segment, if rows between
    the two are lost."""

    segment: str
    offset: int
    sealer: InstanceId
    now_ms: int
    next_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A segment as it was uploaded. `file` is the record of its file; None if it has no rows, and needs no file."""

    segment: str
    start_offset: int
    end_offset: int
    file: SegmentRecord | None
    sealer: InstanceId
    now_ms: int


@dataclass(frozen=True, slots=True)
class MovedSnapshot:
    """URL of a segment's snapshot, and of the snapshot of the same docs in its new file."""

    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A sealed segment without some of its rows. `file` is the record of the remaining rows; None if none remain."""

    key: SegmentKey
    file: SegmentRecord | None
    now_ms: int
    num_staying: int = 0
    """Number of invalid rows in the file that cannot be removed."""
    snapshot: MovedSnapshot | None = None
    """Snapshot to move to the new file, in a partition whose rows a time to live decides; else None."""


def begin(
    view: TableView, begins: Sequence[Begin], pinned: str, now_ms: int, *, paused: bool = False
) -> list[Mutation]:
    """Open a segment in each of the partitions that has none. A partition whose chain is broken continues where its
    last segment ends."""
    last = last_segments(view)
    created: list[StreamSegmentRecord] = []
    servers: dict[str, tuple[InstanceId, ...]] = {}
    for first in begins:
        before = last.get(first.partition)
        if before is not None and before.is_open:
            continue
        record = StreamSegmentRecord(
            **_opened(view.table, first.partition, 0 if before is None else before.sequence + 1, now_ms),
            start_offset=first.offset if before is None else _next_start(before),
            **_pinned(pinned),
            status=_status(paused),
        )
        created.append(record)
        servers[record.name] = first.servers
    return [PutSegments(tuple(created), dict.fromkeys(servers)), Assign(servers)] if created else []


def propose_end(view: TableView, end: End) -> list[Mutation]:
    """Agree on the end of a segment. The first proposal holds; later ones change nothing."""
    record = stream_segment(view, end.segment)
    if record is None or record.status != ConsumingStatus.CONSUMING:
        return []
    if end.offset < record.start_offset:
        raise PreconditionError(
            f"segment cannot end before it starts segment={record.name} start={record.start_offset} end={end.offset}"
        )
    update = {
        "status": ConsumingStatus.SEALING.value,
        "end_offset": end.offset,
        "sealer": end.sealer,
        "sealing_ms": end.now_ms,
    }
    if end.next_offset is not None and record.next_offset is None:
        update["next_offset"] = end.next_offset
    return _put(record, record.model_copy(update=update))


def shorten(view: TableView, end: End) -> list[Mutation]:
    """Replace an agreed end that no replica can reach any more by an end that a replica has reached. Rows between the
    new end and the start of the next segment are lost."""
    record = stream_segment(view, end.segment)
    if record is None or record.status != ConsumingStatus.SEALING or record.end_offset is None:
        return []
    if not record.start_offset <= end.offset < record.end_offset:
        return []
    update = {
        "end_offset": end.offset,
        "sealer": end.sealer,
        "sealing_ms": end.now_ms,
        "next_offset": end.next_offset if record.next_offset is None else record.next_offset,
    }
    return _put(record, record.model_copy(update=update))


def replace_sealer(view: TableView, segment: str, *, old: str, new: InstanceId, now_ms: int) -> list[Mutation]:
    """Make another replica the sealer, if `old` still is."""
    record = stream_segment(view, segment)
    if record is None or record.status != ConsumingStatus.SEALING or record.sealer != old:
        return []
    return _put(record, record.model_copy(update={"sealer": new, "sealing_ms": now_ms}))


def commit(view: TableView, sealed: SealedSegment) -> list[Mutation]:
    """End a segment and open the next one, in one write. Any replica may do so, even if another replica is the
    sealer: all replicas make the same rows.

    A segment without rows leaves no record."""
    record = stream_segment(view, sealed.segment)
    if record is None or not record.is_open:
        return []
    agreed = (record.start_offset, record.end_offset)
    if record.status != ConsumingStatus.SEALING or agreed != (sealed.start_offset, sealed.end_offset):
        raise PreconditionError(
            f"segment was sealed to another end segment={record.name} status={record.status} agreed={agreed} "
            f"got={(sealed.start_offset, sealed.end_offset)}"
        )
    following = _following(view.table, record, sealed.now_ms, has_rows=sealed.file is not None)
    moved = Assign({following.name: view.servers_of(record.name)})
    if sealed.file is None:
        return [RemoveSegments((record.key,), even_open=True), PutSegments((following,), {following.name: None}), moved]
    done = _done(record, sealed, sealed.file)
    return [PutSegments((done, following), {record.name: record.crc, following.name: None}), moved]


def rewrite(view: TableView, rewritten: Rewritten) -> list[Mutation]:
    """Replace a sealed segment's file by a file with some of its rows; remove the segment if none remain.

    The segment keeps its place in the chain and its offsets. Nothing happens if its snapshot has changed: it has to be
    taken anew."""
    key, file = rewritten.key, rewritten.file
    record = stream_segment(view, key.name)
    if record is None or record.is_open or record.crc not in (key.crc, None if file is None else file.crc):
        raise PreconditionError(f"segment to rewrite was replaced or removed meanwhile segment={key}")
    if file is not None and record.crc == file.crc:
        return []
    chain = chains(view.stream_segments)[record.partition]
    if record.name in names_under_way(chain.values()):
        raise PreconditionError(f"segment to rewrite is being merged segment={key}")
    end = checkpoint_for(chain, record)
    if end is None and is_decided_by_age(chain):
        raise PreconditionError(f"no checkpoint tells how rows of the partition were decided segment={key}")
    if end is not None and (rewritten.snapshot is None or record.snapshot_url != rewritten.snapshot.old):
        return []
    if file is None:
        return [RemoveSegments((key,)), *_handed_on(chain, record, end)]
    marked = [] if end is None else _put(end, end.model_copy(update=_needed(end)))
    update: dict[str, object] = {name: getattr(file, name) for name in OF_FILE}
    marks = {COMPACTED: str(rewritten.now_ms), STAYING: str(rewritten.num_staying)}
    update |= {"snapshot_url": "", "snapshot_time_ms": -1}  # they are of the old file's docs
    if end is not None and rewritten.snapshot is not None:
        marks[DECIDED_UNTIL] = str(end.sequence)
        update |= {"snapshot_url": rewritten.snapshot.new, "snapshot_time_ms": record.snapshot_time_ms}
    update |= {"custom_map": {**record.custom_map, **marks}, "refresh_time_ms": rewritten.now_ms}
    return [PutSegments((record.model_copy(update=update),), {record.name: key.crc}), *marked]


def note_staying(view: TableView, key: SegmentKey, num_staying: int) -> list[Mutation]:
    """Record that `num_staying` rows of a segment are invalid and cannot be removed."""
    record = stream_segment(view, key.name)
    if record is None or record.crc != key.crc:
        return []
    marks = {**record.custom_map, STAYING: str(num_staying)}
    return _put(record, record.model_copy(update={"custom_map": marks}))


def is_decided_by_age(chain: Mapping[int, StreamSegmentRecord]) -> bool:
    """Return True if a time to live decided rows of a partition: a replay of the stored rows needs all of them."""
    return any(decides_by_age(record.upsert) for record in chain.values())


def checkpoint_for(chain: Mapping[int, StreamSegmentRecord], record: StreamSegmentRecord) -> StreamSegmentRecord | None:
    """Return the segment whose checkpoint tells which rows of an earlier segment have to stay. Return None if there is
    none, or none is needed because no time to live decides rows."""
    if not is_decided_by_age(chain) or not is_kept(chain):
        return None
    end = newest(chain)
    is_known = end is not None and max(record.sequence + 1, recovery.point_of(chain)) <= end.sequence
    return end if is_known else None


def ask_to_end(
    view: TableView,
    partitions: Collection[int] | None,
    asked: AskedEnd,
    now_ms: int,
    *,
    next_pinned: str = "",
    next_offsets: Mapping[int, int] | None = None,
) -> list[Mutation]:
    """End the open segments of the partitions (None: all) as soon as their replicas can.

    `next_pinned`: settings of the following segments. `next_offsets`: starts of some of them, by partition, whatever
    was read before. A paused segment has nothing to end: its settings or its start change at once."""
    changed: list[Mutation] = []
    for number, record in open_segments(view).items():
        if partitions is not None and number not in partitions:
            continue
        offset = None if next_offsets is None else next_offsets.get(number)
        if record.status == ConsumingStatus.PAUSED:
            changed += _restarted(view, record, next_pinned or record.pinned, offset, now_ms)
            continue
        update: dict[str, object] = {"asked_end": asked}
        if next_pinned:
            update["next_pinned"] = next_pinned
        if offset is not None:
            update["next_offset"] = offset
        changed += _put(record, record.model_copy(update=update))
    return changed


def resume(view: TableView, now_ms: int) -> list[Mutation]:
    """Resume consuming. Segments that were about to end for the pause still end, and others follow them."""
    changed: list[Mutation] = []
    for record in open_segments(view).values():
        if record.status == ConsumingStatus.PAUSED:
            update = {"status": ConsumingStatus.CONSUMING.value, "creation_time_ms": now_ms}
            changed += _put(record, record.model_copy(update=update))
        elif record.asked_end is AskedEnd.PAUSE:
            changed += _put(record, record.model_copy(update={"asked_end": AskedEnd.FORCE}))
    return changed


def _done(record: StreamSegmentRecord, sealed: SealedSegment, file: SegmentRecord) -> StreamSegmentRecord:
    update = {name: getattr(file, name) for name in OF_FILE}
    update |= {
        "status": ConsumingStatus.DONE.value,
        "push_time_ms": sealed.now_ms,
        "sealer": sealed.sealer,
        "pinned": "",
        "next_pinned": "",
        "asked_end": AskedEnd.NO,
    }
    return record.model_copy(update=update)


def _following(table: TableName, record: StreamSegmentRecord, now_ms: int, *, has_rows: bool) -> StreamSegmentRecord:
    start = _next_start(record)
    assert record.end_offset is not None
    return StreamSegmentRecord(
        **_opened(table, record.partition, record.sequence + 1, now_ms),
        start_offset=start,
        **_pinned(record.next_pinned or record.pinned),
        status=_status(record.asked_end is AskedEnd.PAUSE),
        lost_from=_lost_from(None if has_rows else record.lost_from, record.end_offset, start),
    )


def _restarted(
    view: TableView, record: StreamSegmentRecord, pinned: str, offset: int | None, now_ms: int
) -> list[Mutation]:
    """Replace a paused segment by a new segment with these settings and this start. The old segment is not changed in
    place, since a replica may have rows of it."""
    start = record.start_offset if offset is None else offset
    if (start, pinned) == (record.start_offset, record.pinned):
        return []
    moved = StreamSegmentRecord(
        **_opened(view.table, record.partition, record.sequence + 1, now_ms),
        start_offset=start,
        **_pinned(pinned),
        status=record.status,
        lost_from=_lost_from(record.lost_from, record.start_offset, start),
    )
    return [
        RemoveSegments((record.key,), even_open=True),
        PutSegments((moved,), {moved.name: None}),
        Assign({moved.name: view.servers_of(record.name)}),
    ]


def _opened(table: TableName, partition: int, sequence: int, now_ms: int) -> dict[str, object]:
    """Return the fields that all open segments have in common."""
    name = StreamSegmentName(raw_name(table), partition, sequence, now_ms)
    return {
        "name": name.segment,
        "crc": 0,
        "size_bytes": 0,
        "url": "",
        "total_docs": 0,
        "creation_time_ms": now_ms,
        "partition": partition,
        "sequence": sequence,
    }


def _pinned(pinned: str) -> dict[str, str]:
    digest = hashlib.blake2b(pinned.encode(), digest_size=8).hexdigest()
    upsert = pinned_upsert(pinned)
    return {"pinned": sys.intern(pinned), "pinned_id": sys.intern(digest), "upsert": sys.intern(upsert)}


def _next_start(record: StreamSegmentRecord) -> int:
    if record.next_offset is not None:
        return record.next_offset
    return record.start_offset if record.end_offset is None else record.end_offset


def _lost_from(lost_before: int | None, end: int, start: int) -> int | None:
    """Return the first lost offset before a segment that starts at `start`; None if no offset is lost.

    `lost_before`: first lost offset of the segment that ends at `end`, if that segment leaves no record of its own."""
    first = end if lost_before is None else lost_before
    return first if start > first else None


def _status(paused: bool) -> str:
    return (ConsumingStatus.PAUSED if paused else ConsumingStatus.CONSUMING).value


def _needed(end: StreamSegmentRecord) -> dict[str, object]:
    """Return the changes of the segment whose checkpoint decides about removed rows from now on."""
    checkpoint = end.checkpoint
    return {} if checkpoint is None else {"checkpoint": checkpoint.model_copy(update={"is_needed": True})}


def _handed_on(
    chain: Mapping[int, StreamSegmentRecord], record: StreamSegmentRecord, end: StreamSegmentRecord | None
) -> list[Mutation]:
    """Change the segments that stay when a segment is removed. The next segment takes over what the stream had lost
    before the removed one, and begins where that began, unless the stream had lost something in between as well."""
    updates = {} if end is None else {end.sequence: _needed(end)}
    after = segment_after(chain, record.sequence)
    if record.lost_from is not None and after is not None and _can_take_over(after, record):
        taken = {"lost_from": record.lost_from, "start_offset": record.start_offset}
        updates[after.sequence] = {**updates.get(after.sequence, {}), **taken}
    changed = ((chain[sequence], update) for sequence, update in updates.items())
    return [put for old, update in changed for put in _put(old, old.model_copy(update=update))]


def _can_take_over(after: StreamSegmentRecord, record: StreamSegmentRecord) -> bool:
    """Return True if the segment is sealed, lost nothing, and was read on from the other one's offsets."""
    return not after.is_open and after.lost_from is None and after.start_offset >= record.start_offset


def _put(old: StreamSegmentRecord, new: StreamSegmentRecord) -> list[Mutation]:
    return [] if new == old else [PutSegments((new,), {old.name: old.crc})]
