"""The checkpoint of a partition of an upsert table: which docs of its sealed segments are valid at the end of one.

It is in the records: each segment names its own snapshot, and the one at whose end they were taken holds what decides
beside them. One swap of the root writes them all, so that every view has them of one and the same moment. A later
checkpoint takes the place of an earlier one, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from merlot.cluster.consuming import recovery
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.consuming.pinned import unpin_upsert
from merlot.cluster.records import CheckpointRecord, StreamSegmentRecord
from merlot.cluster.segments.mutations import Mutation, PutSegments
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import TableView
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.spec.upserting import SnapshotStore

SNAPSHOT_FOLDER = "upserts"
"""In a table's folder of the deep store."""
DECIDED_UNTIL = "UpsertCompactionTask.decidedUntil"
"""Key of a segment's custom map: sequence of the segment at whose end the checkpoint was taken by which rows were taken
out of it (see `needed`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Snapshots that are in the deep store, all as of the end of one segment."""

    partition: int
    sequence: int
    key: str
    """Of that segment, `name@crc`."""
    state: CheckpointRecord
    urls: Mapping[str, str]
    """Of every sealed segment up to that one, by key."""


def newest(records: Mapping[int, StreamSegmentRecord]) -> StreamSegmentRecord | None:
    """The segment at whose end the partition's checkpoint was taken; None if there is no whole one."""
    found = [sequence for sequence, record in records.items() if record.checkpoint is not None]
    if not found:
        return None
    last = records[max(found)]
    is_whole = all(one.snapshot_url for one in sealed_until(records, last.sequence))
    return last if is_whole else None


def needed(records: Mapping[int, StreamSegmentRecord]) -> int | None:
    """The least sequence of a checkpoint that a recovery has to begin with, since rows that decided others were taken
    out of segments; None: what is stored can be replayed. What a backfill decides anew needs none."""
    point = recovery.point_of(records)
    marks = [int(one.custom_map[DECIDED_UNTIL]) for one in records.values() if DECIDED_UNTIL in one.custom_map]
    ends = [sequence for sequence, one in records.items() if one.checkpoint is not None and one.checkpoint.is_needed]
    return max((sequence for sequence in (*marks, *ends) if sequence >= point), default=None)


def is_kept(records: Mapping[int, StreamSegmentRecord]) -> bool:
    """Whether the partition's checkpoints belong into the deep store, as the settings of its last segment say."""
    settings = records[max(records)].upsert if records else ""
    return bool(settings) and unpin_upsert(settings).snapshots_in is SnapshotStore.DEEP_STORE


def sealed_until(records: Mapping[int, StreamSegmentRecord], sequence: int) -> list[StreamSegmentRecord]:
    """The sealed segments of a partition up to one."""
    return [one for number, one in sorted(records.items()) if number <= sequence and not one.is_open]


def write_checkpoint(metastore: Metastore, table: TableName, taken: Checkpoint) -> tuple[bool, TableView]:
    """Name the snapshots in the records; returns whether they are named, and the view in which they are, or in which a
    later checkpoint is, or segments that the snapshots are not of."""
    is_written = False

    def decide(view: TableView) -> list[Mutation]:
        nonlocal is_written
        records = chains(view.stream_segments).get(taken.partition, {})
        is_written = _fits(records, taken)
        state = taken.state.model_copy(update={"is_needed": needed(records) is not None})
        return _put(_named(one, replace(taken, state=state)) for one in records.values()) if is_written else []

    view = mutate(metastore, table, decide)
    return is_written, view


def forget_checkpoint(metastore: Metastore, table: TableName, partition: int) -> TableView:
    """Name no snapshots of a partition any more."""

    def decide(view: TableView) -> list[Mutation]:
        records = chains(view.stream_segments).get(partition, {}).values()
        return _put(_bare(record) for record in records if record.snapshot_url or record.checkpoint is not None)

    return mutate(metastore, table, decide)


def snapshot_urls(records: Iterable[StreamSegmentRecord]) -> set[str]:
    """Files that records name."""
    return {record.snapshot_url for record in records if record.snapshot_url}


def _fits(records: Mapping[int, StreamSegmentRecord], taken: Checkpoint) -> bool:
    end = records.get(taken.sequence)
    if end is None or end.is_open or end.key_text != taken.key:
        return False
    if any(one.checkpoint is not None and sequence > taken.sequence for sequence, one in records.items()):
        return False
    if not is_kept(records):
        return False
    return all(one.key_text in taken.urls for one in sealed_until(records, taken.sequence))


def _named(record: StreamSegmentRecord, taken: Checkpoint) -> StreamSegmentRecord:
    if record.is_open or record.sequence > taken.sequence:
        return record
    state = taken.state if record.sequence == taken.sequence else None
    url = taken.urls[record.key_text]
    update: dict[str, object] = {"checkpoint": state}
    if url != record.snapshot_url:
        update |= {"snapshot_url": url, "snapshot_time_ms": taken.state.at_ms}
    return record.model_copy(update=update)


def _bare(record: StreamSegmentRecord) -> StreamSegmentRecord:
    return record.model_copy(update={"snapshot_url": "", "snapshot_time_ms": -1, "checkpoint": None})


def _put(records: Iterable[StreamSegmentRecord]) -> list[Mutation]:
    found = tuple(records)
    return [PutSegments(found, {record.name: record.crc for record in found})] if found else []
