"""Division of a table's segments into parts that are merged apart: batches and the stream. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.parts import is_of_stream, offsets_of

OF_BATCHES: Final = ""
OF_STREAM: Final = "@stream"
"""Suffix of the names of the stream's watermarks. No level's name has its first character."""


def parts_of(visible: Mapping[str, SegmentRecord], *, by_partition: bool) -> Mapping[str, Mapping[str, SegmentRecord]]:
    """Return the segments by part; there is at least one part.

    by_partition: each partition of the stream is a part. Segments of several partitions, which were merged before this
    was asked for, are parts of their own."""
    parts: dict[str, dict[str, SegmentRecord]] = defaultdict(dict)
    for name, record in visible.items():
        part = OF_BATCHES
        if is_of_stream(record):
            partitions = sorted(offsets_of(record)) if by_partition else ()
            part = "-".join((OF_STREAM, *map(str, partitions)))
        parts[part][name] = record
    return dict(sorted(parts.items())) or {OF_BATCHES: visible}
