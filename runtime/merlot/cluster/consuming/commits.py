"""Apply the transactions to the metastore. Calls block; any thread may call.

Each transaction is one swap of the table's root. A crash before the swap leaves nothing visible. A crash after it
leaves nothing to repair. Repeating a transaction is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from merlot.cluster.consuming import merges, transactions
from merlot.cluster.consuming.merges import Merged
from merlot.cluster.consuming.partitions import stream_segment
from merlot.cluster.consuming.transactions import End, Rewritten, SealedSegment
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId, SegmentKey, TableName
from merlot.metastore.protocol import Check, Metastore


class CommitOutcome(StrEnum):
    """Outcome of the commit of a sealed segment."""

    COMMITTED = "COMMITTED"
    """The segment is DONE with exactly the sealed content, in the file of the first replica that committed."""
    OTHER = "OTHER"
    """The segment is DONE with the other content of another replica, which counts."""
    GONE = "GONE"
    """The segment had no rows, or was removed or merged since."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Outcome of a commit, and the view that has it."""

    outcome: CommitOutcome
    view: TableView
    record: StreamSegmentRecord | None

    def took(self, url: str) -> bool:
        """Return True if the segment has this file; if not, its uploader may delete it."""
        return self.record is not None and self.record.url == url


def propose_end(metastore: Metastore, table: TableName, end: End, *, previous: TableView | None = None) -> TableView:
    """Agree on a segment's end; return the view after it, with the end that holds."""
    return mutate(metastore, table, lambda view: transactions.propose_end(view, end), previous=previous)


def replace_sealer(
    metastore: Metastore, table: TableName, segment: str, *, old: str, new: InstanceId, now_ms: int
) -> TableView:
    """Take over making the file; return the view after it, whose record names the present sealer."""
    return mutate(
        metastore,
        table,
        lambda view: transactions.replace_sealer(view, segment, old=old, new=new, now_ms=now_ms),
    )


def rewrite_segment(metastore: Metastore, table: TableName, rewritten: Rewritten, fence: Check) -> TableView:
    """Replace a sealed segment's file, or remove the segment; return the view after it. Nothing happens if a later
    checkpoint was named meanwhile.

    Raise PreconditionError if the segment has changed, FileCondemnedError if the file is about to be deleted."""
    return mutate(metastore, table, lambda view: transactions.rewrite(view, rewritten), fence)


def note_staying(metastore: Metastore, table: TableName, key: SegmentKey, num_staying: int, fence: Check) -> None:
    """Record that `num_staying` rows of a segment are invalid and cannot be removed, so that it is not tried again."""
    mutate(metastore, table, lambda view: transactions.note_staying(view, key, num_staying), fence)


def commit_segment(
    metastore: Metastore, table: TableName, sealed: SealedSegment, *, previous: TableView | None = None
) -> Committed:
    """Make the uploaded file the segment's, and open the next segment.

    Raise PreconditionError if the agreed end is another one, FileCondemnedError if the file is about to be deleted."""
    view = mutate(metastore, table, lambda view: transactions.commit(view, sealed), previous=previous)
    record = stream_segment(view, sealed.segment)
    if record is None:
        return Committed(CommitOutcome.GONE, view, None)
    is_same = sealed.file is not None and record.crc == sealed.file.crc
    return Committed(CommitOutcome.COMMITTED if is_same else CommitOutcome.OTHER, view, record)


def merge_segments(metastore: Metastore, table: TableName, merged: Merged, fence: Check) -> TableView:
    """Replace the last segment's file by a file with the rows of several segments; return the view after it.

    Raise PreconditionError if one of these segments has changed, FileCondemnedError if the file is about to be
    deleted."""
    return mutate(metastore, table, lambda view: merges.merge(view, merged), fence)


def finish_merge(metastore: Metastore, table: TableName, key: SegmentKey, fence: Check) -> None:
    """Remove the segments whose rows this segment has, now that every server answers by it."""
    mutate(metastore, table, lambda view: merges.finish(view, key), fence)
