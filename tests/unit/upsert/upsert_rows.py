"""A table of keys, times and deletions, and a partition of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from tests.unit.upsert.oracle import Place

from merlot.segment.arrow_types import arrow_schema
from merlot.spec.schema import TableSchema
from merlot.spec.upserting import UpsertSpec
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules
from merlot.upsert.valid_docs import SegmentDocs, ValidDocsView

Row = tuple[int, int, bool]
"""Key, value, whether it deletes its key."""

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "key", "type": "LONG"},
            {"name": "at", "type": "LONG", "role": "dateTime", "format": "EPOCH|MILLISECONDS"},
            {"name": "gone", "type": "BOOLEAN"},
            {"name": "outOfOrder", "type": "BOOLEAN"},
            {"name": "sent", "type": "TIMESTAMP"},
        ],
        "primaryKey": ["key"],
    }
)


def rules(**spec: Any) -> Rules:
    return Rules.of(UpsertSpec.model_validate({"mode": "FULL", "deleteRecordColumn": "gone", **spec}), SCHEMA, "at")


def partition(**spec: Any) -> PartitionUpserts:
    return PartitionUpserts(rules(**spec))


def table(rows: Sequence[Row], sent_ms: Sequence[int | None] | None = None) -> pa.Table:
    """sent_ms: when their messages were made."""
    columns: dict[str, list[Any]]
    keys, values, gone = ([row[place] for row in rows] for place in range(3))
    columns = {"key": keys, "at": values, "gone": gone, "outOfOrder": [False] * len(keys)}
    columns["sent"] = [None] * len(keys) if sent_ms is None else list(sent_ms)
    return pa.table(columns, schema=arrow_schema(SCHEMA))


def docs_of(segment: SegmentDocs) -> dict[int, bool]:
    """Valid docs, and whether each is a deletion."""
    live, tombstones = segment.live.docs().tolist(), segment.tombstones.docs().tolist()
    assert segment.num_valid == len(live) + len(tombstones)
    return dict.fromkeys(live, False) | dict.fromkeys(tombstones, True)


def valid_places(cut: ValidDocsView) -> dict[Place, bool]:
    """The valid docs of a partition, and whether each is a deletion."""
    return {(number, doc): gone for number, docs in cut.segments.items() for doc, gone in docs_of(docs).items()}


def ingest(upserts: PartitionUpserts, rows: Sequence[Row], segment: int, first_doc: int) -> int:
    """Add and publish; returns how many rows were kept."""
    outcome = upserts.add(table(rows), segment, first_doc)
    upserts.publish()
    return int(outcome.rows.num_rows)


def commit(upserts: PartitionUpserts) -> None:
    """A commit, and all that it leaves to do."""
    upserts.committed()
    while upserts.tidy():
        pass
