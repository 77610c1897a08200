"""Editions of an upsert table of batches: the segments of a partition, under one name and version. Pure.

Which rows of a partition are valid follows from the set of its segments alone. So that set has a key as a segment has,
`upsert/3@<digest>`. A server reports this key once it knows which docs are valid. A broker requests the valid docs by
it, whichever of the segments its query needs. No file has such a name.
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
"""Prefix of an edition's name. A segment's name has no slash."""


@dataclass(frozen=True)
class Edition:
    """A partition with its segments, in the order in which their rows replace each other."""

    partition: int
    members: tuple[SegmentRecord, ...]

    @property
    def name(self) -> str:
        """Name that all editions of the partition share."""
        return f"{PREFIX}{self.partition}"

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Keys of the members, in order."""
        return tuple(record.key_text for record in self.members)

    @cached_property
    def record(self) -> SegmentRecord:
        """Record by which brokers route the edition: it has no rows of its own, and goes where its members go."""
        digest = blake2b("\n".join(self.keys).encode(), digest_size=8).digest()
        return SegmentRecord(
            name=self.name,
            crc=int.from_bytes(digest) >> 1 | 1,
            size_bytes=0,
            url="",
            total_docs=0,
            partitions=self.members[0].partitions,
            push_time_ms=max(max(member.push_time_ms, member.refresh_time_ms) for member in self.members),
        )

    @property
    def key(self) -> str:
        """Name and version of the edition."""
        return self.record.key_text


def is_edition(key: str) -> bool:
    """Return True if a key, or a name, is that of an edition."""
    return key.startswith(PREFIX)


def partitioning_of(spec: TableSpec) -> PartitioningSpec | None:
    """Return the partitioning of an upsert table of batches; None for any other table."""
    return spec.partitioning if spec.upsert is not None and spec.ingestion.stream is None else None


def editions_of(records: Iterable[SegmentRecord], partitioning: PartitioningSpec) -> dict[str, Edition]:
    """Return the edition of each partition, by name. Segments that do not have exactly one declared partition are in
    none: it is unknown which rows theirs replace."""
    by_partition: dict[int, list[SegmentRecord]] = {}
    for record in records:
        partition = partition_of(record, partitioning)
        if partition is not None:
            by_partition.setdefault(partition, []).append(record)
    editions = (
        Edition(partition, tuple(sorted(members, key=_place))) for partition, members in sorted(by_partition.items())
    )
    return {edition.name: edition for edition in editions}


def partition_of(record: SegmentRecord, partitioning: PartitioningSpec) -> int | None:
    """Return the partition that all rows of a segment are in; None if its record names none or several, or if
    the table declares another partition function."""
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
    """Raise InvalidInputError for segments whose rows would not meet the rows of the same keys."""
    for record in records:
        if partition_of(record, partitioning) is None:
            ((column, function),) = partitioning.columns.items()
            raise InvalidInputError(
                "spec.partitioning: a segment of an upsert table must hold one partition "
                f"segment={record.name} column={column} "
                f"function={function.function_name} partitions={function.num_partitions} holds={_held_text(record)}"
            )


def _held_text(record: SegmentRecord) -> str:
    texts = (
        f"{column}:{held.function_name}/{held.num_partitions}:{list(held.partitions[:8])}"
        for column, held in record.partitions.items()
    )
    return ", ".join(texts) or "nothing that is known"


def _place(record: SegmentRecord) -> tuple[int, str]:
    """Return the sort key of a member. Among rows that tie, that of the segment published later counts. A replaced
    segment keeps its place."""
    return record.push_time_ms, record.name
