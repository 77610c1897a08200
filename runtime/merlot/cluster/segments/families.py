"""Families: segments that are parts of the same rows, such as a day's. Find those that a request replaces. Pure.

A batch divides rows that are too many for a segment (`SegmentPart`). If it divides them otherwise than the table has
them, since there are more rows or the limit has changed, no part has its old name. It must then bring all parts, and
those of the old division go in the same write. Parts of the same division replace each other by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.republish import Republished
from merlot.cluster.segments.view import TableView
from merlot.cluster.segments.visibility import Visibility, visibility
from merlot.errors import InvalidInputError
from merlot.ids import PART_MARK, SegmentPart


@dataclass(frozen=True, slots=True)
class Families:
    """Families that a request brings parts of, by name."""

    counts: Mapping[str, int]
    """Number of parts of each family."""
    numbers: Mapping[str, frozenset[int]]
    """Numbers of the parts that the request brings."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Families:
        """Return the families of some segments; raise InvalidInputError for parts of two divisions of the same rows."""
        counts: dict[str, int] = {}
        numbers: dict[str, set[int]] = {}
        for part in map(SegmentPart.of, sorted(names)):
            if counts.setdefault(part.family, part.count) != part.count:
                raise InvalidInputError(
                    f"the same rows are published twice, in {counts[part.family]} parts and in {part.count} "
                    f"segment={part.family}"
                )
            numbers.setdefault(part.family, set()).add(part.number)
        return cls(counts, {family: frozenset(present) for family, present in numbers.items()})

    def staying(self, view: TableView, going: Collection[str]) -> list[SegmentRecord]:
        """Return the visible parts of the families that the request leaves as they are."""
        families = {family for family, count in self.counts.items() if count > 1}
        return [
            record
            for name, record in view.visible.items()
            if PART_MARK in name and name not in going and SegmentPart.of(name).family in families
        ]

    def divided_otherwise(self, view: TableView) -> list[SegmentRecord]:
        """Return the table's segments that are parts of another division, in the order of names."""
        named = (view.segment(family) for family in self.counts)
        whole = [record for record in named if record is not None]
        parts = [record for record in view.segments.values() if PART_MARK in record.name]
        by_name = {record.name: record for record in (*whole, *parts)}
        return [by_name[name] for name in sorted(by_name) if self._is_of_other(SegmentPart.of(name))]

    def leaving(self, view: TableView, again: Republished, *, needs_all: bool) -> list[SegmentRecord]:
        """Return the visible segments that go, since the request brings all of their rows in other parts.

        Raise InvalidInputError if it brings only some of the parts and `needs_all`, or if merged segments hold rows of
        the old division."""
        going = []
        for record in self.divided_otherwise(view):
            state = visibility(record, view.lineage)
            if state is Visibility.REPLACED:
                again.check_other_division(record)
            elif state is Visibility.VISIBLE:
                if needs_all:
                    self._check_complete(record)
                going.append(record)
        for family, count in self.counts.items():
            again.check_division(family, count)
        return going

    def _is_of_other(self, part: SegmentPart) -> bool:
        return self.counts.get(part.family, part.count) != part.count

    def _check_complete(self, record: SegmentRecord) -> None:
        family = SegmentPart.of(record.name).family
        got, count = len(self.numbers[family]), self.counts[family]
        if got != count:
            raise InvalidInputError(
                f"the table has these rows in other parts, and {got} of {count} new ones cannot take their place "
                f"segment={record.name}; publish all parts in one request"
            )


def newest_divisions(modified_ms: Mapping[str, int]) -> frozenset[str]:
    """Return the segments of each family's newest division, preferring complete ones: a job that broke off leaves an
    incomplete one. `modified_ms`: when each segment's file was written, by the segment's name."""
    divisions: dict[str, dict[int, list[str]]] = {}
    for name in modified_ms:
        part = SegmentPart.of(name)
        divisions.setdefault(part.family, {}).setdefault(part.count, []).append(name)
    chosen: list[str] = []
    for by_count in divisions.values():
        ranked = [
            (len(names) == count, max(modified_ms[name] for name in names), count) for count, names in by_count.items()
        ]
        chosen += by_count[max(ranked)[-1]]
    return frozenset(chosen)


def pushes_of(records: Iterable[SegmentRecord]) -> Mapping[str, int]:
    """Return when rows were first published, by their family."""
    pushes: dict[str, int] = {}
    for record in records:
        family = SegmentPart.of(record.name).family
        pushes[family] = min(record.push_time_ms, pushes.get(family, record.push_time_ms))
    return pushes
