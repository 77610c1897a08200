"""Rows that are merged into others, and rows of which the first ones are kept: with what stores them, on one core."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.request import BuildRequest
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.spec.upserting import UpsertSpec
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules

BATCH = 20_000
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "key", "type": "LONG"},
            {"name": "at", "type": "LONG", "role": "dateTime", "format": "EPOCH|MILLISECONDS"},
            {"name": "name", "type": "STRING"},
            {"name": "total", "type": "LONG", "role": "metric"},
            {"name": "share", "type": "DOUBLE", "role": "metric"},
            {"name": "city", "type": "STRING"},
            {"name": "flags", "type": "INT", "multiValue": True},
        ],
        "primaryKey": ["key"],
    }
)
MERGED = {"total": "INCREMENT", "share": "MAX", "flags": "UNION", "city": "IGNORE"}


class Stored:
    """One segment, its rows, and the partition that decides them."""

    def __init__(self, **settings: object) -> None:
        self._rows = ConsumingSegment(BuildRequest(name="s", table="t", schema=SCHEMA), 0)
        self._offset = 0
        rules = Rules.of(UpsertSpec.model_validate(settings), SCHEMA, "at")
        self._upserts = PartitionUpserts(rules, self._previous)

    def _previous(self, _: NDArray[np.int64], docs: NDArray[np.int64], fields: Sequence[FieldSpec]) -> pa.Table:
        segment, schema = self._rows.snapshot(), arrow_schema(SCHEMA)
        taken = {field.name: taken_column(column_under(segment, field), docs.astype(np.uint32)) for field in fields}
        return pa.table(taken).cast(pa.schema([schema.field(field.name) for field in fields]))

    def add(self, rows: pa.Table) -> None:
        outcome = self._upserts.add(rows, 0, self._rows.num_docs)
        offsets = self._offset + np.flatnonzero(outcome.is_kept)
        self._offset += rows.num_rows
        self._rows.append(outcome.rows, offsets, self._offset)
        self._upserts.publish()


def speed(num_keys: int, num_rows: int, **settings: object) -> dict[str, float]:
    """Rows of seven columns, of keys in no order, per second of CPU time; the first batches are not counted."""
    draw = np.random.default_rng(1)
    stored, taken, counted = Stored(**settings), 0.0, 0
    for first in range(0, num_rows, BATCH):
        rows = _rows(draw, first, num_keys)
        started = time.process_time()
        stored.add(rows)
        if first >= 2 * BATCH:
            taken += time.process_time() - started
            counted += BATCH
    return {"rowsPerS": counted / taken}


def _rows(draw: np.random.Generator, first: int, num_keys: int) -> pa.Table:
    columns = {
        "key": draw.integers(0, num_keys, BATCH),
        "at": np.arange(first, first + BATCH),
        "name": pa.array(
            [f"name {number}" for number in draw.integers(0, 100_000, BATCH)], mask=draw.random(BATCH) < 0.3
        ),
        "total": draw.integers(0, 100, BATCH),
        "share": draw.random(BATCH),
        "city": pa.array([f"city {number}" for number in draw.integers(0, 300, BATCH)]),
        "flags": pa.array([[number] for number in draw.integers(0, 4, BATCH).tolist()]),
    }
    return pa.table(columns).cast(arrow_schema(SCHEMA))


def partial(num_keys: int) -> dict[str, float]:
    """Mode PARTIAL: most rows are merged into another."""
    return speed(num_keys, 4 * num_keys, mode="PARTIAL", partialUpsertStrategies=MERGED)


def dedup(num_keys: int) -> dict[str, float]:
    """Mode DEDUP: most rows are not stored."""
    return speed(num_keys, 4 * num_keys, mode="DEDUP")
