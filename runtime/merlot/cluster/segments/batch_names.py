"""Read from the name of a batch's segment which rows it has a part of, and how these are divided. Pure.

A batch names its segments by day and partition (`ingest.grouping`). If a table's partitioning changes, the segments of
a day get other names, or the same names for other rows. So a segment's record says by which functions it was made.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from merlot.cluster.records import PartitionRecord, SegmentRecord
from merlot.ids import PART_MARK, RawTableName, SegmentPart
from merlot.spec.indexing import PartitionEnforcement, PartitionFunctionSpec, PartitioningSpec

_REST: Final = re.compile(
    r"(?P<day>_\d{4}-\d{2}-\d{2})?(?:_p(?P<partitions>\d+(?:_\d+)*)|(?P<whole>_0(?!\d)))?(?P<suffix>.*)", re.DOTALL
)
"""Pattern of the rest of a batch segment's name, behind the table."""

Functions = tuple[tuple[str, str, int, tuple[tuple[str, str], ...]], ...]
"""Column, function, number of partitions and options of each partition function, sorted."""


@dataclass(frozen=True, slots=True)
class Division:
    """Division of rows into segments: by partition or not, and by which functions, as far as a segment tells."""

    is_partitioned: bool
    functions: Functions = ()

    def is_other(self, other: Division) -> bool:
        """Return True if segments of the two divisions may share rows. Unknown functions are taken for the same."""
        if self.is_partitioned != other.is_partitioned:
            return True
        return bool(self.functions and other.functions) and self.functions != other.functions

    @property
    def crc(self) -> int:
        """Number that stands for the functions; 0 if they are unknown."""
        return zlib.crc32(repr(self.functions).encode()) if self.functions else 0

    def __str__(self) -> str:
        functions = ", ".join(f"{name}: {function} of {count}" for name, function, count, _ in self.functions)
        return functions or ("by partition" if self.is_partitioned else "(absent)")


def division_of(partitioning: PartitioningSpec | None) -> Division:
    """Return the division that a table declares. Segments of a source that is partitioned already are named by day
    alone."""
    if partitioning is None or partitioning.enforce is PartitionEnforcement.ASSERT:
        return Division(is_partitioned=False)
    return Division(is_partitioned=True, functions=_functions(partitioning.columns))


def _functions(declared: Mapping[str, PartitionFunctionSpec] | Mapping[str, PartitionRecord]) -> Functions:
    return tuple(
        sorted(
            (
                name,
                partition.function_name.lower(),
                partition.num_partitions,
                tuple(sorted((partition.function_config or {}).items())),
            )
            for name, partition in declared.items()
        )
    )


@dataclass(frozen=True, slots=True)
class BatchSegment:
    """A segment whose name has the form of a batch's."""

    record: SegmentRecord
    rows: str
    """Name of the rows that the segment has a part of: its own name without the partition."""
    mark: str
    """Name that stands for segments of these rows by partition; no segment has such a name."""
    division: Division
    day: date | None
    """First day of its rows; None if the table has no time column."""

    @classmethod
    def of(cls, table: RawTableName, record: SegmentRecord) -> BatchSegment | None:
        """Parse the segment's name; return None if no batch gives such a name."""
        family = SegmentPart.of(record.name).family
        match = _REST.fullmatch(family, len(table)) if family.startswith(table) else None
        if match is None or not any(match[name] for name in ("day", "partitions", "whole")):
            return None
        try:
            day = None if match["day"] is None else date.fromisoformat(match["day"][1:])
        except ValueError:
            return None
        is_partitioned = match["partitions"] is not None
        division = Division(is_partitioned, _functions(record.partitions) if is_partitioned else ())
        head, suffix = f"{table}{match['day'] or ''}", match["suffix"]
        return cls(record, f"{head}{suffix}", f"{head}{PART_MARK}p{suffix}", division, day)
