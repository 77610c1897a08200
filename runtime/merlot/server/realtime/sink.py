"""Where a partition's rows go: into its consuming segment, and through whoever has to know of every row, as upserts do.

One sink per partition. All calls come on the partition's consuming thread, in the order of the stream. Rows of one
message are never in two segments.
"""

from __future__ import annotations

from typing import Protocol

from merlot.server.realtime.intake import Batch
from merlot.server.realtime.line import Line, Part


class RowSink(Protocol):
    """Told of every row before readers see it, and of whatever becomes of it."""

    def may_begin(self) -> bool:
        """Whether consumption may start; asked again and again until it may."""

    def settle(self) -> None:
        """Do what could not be done when it was told; called again and again. Raises MerlotError if it still cannot."""

    def append(self, part: Part, batch: Batch, now_ms: int) -> None:
        """Add a batch to `part.rows`, behind its `num_docs` docs: as it is, changed, or fewer rows, but always up to
        the batch's `next_offset`. Readers see the rows once `part.rows.append` has returned."""

    def on_line(self, before: Line, after: Line) -> None:
        """The partition's line is about to change, in one of these ways or several:

        - a part is new: opened empty, or the tail of the part before it, which has got its end. Doc i of a tail is doc
          `num_docs` + i of that part, whose own docs end there;
        - a part gets its name, when its segment begins;
        - a part gets its `key`, when its segment is committed;
        - a part's rows are gone and `loaded_at` is set: from now on the sealed file answers in their place;
        - a part is gone: nobody asks for it as `name@0` any more, or it was read by settings that no longer count.
        """

    def close(self) -> None:
        """The partition is consumed no more."""


class PlainSink:
    """Rows as they come."""

    def may_begin(self) -> bool:
        return True

    def settle(self) -> None:
        """Nothing is left to do."""

    def append(self, part: Part, batch: Batch, now_ms: int) -> None:
        assert part.rows is not None
        batch.append_to(part.rows, now_ms)

    def on_line(self, before: Line, after: Line) -> None:
        """Nothing depends on it."""

    def close(self) -> None:
        """Holds nothing."""
