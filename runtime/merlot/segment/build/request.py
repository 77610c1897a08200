"""What a builder is asked for and what it gives back."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from merlot.errors import InvalidInputError
from merlot.segment.metadata import CreationFacts, SegmentMetadata
from merlot.spec.indexing import IndexingSpec, PartitioningSpec
from merlot.spec.schema import FieldSpec, TableSchema


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRequest:
    """One segment: everything but `creation` and the names decides its content crc."""

    name: str
    table: str
    """Raw table name."""
    schema: TableSchema
    indexing: IndexingSpec = dataclasses.field(default_factory=IndexingSpec)
    time_column: str | None = None
    partitioning: PartitioningSpec | None = None
    creation: CreationFacts = dataclasses.field(default_factory=CreationFacts)
    leaves_out_large_trees: bool = False
    """Whether a star-tree of too many documents is left out instead of failing the build: a stream goes on without."""

    def field(self, name: str) -> FieldSpec:
        """A column that the request names; raises InvalidInputError if the schema has none."""
        found = self.schema.field(name)
        if found is None:
            raise InvalidInputError(f"no such column in the schema table={self.table} column={name}")
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltSegment:
    """A file that is complete and on disk."""

    path: Path
    metadata: SegmentMetadata
    size_bytes: int
    unpartitioned: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Why the footer says nothing of a partition column, by column: its rows are not partitioned as declared."""
    blooms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Bloom filters that are small enough for the segment's record, as text, by column."""
