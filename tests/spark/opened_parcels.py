"""What executors are handed, opened as they open it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from merlot.spec.table import Table
from merlot_spark import parcels


@dataclass
class _Lot:
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)


def rows_and_counts(packed: Iterable[pa.RecordBatch], table: Table) -> tuple[pa.Table, list[dict[str, Any]]]:
    """All rows of some parcels, and the counts of each task."""
    schema = parcels.rows_schema(table)
    content = list(parcels.opened(packed, schema, _Lot))
    batches = [batch for lot in content if isinstance(lot, _Lot) for batch in lot.batches]
    return pa.Table.from_batches(batches, schema), [json.loads(text) for text in content if isinstance(text, str)]
