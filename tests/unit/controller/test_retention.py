"""Retention by the newest row of a segment."""

from types import SimpleNamespace
from typing import cast

import pytest

from merlot.cluster.records import CheckpointRecord, ConsumingStatus, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.controller.placement.retention import expired, safe_to_remove

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


def consumed(
    sequence: int, *, upsert: str = "{}", has_checkpoint: bool = False, is_open: bool = False
) -> StreamSegmentRecord:
    state = CheckpointRecord(largest=1, alive_from=0, deleted_from=0, column="at", at_ms=0) if has_checkpoint else None
    return StreamSegmentRecord(
        name=f"t__0__{sequence}__20260101T0000Z",
        crc=0 if is_open else 1,
        size_bytes=0,
        url="",
        total_docs=0,
        creation_time_ms=0,
        partition=0,
        sequence=sequence,
        start_offset=0,
        upsert=upsert,
        checkpoint=state,
        status=(ConsumingStatus.CONSUMING if is_open else ConsumingStatus.DONE).value,
    )


@pytest.mark.parametrize(("checkpoint", "stays"), [(None, {2}), (2, {2}), (1, {1, 2})])
def test_what_tells_of_hidden_rows_of_an_upsert_table_stays_until_there_is_another(
    checkpoint: int | None, stays: set[int]
) -> None:
    records = [consumed(number, has_checkpoint=number == checkpoint) for number in range(3)]
    view = cast(TableView, SimpleNamespace(stream_segments=(*records, consumed(3, is_open=True))))
    gone = safe_to_remove(view, [record.key for record in records])
    assert {record.sequence for record in records if record.key not in gone} == stays


def test_all_that_is_old_goes_of_a_stream_without_upserts() -> None:
    records = tuple(consumed(number, upsert="") for number in range(3))
    view = cast(TableView, SimpleNamespace(stream_segments=records))
    assert safe_to_remove(view, [record.key for record in records]) == tuple(record.key for record in records)
