"""What a publish takes from a table, and whether it says that it means to. Pure.

A new version of a segment replaces the old one, since both bear the name of their day and partition: whoever pushes an
afternoon after the morning of the same day would lose the morning. So a version is taken for the whole of the old one
only if it reaches as far, has as many rows at least, and comes from the same source. Who stands for all that goes says
so: by push type REFRESH, by the names that the request replaces, or by `replace_rows`. A request without rows says it
by `replace_rows` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.rounding import instant_text
from merlot.errors import InvalidInputError

SHOWN = 3
FLAG = "--replace-rows, or replaceRows in the manifest's batch source,"


class UncoveredError(InvalidInputError):
    """Rows would go that the request does not hold, and does not say that it replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a request takes from the queries' table, and what it gives instead."""

    replaced: Mapping[str, SegmentRecord]
    """Versions that go, by name."""
    removed: Sequence[SegmentRecord]
    """Segments that go and have no new version."""
    added: Sequence[SegmentRecord]
    """New segments, and new versions of those replaced."""

    def counts(self, rows_before: int) -> RowCounts:
        """In rows; `rows_before` are the table's."""
        replaced = sum(record.total_docs for record in self.replaced.values())
        replacing = sum(record.total_docs for record in self.added if record.name in self.replaced)
        removed = sum(record.total_docs for record in self.removed)
        added = sum(record.total_docs for record in self.added)
        return RowCounts(
            before=rows_before,
            after=rows_before - replaced - removed + added,
            replaced=replaced,
            replacing=replacing,
            removed=removed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Rows of a table before a publish and after it."""

    before: int = 0
    after: int = 0
    replaced: int = 0
    """Those of the segments that were replaced."""
    replacing: int = 0
    """Those of the new versions of the same segments."""
    removed: int = 0
    """Those of the segments that were removed."""


def covers(new: SegmentRecord, old: SegmentRecord) -> bool:
    """Whether the new version may be taken for all that the old one was, and more."""
    return new.total_docs >= old.total_docs and new.source == old.source and _reaches_as_far(new, old)


def check(taken: Taken, *, num_records: int, declared: frozenset[str], replaces_all: bool) -> None:
    """UncoveredError if rows would go for which nobody stands. `declared`: names that the request replaces by itself;
    `replaces_all`: it stands for the whole table."""
    if not num_records and taken.removed:
        raise UncoveredError(
            f"a batch without rows would remove {len(taken.removed)} segments with "
            f"{sum(record.total_docs for record in taken.removed)} rows segments={_names(taken.removed)}; nothing was "
            f"published; if they shall go, say so: {FLAG} allows it"
        )
    if replaces_all:
        return
    added = {record.name: record for record in taken.added}
    partial = [
        f"{name}: {_told(old)} -> {_told(added[name])}"
        for name, old in sorted(taken.replaced.items())
        if name not in declared and not covers(added[name], old)
    ]
    if partial:
        more = f" and {len(partial) - SHOWN} more" if len(partial) > SHOWN else ""
        raise UncoveredError(
            f"the batch would replace rows that it may not hold segments={len(partial)}: "
            f"{'; '.join(partial[:SHOWN])}{more}; nothing was published; publish all rows of these days in one batch, "
            f"or, if the old ones shall go, say so: {FLAG} allows it"
        )


def _reaches_as_far(new: SegmentRecord, old: SegmentRecord) -> bool:
    if old.start_time_ms is None or old.newest_ms is None:
        return True
    if new.start_time_ms is None or new.newest_ms is None:
        return False
    return new.start_time_ms <= old.start_time_ms and old.newest_ms <= new.newest_ms


def _told(record: SegmentRecord) -> str:
    first, last = record.start_time_ms, record.newest_ms
    between = "" if first is None or last is None else f", {instant_text(first)} to {instant_text(last)}"
    source = f", of {record.source}" if record.source else ""
    return f"{record.total_docs} rows{between}{source}"


def _names(records: Sequence[SegmentRecord]) -> list[str]:
    return [record.name for record in records[:SHOWN]]
