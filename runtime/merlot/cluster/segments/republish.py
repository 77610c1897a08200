"""Segments that are pushed again after others replaced them: they are still part of the table, free to come back, or
neither. Pure.

During a replacement's grace period its inputs exist, hidden; later, merged segments remember their origins (`origins`).
A request that removes everything that a segment was merged into, as a batch for a whole window does, brings the segment
back. A request that removes only a part of it would lose rows, or count them twice, and is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from merlot.cluster.records import LineageState, SegmentRecord
from merlot.cluster.segments.batch_names import BatchSegment
from merlot.cluster.segments.origins import NOT_WHOLE, Origin, divided_name, origins
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import Visibility, visibility
from merlot.errors import InvalidInputError
from merlot.ids import SegmentPart


class MergedBeforeError(InvalidInputError):
    """Other segments hold rows of a segment that is pushed again, in part or of another version. A retry changes
    nothing."""


@dataclass(frozen=True, slots=True)
class _Successors:
    """Segments that replaced an input of completed replacements."""

    ends: frozenset[str]
    """Segments that hold its rows and are not replaced themselves."""
    entries: frozenset[str]
    """Replacements on the way to them."""
    is_complete: bool
    """True if no output was removed since."""


class Republished:
    """Names in a request that are not visible, but may be part of the table."""

    def __init__(
        self, view: TableView, names: Collection[str], leaving: Collection[str], other_names: Collection[str] = ()
    ) -> None:
        """`other_names`: names of the same rows under another division (`Partitionings.other_names`)."""
        self._view = view
        self._leaving = frozenset(leaving)
        families = {SegmentPart.of(name).family for name in names}
        gone = [name for name in {*names, *families, *other_names} if view.segment(name) is None]
        self._merged = origins(view.segments.values(), [*gone, *map(divided_name, {*families, *other_names})])
        hidden = [record for name in names if (record := view.segment(name)) is not None and self._is_replaced(record)]
        self._outputs = _outputs(view) if hidden else None
        self._successors = {record.name: self._follow(record) for record in hidden}

    def entries_to_forget(self, record: SegmentRecord) -> frozenset[str]:
        """Return the replacements of which nothing stays: without them the segment is free to come back. Return none if
        it is not an input of any, or stays replaced."""
        successors = self._successors.get(record.name)
        return successors.entries if successors is not None and not successors.ends - self._leaving else frozenset()

    def check_hidden(self, record: SegmentRecord) -> None:
        """Check an input that stays replaced: raise MergedBeforeError if a part of the segments that replaced it goes,
        or is gone."""
        successors = self._successors.get(record.name)
        if successors is not None and (successors.ends & self._leaving or not successors.is_complete):
            raise _partly(record, min(successors.ends))

    def check_other_division(self, record: SegmentRecord) -> None:
        """Check a hidden input whose rows are pushed again in other parts: raise MergedBeforeError unless all segments
        that replaced it go."""
        stays = self._follow(record).ends - self._leaving
        if stays:
            raise _divided(record.name, min(stays))

    def check_division(self, family: str, count: int) -> None:
        """Raise MergedBeforeError if the table has a family's rows from parts of another division, whose records are
        gone."""
        in_parts = self._merged.get(divided_name(family))
        other = in_parts if in_parts is not None and in_parts.crc != count else None
        if other is None and count > 1:
            other = self._merged.get(family)
        if other is not None and (stays := other.holders - self._leaving):
            raise _divided(family, min(stays))

    def check_partitioning(self, segment: BatchSegment) -> None:
        """Raise MergedBeforeError if the table has rows of the segment from another partitioning, whose records are
        gone."""
        origin = self._merged.get(segment.mark)
        if segment.division.is_partitioned:
            if origin is not None and origin.crc in (NOT_WHOLE, segment.division.crc):
                origin = None
            origin = origin or self._merged.get(segment.rows) or self._merged.get(divided_name(segment.rows))
        if origin is not None and (stays := origin.holders - self._leaving):
            raise _divided(segment.record.name, min(stays))

    def is_merged(self, record: SegmentRecord) -> bool:
        """Return True if the table has all rows of a segment whose record is gone. Raise MergedBeforeError if it has a
        part of them, or those of another version."""
        origin: Origin | None = self._merged.get(record.name)
        if origin is None or not origin.holders - self._leaving:
            return False
        if origin.holders & self._leaving:
            raise _partly(record, min(origin.holders))
        if not origin.is_whole(record.crc):
            raise MergedBeforeError(
                f"segment was merged or backfilled before, and its rows would count twice segment={record.name} "
                f"now_in={min(origin.holders)}; replace its time instead: merlot backfill"
            )
        return True

    def _follow(self, record: SegmentRecord) -> _Successors:
        if self._outputs is None:
            self._outputs = _outputs(self._view)
        return _follow(record.replaced_by, self._view, self._outputs)

    def _is_replaced(self, record: SegmentRecord) -> bool:
        return visibility(record, self._view.lineage) is Visibility.REPLACED


def _partly(record: SegmentRecord, holder: str) -> MergedBeforeError:
    return MergedBeforeError(
        f"segment was merged or backfilled before, and a part of what holds its rows stays segment={record.name} "
        f"now_in={holder}; replace its time instead: merlot backfill"
    )


def _divided(name: str, holder: str) -> MergedBeforeError:
    return MergedBeforeError(
        "rows were merged or backfilled before as segments that were divided otherwise, and would count twice; set "
        "maxRowsPerSegment and partitioning as they were, or replace their time: merlot backfill "
        f"segment={name} now_in={holder}"
    )


def _outputs(view: TableView) -> dict[str, list[SegmentRecord]]:
    outputs: dict[str, list[SegmentRecord]] = {}
    for record in view.segments.values():
        if record.replaces in view.lineage:
            outputs.setdefault(record.replaces, []).append(record)
    return outputs


def _follow(first: str, view: TableView, outputs: dict[str, list[SegmentRecord]]) -> _Successors:
    entries, ends, is_complete = set[str](), set[str](), True
    ahead = [first]
    while ahead:
        entry = ahead.pop()
        if entry in entries:
            continue
        entries.add(entry)
        records = outputs.get(entry, [])
        is_complete &= len(records) == view.lineage[entry].num_to
        for record in records:
            after = view.lineage.get(record.replaced_by)
            if after is not None and after.state is LineageState.COMPLETED:
                ahead.append(record.replaced_by)
            else:
                ends.add(record.name)
    return _Successors(frozenset(ends), frozenset(entries), is_complete)
