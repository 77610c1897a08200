"""Choice of the segments that are too old to keep. Pure: records and a clock in, keys out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from merlot.cluster.consuming.merged import names_under_way
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.records import SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.boundary import BoundaryRule, TimeSplit, time_split
from merlot.cluster.segments.parts import is_of_stream
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import is_held
from merlot.ids import SegmentKey
from merlot.spec.table import TableSpec

FOLLOWED_MS: Final = 15 * 60 * 1000
"""Time in which all brokers follow a move of the boundary. They wait for segments for five minutes at most."""


def expired(segments: Iterable[SegmentRecord], retention_ms: int | None, now_ms: int) -> tuple[SegmentKey, ...]:
    """Return the keys of the segments whose newest row is older than `retention_ms`, by name.

    A row counts with its time before any merge rounded it. A segment without a known end time never expires, nor does
    anything of a table without retention."""
    if retention_ms is None:
        return ()
    oldest_ms = now_ms - retention_ms
    old = (segment for segment in segments if segment.newest_ms is not None and segment.newest_ms < oldest_ms)
    return tuple(sorted(segment.key for segment in old))


def covered_by_batches(view: TableView, spec: TableSpec, now_ms: int) -> tuple[SegmentKey, ...]:
    """Return the keys of a hybrid table's stream segments that batches answer for entirely and whose own retention is
    over.

    Brokers that have not followed the boundary's last move still need such segments, so none is returned soon after
    it."""
    hybrid, rule, known_ms = spec.ingestion.time_boundary, BoundaryRule.of(spec), view.root.time_boundary_ms
    if hybrid is None or rule is None or known_ms is None:
        return ()
    if now_ms - view.root.time_boundary_moved_ms < FOLLOWED_MS:
        return ()
    boundary_ms = rule.lowered(known_ms, view.visible.values(), now_ms)
    of_stream = [
        segment
        for segment in removable(view)
        if is_of_stream(segment) and time_split(segment, boundary_ms) is TimeSplit.HIDDEN
    ]
    return expired(of_stream, hybrid.stream_retention_ms, now_ms)


def safe_to_remove(view: TableView, old: Iterable[SegmentKey]) -> tuple[SegmentKey, ...]:
    """Return the segments of `old` whose removal brings no replaced row back.

    In an upsert table's partition this leaves out the last segment of the checkpoint, all later ones, and the members
    of an unfinished merge."""
    needed = {
        record.key
        for chain in chains(segment for segment in view.stream_segments if segment.upsert).values()
        for record in chain.values()
        if record.sequence >= _checkpoint_sequence(chain)
    }
    needed |= {view.segments[name].key for name in names_under_way(view.stream_segments)}
    return tuple(key for key in old if key not in needed)


def _checkpoint_sequence(chain: Mapping[int, StreamSegmentRecord]) -> int:
    """Return the sequence of the last segment in the partition's checkpoint.

    If no segment names a checkpoint, checkpoints are only on the servers' disks, and that of the last commit counts."""
    checkpointed = [sequence for sequence, segment in chain.items() if segment.checkpoint is not None]
    sealed = [sequence for sequence, segment in chain.items() if not segment.is_open]
    return max(checkpointed or sealed, default=0)


def removable(view: TableView) -> list[SegmentRecord]:
    """Return the segments that may go by their age: part of the table, and needed by no replacement."""
    return [record for record in view.visible.values() if not is_held(record, view.lineage)]
