"""A table as its keeper last read it from shared state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from merlot.cluster.manifests.upserts import Upserting
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.query.context import ExecutionLimits
from merlot.spec.table import TableSpec
from merlot.tree.types import SqlType


@dataclass(frozen=True)
class TableState:
    """A table as it was last read."""

    spec: TableSpec
    revision: int
    view: TableView
    assigned: Mapping[str, SegmentRecord]
    """What this server is assigned, by `name@crc`; without segments that it consumes."""
    upserting: Upserting = field(default_factory=Upserting)
    """Of an upsert table of batches."""

    @cached_property
    def column_types(self) -> Mapping[str, SqlType]:
        """What a broker that knows the same revision takes the columns for."""
        return {field.name: SqlType(field.type, field.multi_value) for field in self.spec.table_schema.fields}

    @cached_property
    def limits(self) -> ExecutionLimits:
        """The table's bounds, or the default ones."""
        limits, default = self.spec.limits, ExecutionLimits()
        return ExecutionLimits(
            max_groups=limits.max_groups or default.max_groups,
            max_rows=limits.max_rows or default.max_rows,
            max_bytes=limits.max_bytes or default.max_bytes,
        )
