"""The transactions applied to the metastore, each telling what the truth is after it. Block; any thread may call.

Each is one swap of the table's root. A crash before it leaves nothing that anybody sees, one after it nothing to
repair; repeating any of them is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from merlot.cluster.consuming import merges, transactions
from merlot.cluster.consuming.merges import Merged
from merlot.cluster.consuming.partitions import stream_segment
from merlot.cluster.consuming.transactions import End, Rewritten, Sealed
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId, SegmentKey, TableName
from merlot.metastore.protocol import Check, Metastore


class CommitOutcome(StrEnum):
    """What became of a segment that somebody has sealed."""

    COMMITTED = "COMMITTED"
    """The segment is DONE with the very content that was sealed; with the file of whoever came first."""
    OTHER = "OTHER"
    """It is DONE with other content, by another replica: that one counts."""
    GONE = "GONE"
    """It had no rows, or was removed since."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome, and the view in which it is so."""

    outcome: CommitOutcome
    view: TableView
    record: StreamSegmentRecord | None

    def took(self, url: str) -> bool:
        """Whether the segment has this file; else whoever uploaded it may delete it."""
        return self.record is not None and self.record.url == url


def propose_end(metastore: Metastore, table: TableName, end: End, *, previous: TableView | None = None) -> TableView:
    """Agree on a segment's end; returns the view after it, with the end that holds."""
    return mutate(metastore, table, lambda view: transactions.propose_end(view, end), previous=previous)


def replace_sealer(
    metastore: Metastore, table: TableName, segment: str, *, old: str, new: InstanceId, now_ms: int
) -> TableView:
    """Take over the making of a file; returns the view after it: the segment's sealer is who has it now."""
    return mutate(
        metastore,
        table,
        lambda view: transactions.replace_sealer(view, segment, old=old, new=new, now_ms=now_ms),
    )


def rewrite_segment(metastore: Metastore, table: TableName, rewritten: Rewritten, fence: Check) -> TableView:
    """Put another file in the place of a sealed segment's, or remove it; returns the view after it, where it has not
    happened if a later checkpoint was named meanwhile. PreconditionError if the segment is another one by now,
    FileCondemnedError if the file is about to be deleted."""
    return mutate(metastore, table, lambda view: transactions.rewrite(view, rewritten), fence)


def note_staying(metastore: Metastore, table: TableName, key: SegmentKey, num_staying: int, fence: Check) -> None:
    """Write down that so many rows of a segment are not valid, and cannot be taken out: it is not tried again."""
    mutate(metastore, table, lambda view: transactions.note_staying(view, key, num_staying), fence)


def commit_segment(
    metastore: Metastore, table: TableName, sealed: Sealed, *, previous: TableView | None = None
) -> Committed:
    """Make the uploaded file the segment, and open the next one. PreconditionError if the agreed end is another one,
    FileCondemnedError if the file is about to be deleted."""
    view = mutate(metastore, table, lambda view: transactions.commit(view, sealed), previous=previous)
    record = stream_segment(view, sealed.segment)
    if record is None:
        return Committed(CommitOutcome.GONE, view, None)
    is_same = sealed.file is not None and record.crc == sealed.file.crc
    return Committed(CommitOutcome.COMMITTED if is_same else CommitOutcome.OTHER, view, record)


def merge_segments(metastore: Metastore, table: TableName, merged: Merged, fence: Check) -> TableView:
    """Put a file with the rows of several segments in the place of the last one's; returns the view after it.
    PreconditionError if one of them is another one by now, FileCondemnedError if the file is about to be deleted."""
    return mutate(metastore, table, lambda view: merges.merge(view, merged), fence)


def finish_merge(metastore: Metastore, table: TableName, key: SegmentKey, fence: Check) -> None:
    """Remove the segments whose rows this one has, now that every server answers by it."""
    mutate(metastore, table, lambda view: merges.finish(view, key), fence)
