"""Segments that are pushed again after others replaced them: their rows are still part of the table, or they are free
to come back, or they are refused. Pure.

During a replacement's grace period the records of its inputs still exist, hidden. Later, merged segments remember their
origins (`origins`). A request that removes all segments that a segment was merged into, as a batch for a whole window
does, brings the segment back. A request that removes only some of them would lose rows, or count them twice, and is
refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from merlot.cluster.records import LineageState, SegmentRecord
from merlot.cluster.segments.batch_names import BatchSegment
from merlot.cluster.segments.origins import NOT_WHOLE, Origin, divided_name, origins
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import Visibility, visibility
from merlot.errors import InvalidInputError
from merlot.ids import SegmentPart


class MergedBeforeError(InvalidInputError):
    """Error: other segments hold only a part of the rows of a segment that is pushed again, or rows of another version
    of it. A retry fails too."""


@dataclass(frozen=True, slots=True)
class _Successors:
    """Segments that replaced one input, by one completed replacement after another."""

    ends: frozenset[str]
    """Names of the segments that hold the input's rows and are not replaced themselves."""
    entries: frozenset[str]
    """Entries of the replacements that lead from the input to `ends`."""
    is_complete: bool
    """True if no output of these replacements was removed since."""


class Republished:
    """Segments named in a request that are not visible, but whose rows may be part of the table."""

    def __init__(
        self, view: TableView, names: Collection[str], leaving: Collection[str], other_names: Collection[str] = ()
    ) -> None:
        """`names`: segments that the request pushes. `leaving`: segments that it removes. `other_names`: names of the
        same rows under another division (`Partitionings.other_names`)."""
        self._view = view
        self._leaving = frozenset(leaving)
        families = {SegmentPart.of(name).family for name in names}
        absent = [name for name in {*names, *families, *other_names} if view.segment(name) is None]
        hidden = [record for name in names if (record := view.segment(name)) is not None and self._is_replaced(record)]
        unseen = [*absent, *(record.name for record in hidden)]
        self._origins = origins(view.segments.values(), [*unseen, *map(divided_name, {*families, *other_names})])
        self._outputs = _outputs(view) if hidden else None
        self._successors = {record.name: self._follow(record) for record in hidden}

    def entries_to_forget(self, record: SegmentRecord) -> frozenset[str]:
        """Return the entries that hide the segment, if the request removes all segments that hold its rows now. Once
        these entries are forgotten, the segment is free to come back. Return none if it is no input, or stays
        replaced."""
        successors = self._successors.get(record.name)
        return successors.entries if successors is not None and not successors.ends - self._leaving else frozenset()

    def check_hidden(self, record: SegmentRecord) -> None:
        """Check an input that stays replaced: raise MergedBeforeError if some of the segments that replaced it are
        removed by this request, or were removed before."""
        successors = self._successors.get(record.name)
        if successors is not None and (successors.ends & self._leaving or not successors.is_complete):
            raise _partly_error(record, min(successors.ends))

    def check_other_division(self, record: SegmentRecord) -> None:
        """Check a hidden input whose rows are pushed again in other parts: raise MergedBeforeError unless the request
        removes all segments that replaced it."""
        stays = self._follow(record).ends - self._leaving
        if stays:
            raise _divided_error(record.name, min(stays))

    def check_division(self, family: str, count: int) -> None:
        """Raise MergedBeforeError if merged segments hold a family's rows from another number of parts than `count`.

        The records of those parts are gone."""
        divided = self._origins.get(divided_name(family))
        other = divided if divided is not None and divided.crc != count else None
        if other is None and count > 1:
            other = self._origins.get(family)
        if other is not None and (stays := other.holders - self._leaving):
            raise _divided_error(family, min(stays))

    def check_partitioning(self, segment: BatchSegment) -> None:
        """Raise MergedBeforeError if merged segments hold the segment's rows from another partitioning, and the records
        of its segments are gone."""
        origin = self._origins.get(segment.mark)
        if segment.division.is_partitioned:
            if origin is not None and origin.crc in (NOT_WHOLE, segment.division.crc):
                origin = None
            origin = origin or self._origins.get(segment.rows) or self._origins.get(divided_name(segment.rows))
        if origin is not None and (stays := origin.holders - self._leaving):
            raise _divided_error(segment.record.name, min(stays))

    def is_merged(self, record: SegmentRecord) -> bool:
        """Return True if other segments hold all rows of a segment whose record is gone.

        Raise MergedBeforeError if they hold only a part of the rows, or rows of another version."""
        origin: Origin | None = self._origins.get(record.name)
        if origin is None or not origin.holders - self._leaving:
            return False
        if origin.holders & self._leaving:
            raise _partly_error(record, min(origin.holders))
        if not origin.is_whole(record.crc):
            raise MergedBeforeError(
                f"segment was merged or backfilled before, and its rows would count twice segment={record.name} "
                f"now_in={min(origin.holders)}; replace its time instead: merlot backfill"
            )
        return True

    def _follow(self, record: SegmentRecord) -> _Successors:
        if self._outputs is None:
            self._outputs = _outputs(self._view)
        successors = _follow(record.replaced_by, self._view, self._outputs)
        origin = self._origins.get(record.name)  # of a version that was pushed over an output
        return successors if origin is None else replace(successors, ends=successors.ends | origin.holders)

    def _is_replaced(self, record: SegmentRecord) -> bool:
        return visibility(record, self._view.lineage) is Visibility.REPLACED


def _partly_error(record: SegmentRecord, holder: str) -> MergedBeforeError:
    return MergedBeforeError(
        f"segment was merged or backfilled before, and a part of what holds its rows stays segment={record.name} "
        f"now_in={holder}; replace its time instead: merlot backfill"
    )


def _divided_error(name: str, holder: str) -> MergedBeforeError:
    return MergedBeforeError(
        "rows were merged or backfilled before as segments that were divided otherwise, and would count twice; set "
        "maxRowsPerSegment and partitioning as they were, or replace their time: merlot backfill "
        f"segment={name} now_in={holder}"
    )


def _outputs(view: TableView) -> dict[str, list[SegmentRecord]]:
    """Return the outputs of the table's replacements, by entry."""
    outputs: dict[str, list[SegmentRecord]] = {}
    for record in view.segments.values():
        if record.replaces in view.lineage:
            outputs.setdefault(record.replaces, []).append(record)
    return outputs


def _follow(first: str, view: TableView, outputs: dict[str, list[SegmentRecord]]) -> _Successors:
    entries, ends, is_complete = set[str](), set[str](), True
    pending = [first]
    while pending:
        entry = pending.pop()
        if entry in entries:
            continue
        entries.add(entry)
        records = outputs.get(entry, [])
        is_complete &= len(records) == view.lineage[entry].num_to
        for record in records:
            next_mark = view.lineage.get(record.replaced_by)
            if next_mark is not None and next_mark.state is LineageState.COMPLETED:
                pending.append(record.replaced_by)
            else:
                ends.add(record.name)
    return _Successors(frozenset(ends), frozenset(entries), is_complete)
