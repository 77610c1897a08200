"""Retention by the newest row of a segment."""

from merlot.cluster.records import SegmentRecord
from merlot.controller.placement.retention import expired

DAY_MS = 86_400_000


def segment(name: str, end_time_ms: int | None) -> SegmentRecord:
    return SegmentRecord(name=name, crc=1, size_bytes=1, url="", total_docs=1, end_time_ms=end_time_ms)


def test_segments_go_when_their_newest_row_is_too_old() -> None:
    segments = [segment("edge", 8 * DAY_MS), segment("old", 8 * DAY_MS - 1), segment("timeless", None)]
    assert [key.name for key in expired(segments, 2 * DAY_MS, 10 * DAY_MS)] == ["old"]


def test_rounded_times_do_not_make_rows_older() -> None:
    rounded = segment("rounded", 0).model_copy(update={"latest_time_ms": 8 * DAY_MS})
    assert expired([rounded], 2 * DAY_MS, 10 * DAY_MS) == ()
    assert expired([rounded], 2 * DAY_MS, 10 * DAY_MS + 1) == (rounded.key,)


def test_nothing_goes_without_retention() -> None:
    assert expired([segment("old", 0)], None, 10 * DAY_MS) == ()
