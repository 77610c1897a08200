"""Which segments are too old to keep. Pure: records and a clock in, keys out."""

from __future__ import annotations

from collections.abc import Iterable

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import is_held
from merlot.ids import SegmentKey


def expired(segments: Iterable[SegmentRecord], retention_ms: int | None, now_ms: int) -> tuple[SegmentKey, ...]:
    """Keys of the segments whose newest row, before any merge rounded its time, is older than `retention_ms`, by name.

    A segment without a known end time is never expired, nor is anything of a table without retention.
    """
    if retention_ms is None:
        return ()
    oldest_ms = now_ms - retention_ms
    old = (segment for segment in segments if segment.newest_ms is not None and segment.newest_ms < oldest_ms)
    return tuple(sorted(segment.key for segment in old))


def removable(view: TableView) -> list[SegmentRecord]:
    """Segments that are part of the table and needed by no replacement: what may go by its age."""
    return [record for record in view.visible.values() if not is_held(record, view.lineage)]
