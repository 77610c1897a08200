"""Which segments of a table may be merged with each other: those of batches, and those of the stream. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.parts import is_of_stream, offsets_of

OF_BATCHES: Final = ""
OF_STREAM: Final = "@stream"
"""What names of watermarks end with; no level's name has this character."""


def parts_of(visible: Mapping[str, SegmentRecord], *, by_partition: bool) -> Mapping[str, Mapping[str, SegmentRecord]]:
    """Segments by part; there is at least one part. `by_partition`: those of each of the stream's partitions are one,
    and those of several partitions, which were merged before that was asked for, are another."""
    parts: dict[str, dict[str, SegmentRecord]] = defaultdict(dict)
    for name, record in visible.items():
        part = OF_BATCHES
        if is_of_stream(record):
            partitions = sorted(offsets_of(record)) if by_partition else ()
            part = "-".join((OF_STREAM, *map(str, partitions)))
        parts[part][name] = record
    return dict(sorted(parts.items())) or {OF_BATCHES: visible}
