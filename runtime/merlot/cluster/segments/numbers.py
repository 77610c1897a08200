"""Check the numbers of records that come from outside: answers contain them, and their sums, as integers of 64 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from merlot.cluster.records import AnnotationRecord, SegmentRecord
from merlot.errors import InvalidInputError

MAX_DOCS: Final = (1 << 32) - 2
"""Limit for the docs of a segment, as in its file."""
MAX_CRC: Final = (1 << 32) - 1
MAX_SIZE_BYTES: Final = 1 << 50
"""Limit for the size of a segment's file, far above any file and far below the limit of a sum."""
_LONG: Final = 1 << 63


def check_record(record: SegmentRecord) -> None:
    """Raise InvalidInputError if the size, crc, number of docs, a time or a fact of the record is out of range."""
    counts = (
        ("totalDocs", record.total_docs, MAX_DOCS),
        ("crc", record.crc, MAX_CRC),
        ("sizeBytes", record.size_bytes, MAX_SIZE_BYTES),
    )
    for field, number, most in counts:
        if not 0 <= number <= most:
            raise InvalidInputError(f"{field} of a segment must be from 0 to {most} segment={record.name}")
    times = (record.creation_time_ms, record.push_time_ms, record.refresh_time_ms, record.latest_time_ms)
    if not all(map(_is_long, times)):
        raise InvalidInputError(f"times of a segment must be integers of 64 bits segment={record.name}")
    check_facts(record)


def check_facts(record: SegmentRecord | AnnotationRecord) -> None:
    """Raise InvalidInputError if a number by which brokers prune is out of range."""
    for field, number in _facts(record):
        if not _is_long(number):
            raise InvalidInputError(f"{field} of a segment must be integers of 64 bits segment={record.name}")


def _facts(record: SegmentRecord | AnnotationRecord) -> Iterator[tuple[str, Any]]:
    yield "startTimeMs and endTimeMs", record.start_time_ms
    yield "startTimeMs and endTimeMs", record.end_time_ms
    for pair in record.ranges.values():
        yield from (("ranges", bound) for bound in pair)
    for entry in record.partitions.values():
        yield from (("partitions", number) for number in (entry.num_partitions, *entry.partitions))


def _is_long(number: Any) -> bool:
    return not isinstance(number, int) or -_LONG <= number < _LONG
