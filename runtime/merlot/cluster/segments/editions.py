"""Editions of an upsert table of batches: which segments a partition consists of, by one name and version. Pure.

Which rows of a partition are valid follows from the set of its segments alone. So that set has a key as a segment has,
`upsert/3@<digest>`: a server says by it that it knows which docs are valid, a broker asks by it for the docs that are,
whichever of the segments its query needs. No file has such a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final

from merlot.cluster.records import SegmentRecord
from merlot.errors import InvalidInputError
from merlot.spec.indexing import PartitioningSpec
from merlot.spec.table import TableSpec

PREFIX: Final = "upsert/"
"""A segment's name has no slash."""


@dataclass(frozen=True)
class Edition:
    """A partition with the segments that it has, in the order in which their rows replace each other."""

    partition: int
    members: tuple[SegmentRecord, ...]

    @property
    def name(self) -> str:
        """The same for all editions of the partition."""
        return f"{PREFIX}{self.partition}"

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Keys of the members, in order."""
        return tuple(record.key_text for record in self.members)

    @cached_property
    def record(self) -> SegmentRecord:
        """As brokers route it: it has no rows of its own, and goes where its members go."""
        digest = blake2b("\n".join(self.keys).encode(), digest_size=8).digest()
        return SegmentRecord(
            name=self.name,
            crc=int.from_bytes(digest) >> 1 | 1,
            size_bytes=0,
            url="",
            total_docs=0,
            partitions=self.members[0].partitions,
            push_time_ms=max(max(one.push_time_ms, one.refresh_time_ms) for one in self.members),
        )

    @property
    def key(self) -> str:
        """Its name and version."""
        return self.record.key_text


def is_edition(key: str) -> bool:
    """Whether a key, or a name, is that of an edition."""
    return key.startswith(PREFIX)


def partitioning_of(spec: TableSpec) -> PartitioningSpec | None:
    """By what the partitions of an upsert table of batches are told apart; None of any other table."""
    return spec.partitioning if spec.upsert is not None and spec.ingestion.stream is None else None


def editions_of(records: Iterable[SegmentRecord], partitioning: PartitioningSpec) -> dict[str, Edition]:
    """The edition of each partition, by name. Segments without the one partition that is declared are in none: nobody
    can say which rows theirs replace."""
    found: dict[int, list[SegmentRecord]] = {}
    for record in records:
        partition = partition_of(record, partitioning)
        if partition is not None:
            found.setdefault(partition, []).append(record)
    editions = (Edition(partition, tuple(sorted(members, key=_place))) for partition, members in sorted(found.items()))
    return {edition.name: edition for edition in editions}


def partition_of(record: SegmentRecord, partitioning: PartitioningSpec) -> int | None:
    """The partition that all rows of a segment are in; None if it says none, several, or one of another function."""
    ((column, function),) = partitioning.columns.items()
    held = record.partitions.get(column)
    if held is None or len(record.partitions) != 1 or len(held.partitions) != 1:
        return None
    is_declared = (
        held.function_name == function.function_name
        and held.num_partitions == function.num_partitions
        and (held.function_config or {}) == function.function_config
    )
    return held.partitions[0] if is_declared else None


def check_partitions(records: Iterable[SegmentRecord], partitioning: PartitioningSpec) -> None:
    """Refuse segments whose rows would not meet those of the same keys."""
    for record in records:
        if partition_of(record, partitioning) is None:
            ((column, function),) = partitioning.columns.items()
            raise InvalidInputError(
                "spec.partitioning: a segment of an upsert table must hold one partition "
                f"segment={record.name} column={column} "
                f"function={function.function_name} partitions={function.num_partitions} holds={_said(record)}"
            )


def _said(record: SegmentRecord) -> str:
    told = (
        f"{column}:{held.function_name}/{held.num_partitions}:{list(held.partitions[:8])}"
        for column, held in record.partitions.items()
    )
    return ", ".join(told) or "nothing that is known"


def _place(record: SegmentRecord) -> tuple[int, str]:
    """Of rows that tie, the one of the segment that was published later counts. A segment that is replaced keeps its
    place."""
    return record.push_time_ms, record.name
