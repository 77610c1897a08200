"""Checkpoints of a partition of an upsert table: the docs of its sealed segments that are valid at one segment's end.

A checkpoint is in the records: each segment names its own snapshot, and the segment at whose end they were taken holds
the rest of the deciding state. One swap of the root writes them all, so that all of them are of the same moment in
every view. A later checkpoint replaces an earlier one, never the other way round.
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
"""Name of a folder in the table's folder of the deep store."""
DECIDED_UNTIL = "UpsertCompactionTask.decidedUntil"
"""Key of a segment's custom map. Rows were removed from the segment by a checkpoint; the value is the sequence of the
segment at whose end that checkpoint was taken (see `needed`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """Snapshots in the deep store, all as of the end of one segment."""

    partition: int
    sequence: int
    key: str
    """Key of that segment, `name@crc`."""
    state: CheckpointRecord
    urls: Mapping[str, str]
    """URLs of the snapshots by segment key, for every sealed segment up to that one."""


def newest(records: Mapping[int, StreamSegmentRecord]) -> StreamSegmentRecord | None:
    """Return the segment at whose end the partition's checkpoint was taken; None if there is no complete checkpoint."""
    sequences = [sequence for sequence, record in records.items() if record.checkpoint is not None]
    if not sequences:
        return None
    last = records[max(sequences)]
    is_whole = all(record.snapshot_url for record in sealed_until(records, last.sequence))
    return last if is_whole else None


def needed(records: Mapping[int, StreamSegmentRecord]) -> int | None:
    """Return the least sequence of a checkpoint that a recovery must begin with, because rows that decided others were
    removed from segments. Return None if the stored rows can be replayed. Rows that a backfill decides anew need no
    checkpoint."""
    point = recovery.point_of(records)
    marks = [int(record.custom_map[DECIDED_UNTIL]) for record in records.values() if DECIDED_UNTIL in record.custom_map]
    ends = [
        sequence
        for sequence, record in records.items()
        if record.checkpoint is not None and record.checkpoint.is_needed
    ]
    return max((sequence for sequence in (*marks, *ends) if sequence >= point), default=None)


def is_kept(records: Mapping[int, StreamSegmentRecord]) -> bool:
    """Return True if the partition's checkpoints belong in the deep store, by the settings of its last segment."""
    settings = records[max(records)].upsert if records else ""
    return bool(settings) and unpin_upsert(settings).snapshots_in is SnapshotStore.DEEP_STORE


def sealed_until(records: Mapping[int, StreamSegmentRecord], sequence: int) -> list[StreamSegmentRecord]:
    """Return the sealed segments of a partition up to the one with this sequence."""
    return [record for number, record in sorted(records.items()) if number <= sequence and not record.is_open]


def write_checkpoint(metastore: Metastore, table: TableName, taken: StoredCheckpoint) -> tuple[bool, TableView]:
    """Name the snapshots in the records. Return whether they are named, and the view after it.

    They are not named if the view has a later checkpoint, or segments other than those of the snapshots, or if the
    table's checkpoints no longer belong in the deep store."""
    is_written = False

    def decide(view: TableView) -> list[Mutation]:
        nonlocal is_written
        records = chains(view.stream_segments).get(taken.partition, {})
        is_written = _fits(records, taken)
        state = taken.state.model_copy(update={"is_needed": needed(records) is not None})
        return _put(_named(record, replace(taken, state=state)) for record in records.values()) if is_written else []

    view = mutate(metastore, table, decide)
    return is_written, view


def forget_checkpoint(metastore: Metastore, table: TableName, partition: int) -> TableView:
    """Remove a partition's checkpoint, and the names of its snapshots, from the records."""

    def decide(view: TableView) -> list[Mutation]:
        records = chains(view.stream_segments).get(partition, {}).values()
        return _put(_bare(record) for record in records if record.snapshot_url or record.checkpoint is not None)

    return mutate(metastore, table, decide)


def snapshot_urls(records: Iterable[StreamSegmentRecord]) -> set[str]:
    """Return the URLs of the snapshots that records name."""
    return {record.snapshot_url for record in records if record.snapshot_url}


def _fits(records: Mapping[int, StreamSegmentRecord], taken: StoredCheckpoint) -> bool:
    end = records.get(taken.sequence)
    if end is None or end.is_open or end.key_text != taken.key:
        return False
    if any(record.checkpoint is not None and sequence > taken.sequence for sequence, record in records.items()):
        return False
    if not is_kept(records):
        return False
    return all(record.key_text in taken.urls for record in sealed_until(records, taken.sequence))


def _named(record: StreamSegmentRecord, taken: StoredCheckpoint) -> StreamSegmentRecord:
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
    stripped = tuple(records)
    return [PutSegments(stripped, {record.name: record.crc for record in stripped})] if stripped else []
