"""What a publish takes from a table, and whether it says that it means to. Pure.

A new version of a segment replaces the old one, since both bear the name of their day and partition: whoever pushes an
afternoon after the morning of the same day would lose the morning. So a version is taken for the whole of the old one
only if it reaches as far, has as many rows at least, and comes from the same source. The parts of one day are judged
together, however it is divided (`families`). Who stands for all that goes says so: by push type REFRESH, by the names
that the request replaces, or by `replace_rows`. A request without rows says it by `replace_rows` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.rounding import instant_text
from merlot.errors import InvalidInputError
from merlot.ids import SegmentPart

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


@dataclass(frozen=True, slots=True)
class Family:
    """Segments of the same rows, such as a day's: one, or the parts of which it consists."""

    segments: Sequence[SegmentRecord]

    @property
    def rows(self) -> int:
        """Number of rows in all segments."""
        return sum(segment.total_docs for segment in self.segments)

    @property
    def sources(self) -> frozenset[str | None]:
        """Sources of the rows."""
        return frozenset(segment.source for segment in self.segments)

    @property
    def times(self) -> tuple[int, int] | None:
        """Their first and last instant; None if some segment has none."""
        first = [one.start_time_ms for one in self.segments if one.start_time_ms is not None]
        last = [one.newest_ms for one in self.segments if one.newest_ms is not None]
        is_known = self.segments and len(first) == len(last) == len(self.segments)
        return (min(first), max(last)) if is_known else None

    def __str__(self) -> str:
        times = self.times
        between = "" if times is None else f", {instant_text(times[0])} to {instant_text(times[1])}"
        sources = sorted(source for source in self.sources if source)
        parts = f" in {len(self.segments)} segments" if len(self.segments) > 1 else ""
        whence = f", of {' and '.join(sources)}" if sources else ""
        return f"{self.rows} rows{parts}{between}{whence}"


def covers(new: Family, old: Family, staying: Family) -> bool:
    """Say whether the new segments cover the old ones: at least as many rows, of the same sources, reaching as far in
    time together with the segments of the family that stay."""
    return new.rows >= old.rows and new.sources == old.sources and _reaches_as_far(new, old, staying)


def check(
    taken: Taken,
    *,
    num_records: int,
    declared: frozenset[str],
    replaces_all: bool,
    staying: Sequence[SegmentRecord] = (),
    together: Mapping[str, str] | None = None,
) -> None:
    """UncoveredError if rows would go for which nobody stands. `declared`: names that the request replaces by itself;
    `replaces_all`: it stands for the whole table; `staying`: other segments of the same families; `together`: what is
    judged as one family, by the segments' names (`Partitionings.together`)."""
    if not num_records and taken.removed:
        raise UncoveredError(
            f"a batch without rows would remove {len(taken.removed)} segments with "
            f"{sum(record.total_docs for record in taken.removed)} rows segments={_names(taken.removed)}; nothing was "
            f"published; if they shall go, say so: {FLAG} allows it"
        )
    if replaces_all:
        return
    gone, added, others = (
        _families(records, together or {})
        for records in ((*taken.replaced.values(), *taken.removed), taken.added, staying)
    )
    nothing = Family(())
    partial = [
        f"{name}: {old} -> {added.get(name, nothing)}"
        for name, old in sorted(gone.items())
        if not declared.issuperset(one.name for one in old.segments)
        and not covers(added.get(name, nothing), old, others.get(name, nothing))
    ]
    if partial:
        more = f" and {len(partial) - SHOWN} more" if len(partial) > SHOWN else ""
        raise UncoveredError(
            f"the batch would replace rows that it may not hold segments={len(partial)}: "
            f"{'; '.join(partial[:SHOWN])}{more}; nothing was published; publish all rows of these days in one batch, "
            f"or, if the old ones shall go, say so: {FLAG} allows it"
        )


def _reaches_as_far(new: Family, old: Family, staying: Family) -> bool:
    if old.times is None:
        return True
    times = [one.times for one in (new, staying) if one.segments]
    known = [one for one in times if one is not None]
    if not new.segments or len(known) < len(times):
        return False
    return min(first for first, _ in known) <= old.times[0] and old.times[1] <= max(last for _, last in known)


def _families(records: Iterable[SegmentRecord], together: Mapping[str, str]) -> dict[str, Family]:
    found: dict[str, list[SegmentRecord]] = {}
    for record in records:
        family = together.get(record.name) or SegmentPart.of(record.name).family
        found.setdefault(family, []).append(record)
    return {name: Family(members) for name, members in found.items()}


def _names(records: Sequence[SegmentRecord]) -> list[str]:
    return [record.name for record in records[:SHOWN]]
