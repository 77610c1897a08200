"""A table as its keeper last read it from shared state."""

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
"""The crc in keys that stand for a segment's rows as they were consumed."""


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

    def is_missed(self, key: str, loaded: Collection[str]) -> bool:
        """Whether a key that the server answered for once, and does not now, is still one that it has to have."""
        name, _, crc = key.rpartition("@")
        if is_edition(key):
            return not any(one.startswith(f"{name}@") for one in loaded)  # until it answers for another one
        record = self.view.segment(name)
        if crc != CONSUMED_CRC or record is None:
            return key in self.assigned
        return record.is_open or record.key_text not in loaded

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
