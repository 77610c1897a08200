"""Find the segments that a batch replaces when it brings the same rows under another partitioning. Pure.

The rows of a day belong together whatever their partition. A batch that brings them under the table's present
partitioning replaces all segments that hold them under an older one. The rules for what a batch may replace judge these
segments together (`coverage`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.batch_names import BatchSegment
from merlot.cluster.segments.republish import Republished
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import Visibility, visibility
from merlot.errors import InvalidInputError
from merlot.ids import RawTableName, SegmentPart, raw_name

DAY_CHARS: Final = len("_2013-01-31")


@dataclass(frozen=True, slots=True)
class Repartitioning:
    """Rows whose partitioning changes."""

    gone: Sequence[BatchSegment]
    """Visible segments under an older partitioning."""
    new: Sequence[BatchSegment]
    """Segments of the same rows that a request brings."""

    def without(self, names: Collection[str]) -> list[SegmentRecord]:
        """Return the records of the segments that go, except those with these names."""
        return [segment.record for segment in self.gone if segment.record.name not in names]

    @property
    def together(self) -> Mapping[str, str]:
        """Name of the rows by segment name: segments of the same rows are judged together."""
        return {segment.record.name: segment.rows for segment in (*self.gone, *self.new)}

    @property
    def pushes(self) -> Mapping[str, int]:
        """Time of the rows' first publication, by family of the new segments."""
        first: dict[str, int] = {}
        for segment in self.gone:
            first[segment.rows] = min(segment.record.push_time_ms, first.get(segment.rows, segment.record.push_time_ms))
        return {SegmentPart.of(segment.record.name).family: first[segment.rows] for segment in self.new}


@dataclass(frozen=True, slots=True)
class Partitionings:
    """The rows that a request brings, and their partitionings."""

    table: RawTableName
    brought: Mapping[str, tuple[BatchSegment, ...]]
    """Segments by the name of their rows."""

    @classmethod
    def of(cls, view: TableView, records: Iterable[SegmentRecord]) -> Partitionings:
        """Group the records by their rows. Raise InvalidInputError if they bring the same rows under two
        partitionings."""
        table = raw_name(view.table)
        brought: dict[str, tuple[BatchSegment, ...]] = {}
        for record in records:
            segment = BatchSegment.of(table, record)
            if segment is not None:
                before = brought.get(segment.rows, ())
                if before and segment.division.is_other(before[0].division):
                    raise InvalidInputError(
                        f"the same rows are published twice, under two partitionings segment={before[0].record.name} "
                        f"other={record.name}"
                    )
                brought[segment.rows] = (*before, segment)
        return cls(table, brought)

    @property
    def other_names(self) -> list[str]:
        """Names under which merged segments remember these rows under another partitioning."""
        return [name for segments in self.brought.values() for name in (segments[0].rows, segments[0].mark)]

    def change(self, view: TableView, again: Republished) -> Repartitioning:
        """Return what these rows change.

        Raise MergedBeforeError if merged segments hold some of them under an older partitioning."""
        gone = []
        for segment in self._divided_otherwise(view):
            state = visibility(segment.record, view.lineage)
            if state is Visibility.REPLACED:
                again.check_other_division(segment.record)
            elif state is Visibility.VISIBLE:
                gone.append(segment)
        for segments in self.brought.values():
            again.check_partitioning(segments[0])
        changed = {segment.rows for segment in gone}
        return Repartitioning(gone, [segment for rows in changed for segment in self.brought[rows]])

    def _divided_otherwise(self, view: TableView) -> list[BatchSegment]:
        """Return the segments of these rows under another partitioning, in the order of names."""
        if not self.brought:
            return []
        size = len(self.table) + DAY_CHARS
        heads = {rows[:size] for rows in self.brought}
        are_by_day = all(segments[0].day is not None for segments in self.brought.values())
        named = (record for name, record in view.segments.items() if not are_by_day or name[:size] in heads)
        segments = (BatchSegment.of(self.table, record) for record in named)
        divided = [segment for segment in segments if segment is not None and self._is_divided_otherwise(segment)]
        return sorted(divided, key=lambda segment: segment.record.name)

    def _is_divided_otherwise(self, segment: BatchSegment) -> bool:
        brought = self.brought.get(segment.rows)
        return brought is not None and brought[0].division.is_other(segment.division)
