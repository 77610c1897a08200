"""State of a table as its manager last read it from shared state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from merlot.cluster.manifests.upserts import Upserting
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.editions import is_edition
from merlot.cluster.segments.view import TableView
from merlot.query.context import ExecutionLimits
from merlot.spec.table import TableSpec
from merlot.tree.types import SqlType

CONSUMED_CRC: Final = "0"
"""Crc in keys that stand for a segment's rows as they were consumed."""


@dataclass(frozen=True)
class ServedTableState:
    """State of a table as it was last read."""

    spec: TableSpec
    version: tuple[int, int]
    """Version of the table's record."""
    view: TableView
    assigned: Mapping[str, SegmentRecord]
    """Segments that this server is assigned, by `name@crc`; without segments that it consumes."""
    upserting: Upserting = field(default_factory=Upserting)
    """Settings of an upsert table of batches."""

    @property
    def revision(self) -> int:
        """Return the revision of the manifest."""
        return self.version[1]

    def is_missed(self, key: str, loaded: Collection[str]) -> bool:
        """Return True if a key for which the server once answered, and does not now, is still a key that it has to
        have."""
        name, _, crc = key.rpartition("@")
        if is_edition(key):
            return not any(other.startswith(f"{name}@") for other in loaded)  # until another edition answers
        record = self.view.segment(name)
        if crc != CONSUMED_CRC or record is None:
            return key in self.assigned
        return record.is_open or record.key_text not in loaded

    @cached_property
    def column_types(self) -> Mapping[str, SqlType]:
        """Types of the columns for a broker that knows the same revision."""
        return {field.name: SqlType(field.type, field.multi_value) for field in self.spec.table_schema.fields}

    @cached_property
    def limits(self) -> ExecutionLimits:
        """Limits of the table, or the defaults."""
        limits, default = self.spec.limits, ExecutionLimits()
        return ExecutionLimits(
            max_groups=limits.max_groups or default.max_groups,
            max_rows=limits.max_rows or default.max_rows,
            max_bytes=limits.max_bytes or default.max_bytes,
        )
