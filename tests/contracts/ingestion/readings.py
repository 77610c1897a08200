"""What a way of reading a source has to offer to be held to the matrix: files in, conformed rows and bad rows out."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from merlot.ingest import transform
from merlot.ingest.bad_rows import BadRows
from merlot.ingest.source import plan, reader
from merlot.segment.arrow_types import arrow_schema
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.table import TableSpec


@dataclass(frozen=True, slots=True)
class Reading:
    """`rows` has exactly the table's columns and Arrow types."""

    rows: pa.Table
    bad: BadRows


class Reader(Protocol):
    """One way from files to rows. MerlotError says what it refuses."""

    def read(self, files: Mapping[str, bytes], source: Mapping[str, Any], spec: TableSpec) -> Reading:
        """`source` is a batch source of a manifest without its URI: the format, and options of CSV."""
        ...


@dataclass(frozen=True, slots=True)
class LocalReader:
    """Files of a folder, read as `merlot backfill --local` does."""

    folder: Path

    def read(self, files: Mapping[str, bytes], source: Mapping[str, Any], spec: TableSpec) -> Reading:
        root = self.folder / f"source{len(list(self.folder.iterdir()))}"
        root.mkdir()
        for name, content in files.items():
            (root / name).write_bytes(content)
        batch = BatchIngestion.model_validate({"sourceUri": str(root), **source})
        planned = plan.make(batch, spec)
        done = [transform.conform(rows, spec) for rows in reader.read(planned.request, planned.pieces)]
        rows = [arrow_schema(spec.table_schema).empty_table(), *(one.rows for one in done)]
        return Reading(pa.concat_tables(rows), functools.reduce(operator.add, (one.bad for one in done), BadRows()))
