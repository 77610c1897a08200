"""Make the record of a segment again from its file's footer, after the record was lost."""

from __future__ import annotations

import tempfile
from pathlib import Path

from merlot.catalog.publish import record_of
from merlot.cluster.records import SegmentRecord
from merlot.errors import InvalidInputError
from merlot.ids import TableName, raw_name
from merlot.segment.immutable import ImmutableSegment, verify_file
from merlot.segment.observed import small_blooms
from merlot.spec.table import TableSpec
from merlot.store.deepstore import DeepStore


def read(url: str, table: TableName, spec: TableSpec, store_uri: str) -> SegmentRecord:
    """Fetch the file, verify every byte, and return its record.

    Raise NotFoundError if the file is missing, CorruptionError if it is damaged, InvalidInputError if it is another
    table's."""
    with tempfile.TemporaryDirectory(prefix="merlot-recover-") as folder:
        path = Path(folder) / "segment.mseg"
        DeepStore(store_uri).fetch(url, path, verify=verify_file)
        with ImmutableSegment.open(path) as segment:
            if segment.metadata.table != raw_name(table):
                raise InvalidInputError(f"segment is of another table url={url} table={segment.metadata.table}")
            return record_of(segment.metadata, url, path.stat().st_size, small_blooms(segment, spec.indexing))
