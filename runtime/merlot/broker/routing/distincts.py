"""Upper bounds for the number of groups of a table's rows, by the distinct values that segments' records count."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from merlot.broker.routing.routes import RoutedSegment, RoutingSnapshot
from merlot.cluster.distincts import DIGITS, positions
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.boundary import TimeSplit
from merlot.cluster.segments.editions import is_edition

UNKNOWN: Final = 63
"""Exponent that stands for an unknown number: then each row may be a group."""
_EXPONENTS: Final = np.full(256, UNKNOWN, np.uint8)
_EXPONENTS[np.frombuffer(DIGITS.encode(), np.uint8)] = np.arange(len(DIGITS), dtype=np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class _Alike:
    """Segments with the same columns."""

    docs: NDArray[np.int64]
    positions: Mapping[str, int]
    exponents: NDArray[np.uint8]
    """By segment and position of the column."""

    @classmethod
    def of(cls, columns: str, records: Sequence[SegmentRecord]) -> _Alike:
        docs = np.array([max(record.total_docs, 0) for record in records], np.int64)
        places = positions(columns)
        texts = "".join(record.distincts for record in records).encode() if places else b""
        return cls(docs, places, _EXPONENTS[np.frombuffer(texts, np.uint8)].reshape(len(records), len(places)))

    def num_groups(self, columns: Collection[str]) -> int:
        exponents = np.zeros(len(self.docs), np.int64)
        for column in columns:
            position = self.positions.get(column)
            exponents += UNKNOWN if position is None else self.exponents[:, position]
        groups = np.left_shift(np.int64(1), np.minimum(exponents, UNKNOWN - 1))
        return int(np.minimum(groups, self.docs).sum())


@dataclass(frozen=True, slots=True, eq=False)
class TableDistincts:
    """Docs of segments, and the exponents of their columns' numbers of distinct values."""

    parts: tuple[_Alike, ...] = field(repr=False)
    records: Sequence[SegmentRecord] = field(repr=False)

    @classmethod
    def of(cls, records: Sequence[SegmentRecord]) -> TableDistincts:
        """Return what records say."""
        alike: dict[str, list[SegmentRecord]] = {}
        for record in records:
            is_known = len(record.distincts) == len(positions(record.columns)) and record.distincts.isascii()
            alike.setdefault(record.columns if is_known else "", []).append(record)
        return cls(tuple(_Alike.of(columns, same) for columns, same in alike.items()), records)

    @classmethod
    def of_snapshot(cls, snapshot: RoutingSnapshot, previous: TableDistincts | None = None) -> TableDistincts:
        """Return what the records of a snapshot's sealed segments say that queries see; `previous` if those are the
        same."""
        records = [segment.record for segment in snapshot.segments.values() if _is_counted(segment)]
        return previous if previous is not None and are_same_records(previous.records, records) else cls.of(records)

    @property
    def num_docs(self) -> int:
        """Docs of all segments."""
        return sum(int(part.docs.sum()) for part in self.parts)

    def num_groups(self, columns: Collection[str]) -> int:
        """Return the most groups of all segments together, if none of them shares a group with another."""
        return sum(part.num_groups(columns) for part in self.parts)


def are_same_records(before: Sequence[SegmentRecord | None], after: Sequence[SegmentRecord | None]) -> bool:
    """Return whether these are the very records, so that what was made of them need not be made anew."""
    return len(before) == len(after) and all(old is new for old, new in zip(before, after, strict=True))


def _is_counted(segment: RoutedSegment) -> bool:
    return segment.is_known and not is_edition(segment.key) and segment.time_split is not TimeSplit.HIDDEN
