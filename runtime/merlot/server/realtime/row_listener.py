"""Listeners to a partition's rows, which put them into its consuming segment. An upsert table's listener has to know
of every row.

Each partition has one listener. All calls come from the partition's consuming thread, in the order of the stream. Rows
of one message are never in two segments.
"""

from __future__ import annotations

from typing import Protocol

from merlot.server.realtime.partition_log import LogPart, PartitionLog
from merlot.server.realtime.poller import RowBatch


class RowListener(Protocol):
    """Listener that hears of every row before readers see it, and of all that becomes of it."""

    def may_begin(self) -> bool:
        """Return True if consumption may start; called again and again until it may."""

    def settle(self) -> None:
        """Do what could not be done when it was due; called again and again. Raises MerlotError if it still cannot be
        done."""

    def append(self, part: LogPart, batch: RowBatch, now_ms: int) -> None:
        """Append a batch to `part.rows`, behind its `num_docs` docs: as it is, changed, or with fewer rows, but always
        up to the batch's `next_offset`. Readers see the rows once `part.rows.append` has returned."""

    def on_log_change(self, before: PartitionLog, after: PartitionLog) -> None:
        """Hear that the partition's log is about to change, in one or several of these ways:

        - a part is new: opened empty, or the tail of the part before it, which has now ended. Doc i of a tail is doc
          `num_docs` + i of that part, whose own docs end there;
        - a part gets its name, when its segment begins;
        - a part gets its `key`, when its segment is committed;
        - a part's rows are gone and `loaded_at` is set: from now on the sealed file answers in their place;
        - a part is gone: no broker asks for it as `name@0` any more, or it was read by settings that no longer count.
        """

    def stop(self) -> None:
        """Give up long steps soon: they raise UnavailableError. Any thread; `close` follows."""

    def close(self) -> None:
        """Release everything: the partition is consumed no more."""


class PlainListener:
    """Listener that appends rows as they come."""

    def may_begin(self) -> bool:
        return True

    def settle(self) -> None:
        """Do nothing: nothing is ever left to do."""

    def append(self, part: LogPart, batch: RowBatch, now_ms: int) -> None:
        assert part.rows is not None
        batch.append_to(part.rows, now_ms)

    def on_log_change(self, before: PartitionLog, after: PartitionLog) -> None:
        """Do nothing: nothing depends on the log."""

    def stop(self) -> None:
        """Do nothing: no step is long."""

    def close(self) -> None:
        """Do nothing: nothing is held."""
