"""Which segments of a table go when a batch brings the same rows under another partitioning. Pure.

The rows of a day belong together whatever their partition: a batch that brings them as the table divides them now takes
the place of all segments that hold them as it divided them before. The rules for what a batch may replace judge them
together (`coverage`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.batch_names import BatchSegment
from merlot.cluster.segments.republish import PushedAgain
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import Visibility, visibility
from merlot.errors import InvalidInputError
from merlot.ids import RawTableName, SegmentPart, raw_name

DAY_CHARS: Final = len("_2013-01-31")


@dataclass(frozen=True, slots=True)
class Change:
    """Rows whose division changes."""

    gone: Sequence[BatchSegment]
    """Visible segments under an older partitioning."""
    new: Sequence[BatchSegment]
    """Segments of the same rows that a request brings."""

    def without(self, names: Collection[str]) -> list[SegmentRecord]:
        """Return the segments that go, but for these."""
        return [one.record for one in self.gone if one.record.name not in names]

    @property
    def together(self) -> Mapping[str, str]:
        """Name of the rows by that of a segment: the segments of the same rows are judged together."""
        return {one.record.name: one.rows for one in (*self.gone, *self.new)}

    @property
    def pushes(self) -> Mapping[str, int]:
        """When the rows were first published, by the families of the new segments."""
        first: dict[str, int] = {}
        for one in self.gone:
            first[one.rows] = min(one.record.push_time_ms, first.get(one.rows, one.record.push_time_ms))
        return {SegmentPart.of(one.record.name).family: first[one.rows] for one in self.new}


@dataclass(frozen=True, slots=True)
class Partitionings:
    """The rows that a request brings, and their divisions."""

    table: RawTableName
    brought: Mapping[str, tuple[BatchSegment, ...]]
    """Segments by the name of their rows."""

    @classmethod
    def of(cls, view: TableView, records: Iterable[SegmentRecord]) -> Partitionings:
        """InvalidInputError if a request brings the same rows under two partitionings."""
        table = raw_name(view.table)
        brought: dict[str, tuple[BatchSegment, ...]] = {}
        for record in records:
            one = BatchSegment.of(table, record)
            if one is not None:
                before = brought.get(one.rows, ())
                if before and one.division.is_other(before[0].division):
                    raise InvalidInputError(
                        f"the same rows are published twice, under two partitionings segment={before[0].record.name} "
                        f"other={record.name}"
                    )
                brought[one.rows] = (*before, one)
        return cls(table, brought)

    @property
    def other_names(self) -> list[str]:
        """Names under which merged segments remember rows of these that were divided otherwise."""
        return [name for segments in self.brought.values() for name in (segments[0].rows, segments[0].mark)]

    def change(self, view: TableView, again: PushedAgain) -> Change:
        """Return what these rows change. MergedBeforeError if rows of them stay in merged segments as they were divided
        before."""
        gone = []
        for one in self._divided_otherwise(view):
            state = visibility(one.record, view.lineage)
            if state is Visibility.REPLACED:
                again.check_other_division(one.record)
            elif state is Visibility.VISIBLE:
                gone.append(one)
        for segments in self.brought.values():
            again.check_partitioning(segments[0])
        changed = {one.rows for one in gone}
        return Change(gone, [one for rows in changed for one in self.brought[rows]])

    def _divided_otherwise(self, view: TableView) -> list[BatchSegment]:
        """Segments of these rows under another partitioning, in the order of names."""
        if not self.brought:
            return []
        size = len(self.table) + DAY_CHARS
        heads = {rows[:size] for rows in self.brought}
        are_by_day = all(segments[0].day is not None for segments in self.brought.values())
        named = (record for name, record in view.segments.items() if not are_by_day or name[:size] in heads)
        segments = (BatchSegment.of(self.table, record) for record in named)
        found = [one for one in segments if one is not None and self._is_divided_otherwise(one)]
        return sorted(found, key=lambda one: one.record.name)

    def _is_divided_otherwise(self, one: BatchSegment) -> bool:
        brought = self.brought.get(one.rows)
        return brought is not None and brought[0].division.is_other(one.division)
