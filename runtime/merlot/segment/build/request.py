"""Request and result of a build."""

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
    """Request to build one segment. The rows and everything but `name`, `table` and `creation` determine its content
    crc."""

    name: str
    table: str
    """Raw table name."""
    schema: TableSchema
    indexing: IndexingSpec = dataclasses.field(default_factory=IndexingSpec)
    time_column: str | None = None
    partitioning: PartitioningSpec | None = None
    creation: CreationFacts = dataclasses.field(default_factory=CreationFacts)
    leaves_out_large_trees: bool = False
    """True if a star-tree of too many documents is left out instead of failing the build: a stream goes on without
    it."""

    def field(self, name: str) -> FieldSpec:
        """Return a column that the request names. Raises InvalidInputError if the schema has none."""
        column = self.schema.field(name)
        if column is None:
            raise InvalidInputError(f"no such column in the schema table={self.table} column={name}")
        return column


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltSegment:
    """A file that is complete and on disk."""

    path: Path
    metadata: SegmentMetadata
    size_bytes: int
    unpartitioned: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Reasons why the footer has no entry for a partition column, by column: its rows are not partitioned as
    declared."""
    blooms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Bloom filters that are small enough for the segment's record, as text, by column."""
