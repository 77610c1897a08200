"""Compare what a publish removes with what it adds, and refuse to remove rows by accident. Pure.

A new version of a segment replaces the old one, since both bear the name of their day and partition. A push of a
day's afternoon would thus remove its morning, if that was pushed before. So a new version is accepted only if it
reaches as far in time, has at least as many rows, and comes from the same source. The parts of one day are judged
together, however it is divided (`SegmentFamily`). A request may state that the old rows are to go: by push type
REFRESH, by the names that it replaces, or by `replace_rows`. A request without rows can state it by
`replace_rows` alone.
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
    """Raised if a request would remove rows that it does not hold, without stating so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishEffect:
    """Visible segments that a request removes, and those that it adds."""

    replaced: Mapping[str, SegmentRecord]
    """Old versions, by name."""
    removed: Sequence[SegmentRecord]
    """Segments that go without a new version."""
    added: Sequence[SegmentRecord]
    """New segments, and new versions of the replaced ones."""

    def counts(self, rows_before: int) -> RowCounts:
        """Return the change in rows; `rows_before` are the table's."""
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
    """Rows of the old versions of replaced segments."""
    replacing: int = 0
    """Rows of the new versions of the same segments."""
    removed: int = 0
    """Rows of the removed segments."""


@dataclass(frozen=True, slots=True)
class SegmentFamily:
    """Segments that are judged together, such as those of a day: one segment, or all its parts."""

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
        """First and last instant; None if there are no segments, or a segment has no times."""
        first = [segment.start_time_ms for segment in self.segments if segment.start_time_ms is not None]
        last = [segment.newest_ms for segment in self.segments if segment.newest_ms is not None]
        is_known = self.segments and len(first) == len(last) == len(self.segments)
        return (min(first), max(last)) if is_known else None

    def __str__(self) -> str:
        times = self.times
        between = "" if times is None else f", {instant_text(times[0])} to {instant_text(times[1])}"
        sources = sorted(source for source in self.sources if source)
        parts = f" in {len(self.segments)} segments" if len(self.segments) > 1 else ""
        origin = f", of {' and '.join(sources)}" if sources else ""
        return f"{self.rows} rows{parts}{between}{origin}"


def covers(new: SegmentFamily, old: SegmentFamily, staying: SegmentFamily) -> bool:
    """Return True if the new segments cover the old ones: they have at least as many rows, from the same sources, and
    together with the staying segments of the family they reach as far in time."""
    return new.rows >= old.rows and new.sources == old.sources and _reaches_as_far(new, old, staying)


def check(
    effect: PublishEffect,
    *,
    num_records: int,
    declared: frozenset[str],
    replaces_all: bool,
    staying: Sequence[SegmentRecord] = (),
    together: Mapping[str, str] | None = None,
) -> None:
    """Raise UncoveredError if the request would remove rows without stating so.

    `num_records`: number of segments in the request; `declared`: names that the request replaces; `replaces_all`: it
    replaces the whole table; `staying`: other segments of the same families; `together`: name of the family by
    segment name, for segments that are judged as one family (`Partitionings.together`)."""
    if not num_records and effect.removed:
        raise UncoveredError(
            f"a batch without rows would remove {len(effect.removed)} segments with "
            f"{sum(record.total_docs for record in effect.removed)} rows segments={_names(effect.removed)}; nothing "
            f"was published; if they shall go, say so: {FLAG} allows it"
        )
    if replaces_all:
        return
    gone, added, others = (
        _families(records, together or {})
        for records in ((*effect.replaced.values(), *effect.removed), effect.added, staying)
    )
    nothing = SegmentFamily(())
    lacking = [
        f"{name}: {old} -> {added.get(name, nothing)}"
        for name, old in sorted(gone.items())
        if not declared.issuperset(segment.name for segment in old.segments)
        and not covers(added.get(name, nothing), old, others.get(name, nothing))
    ]
    if lacking:
        more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
        raise UncoveredError(
            f"the batch would replace rows that it may not hold segments={len(lacking)}: "
            f"{'; '.join(lacking[:SHOWN])}{more}; nothing was published; publish all rows of these days in one batch, "
            f"or, if the old ones shall go, say so: {FLAG} allows it"
        )


def _reaches_as_far(new: SegmentFamily, old: SegmentFamily, staying: SegmentFamily) -> bool:
    if old.times is None:
        return True
    times = [family.times for family in (new, staying) if family.segments]
    spans = [span for span in times if span is not None]
    if not new.segments or len(spans) < len(times):
        return False
    return min(first for first, _ in spans) <= old.times[0] and old.times[1] <= max(last for _, last in spans)


def _families(records: Iterable[SegmentRecord], together: Mapping[str, str]) -> dict[str, SegmentFamily]:
    by_family: dict[str, list[SegmentRecord]] = {}
    for record in records:
        family = together.get(record.name) or SegmentPart.of(record.name).family
        by_family.setdefault(family, []).append(record)
    return {name: SegmentFamily(members) for name, members in by_family.items()}


def _names(records: Sequence[SegmentRecord]) -> list[str]:
    return [record.name for record in records[:SHOWN]]
