"""Uploads of segment files by clients: from bytes to a published segment. Blocks; any thread may call.

The file is in the deep store before its record is published. A crash in between leaves a file that no record names,
which the cleaner removes; and a repeated upload makes the same file.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Protocol

from merlot.cluster.manifests import tables
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import PublishRequest
from merlot.cluster.segments.table_types import OFFLINE, table_types
from merlot.controller.access import ClusterAccess
from merlot.errors import ConflictError, InvalidInputError
from merlot.ids import TableName, raw_name
from merlot.spec.table import TableSpec


class TakeSegment(Protocol):
    """Function that checks a file and puts it into a deep store. It is injected, since it needs the segment reader."""

    def __call__(self, path: Path, table: TableName, spec: TableSpec, store_uri: str) -> SegmentRecord:
        """Return the file's record. Raise InvalidInputError if it is no segment of the table."""
        ...


class Uploads:
    """Uploads to one cluster."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self.take: TakeSegment | None = None
        """Function that takes a file, set by the program that starts the process; None if it cannot take segments."""

    def upload(self, name: str, content: memoryview, *, may_replace: bool) -> str:
        """Publish a segment of a table's batches, in place of an existing one of its name; return its name.

        Raise ConflictError if there is a different one and `may_replace` is not set."""
        record = tables.get_table(self._access.metastore, name)
        spec = tables.spec_of(record).spec
        if OFFLINE not in table_types(spec):
            raise InvalidInputError(f"a table of a stream alone takes rows of its stream only table={raw_name(name)}")
        store_uri = self._access.stores.uri_of(spec.deep_store_uri)
        if self.take is None or store_uri is None:
            raise InvalidInputError("this controller has no deep store: start it with --deep-store")
        with tempfile.TemporaryDirectory(prefix="merlot-upload-") as folder:
            path = Path(folder) / "segment.mseg"
            path.write_bytes(content)
            segment = self.take(path, record.name, spec, store_uri)
        existing = self._access.view_of(name).segment(segment.name)
        if existing is not None and existing.key != segment.key and not may_replace:
            raise ConflictError(f"segment exists already table={raw_name(name)} segment={segment.name}")
        self._access.publish(name, PublishRequest(records=(segment,), replace=(segment.name,)))
        return segment.name
