"""Removed segments of a table whose files are still in the trash, and the parts of their records that survive.
Blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from merlot.cluster.records import SegmentRecord, TableRecord
from merlot.cluster.segments.remnants import Remnant, is_of_stream, restored
from merlot.controller.cleaning.trash import trash_lists
from merlot.errors import InvalidInputError
from merlot.ids import SegmentKey
from merlot.metastore.protocol import Metastore
from merlot.spec.table import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """A segment's file in the trash of a table."""

    segment: str
    url: str
    deleted_ms: int
    remnant: Remnant | None
    """Fields of the record that the file lacks; None if they are unknown, or belong to an earlier table."""

    def record_of(self, file: SegmentRecord) -> SegmentRecord:
        """Return the record to publish. file: the record that the segment's footer gives."""
        return file if self.remnant is None else restored(file, self.remnant)


def removed_files(metastore: Metastore, table: TableRecord) -> list[RemovedFile]:
    """Return the table's segment files in the trash, the last removed first."""
    files = []
    for _, record in trash_lists(metastore, table.name):
        # A table that took over the files of an earlier one also took over the offsets of its streams.
        is_own = bool(table.num_adopted) or record.deleted_ms >= table.created_ms
        for position, url in enumerate(record.urls):
            if segment := segment_of(url):
                remnant = record.remnants.get(position) if is_own else None
                files.append(RemovedFile(segment=segment, url=url, deleted_ms=record.deleted_ms, remnant=remnant))
    return sorted(files, key=lambda file: (-file.deleted_ms, file.segment))


def check_restorable(spec: TableSpec, removed: RemovedFile) -> None:
    """Raise InvalidInputError if a segment of the table cannot be restored from what is known about it."""
    has_stream = spec.ingestion.stream is not None
    if has_stream and removed.remnant is None:
        raise InvalidInputError(
            f"segment cannot be brought back: the trash does not say which offsets of the stream its rows are from "
            f"segment={removed.segment}; to consume them again: merlot stream consume-from"
        )
    if spec.upsert is not None and removed.remnant is not None and is_of_stream(removed.remnant):
        raise InvalidInputError(
            f"segment of an upsert table's stream cannot be brought back: which rows replaced others was decided "
            f"without it since segment={removed.segment}; to read its rows again: merlot upsert backfill"
        )


def segment_of(url: str) -> str:
    """Return the name of the segment whose file this is; empty if it is not a segment's file."""
    try:
        return SegmentKey.parse(PurePosixPath(url).stem).name
    except InvalidInputError:
        return ""
