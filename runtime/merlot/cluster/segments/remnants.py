"""Keep in the trash the facts of a removed segment's record that its file does not have, to restore the record from.
Pure.

A file's footer holds statistics. Offsets of a stream, origins of a merged segment and times are in the record alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merlot.cluster.records import SegmentRecord, StreamSegmentRecord

OF_FILE = (
    "crc",
    "size_bytes",
    "url",
    "total_docs",
    "start_time_ms",
    "end_time_ms",
    "ranges",
    "partitions",
    "blooms",
    "columns",
    "distincts",
    "custom_map",
    "latest_time_ms",
)
"""Fields of a record that change with the segment's file."""

_OF_BUILDER = {"custom_map", "latest_time_ms"}
"""Members that the builder of the file knew, and that no footer has."""
_OF_LINEAGE = {"replaces", "replaced_by"}
_LEFT_OUT = {"name", *OF_FILE, *_OF_LINEAGE} - _OF_BUILDER

Remnant = Mapping[str, Any]
"""Fields of a record, as in JSON."""


def remnant_of(record: SegmentRecord) -> Remnant:
    """Return the fields that the segment's file does not have."""
    return record.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_LEFT_OUT)


def is_of_stream(remnant: Remnant) -> bool:
    """Return True if the record was that of a stream's segment, or of one that replaced a stream's segments
    (`parts`)."""
    return "partition" in remnant or "streamOffsets" in remnant


def restored(file: SegmentRecord, remnant: Remnant) -> SegmentRecord:
    """Return the record that was removed. `file`: record made from the segment's footer."""
    fields = file.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    kind = StreamSegmentRecord if "partition" in remnant else SegmentRecord
    return kind.model_validate(fields | dict(remnant))
