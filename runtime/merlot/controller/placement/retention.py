"""Which segments are too old to keep. Pure: records and a clock in, keys out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from merlot.cluster.consuming.merged import names_under_way
from merlot.cluster.consuming.partitions import chains
from merlot.cluster.records import SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.boundary import BoundaryRule, Cut, cut
from merlot.cluster.segments.parts import is_of_stream
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import is_held
from merlot.ids import SegmentKey
from merlot.spec.table import TableSpec

FOLLOWED_MS: Final = 15 * 60 * 1000
"""Brokers wait for segments five minutes at most."""


def expired(segments: Iterable[SegmentRecord], retention_ms: int | None, now_ms: int) -> tuple[SegmentKey, ...]:
    """Keys of the segments whose newest row, before any merge rounded its time, is older than `retention_ms`, by name.

    A segment without a known end time is never expired, nor is anything of a table without retention.
    """
    if retention_ms is None:
        return ()
    oldest_ms = now_ms - retention_ms
    old = (segment for segment in segments if segment.newest_ms is not None and segment.newest_ms < oldest_ms)
    return tuple(sorted(segment.key for segment in old))


def taken_over(view: TableView, spec: TableSpec, now_ms: int) -> tuple[SegmentKey, ...]:
    """Keys of a hybrid table's stream segments that batches answer for, every row of them, and that are older than it
    keeps such. Brokers that have not followed the boundary's last move still need them: none goes soon after it."""
    hybrid, rule, known_ms = spec.ingestion.time_boundary, BoundaryRule.of(spec), view.root.time_boundary_ms
    if hybrid is None or rule is None or known_ms is None:
        return ()
    if now_ms - view.root.time_boundary_moved_ms < FOLLOWED_MS:
        return ()
    boundary_ms = rule.lowered(known_ms, view.visible.values(), now_ms)
    of_stream = [one for one in removable(view) if is_of_stream(one) and cut(one, boundary_ms) is Cut.HIDDEN]
    return expired(of_stream, hybrid.stream_retention_ms, now_ms)


def known_without(view: TableView, old: Iterable[SegmentKey]) -> tuple[SegmentKey, ...]:
    """Return the segments of `old` whose removal brings no replaced row back.

    In an upsert table's partition this leaves out the segment at whose end the checkpoint was taken, all later ones,
    and the members of an unfinished merge.
    """
    kept = {
        record.key
        for chain in chains(one for one in view.stream_segments if one.upsert).values()
        for record in chain.values()
        if record.sequence >= _told_until(chain)
    }
    kept |= {view.segments[name].key for name in names_under_way(view.stream_segments)}
    return tuple(key for key in old if key not in kept)


def _told_until(chain: Mapping[int, StreamSegmentRecord]) -> int:
    """The last segment of the partition's checkpoint; on disks of servers alone it is that of the last commit."""
    named = [sequence for sequence, one in chain.items() if one.checkpoint is not None]
    sealed = [sequence for sequence, one in chain.items() if not one.is_open]
    return max(named or sealed, default=0)


def removable(view: TableView) -> list[SegmentRecord]:
    """Segments that are part of the table and needed by no replacement: what may go by its age."""
    return [record for record in view.visible.values() if not is_held(record, view.lineage)]
