"""What the rounded times of a merged segment no longer tell: when its newest row was, and which windows of time may be
replaced in it. Pure.

A merge that rounds times leaves both with its outputs, and every merge or backfill hands on what its inputs have of it:
`latest_time_ms` in the record, and `ROUNDED_TO` in the custom map, the periods that rows were rounded to. Segments that
were merged before this was kept, and others that are not rounded, have neither: then their own times are all there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from merlot.cluster.records import SegmentRecord
from merlot.errors import InvalidInputError
from merlot.spec.tasks import ROUNDED_TO
from merlot.values import periods
from merlot.values.datetime_format import datetime_of
from merlot.values.periods import Period

Window = tuple[int, int]
"""Epoch milliseconds, [start, end)."""


def with_true_times(
    output: SegmentRecord, inputs: Iterable[SegmentRecord], windows: Sequence[Window], rounding: str | None = None
) -> SegmentRecord:
    """An output's record with what its inputs know, and with what rounding to a period does to it now. The output has
    rows of one of the windows."""
    start_ms, end_ms = _window_of(output, windows)
    reaching = [one for one in inputs if _reaches(one, start_ms, end_ms)]
    texts = {text for one in reaching for text in _texts(one)} | ({rounding} if rounding else set())
    if not texts:
        return output
    known = [one.latest_time_ms for one in reaching if one.latest_time_ms is not None]
    ends = [one.end_time_ms for one in reaching if one.end_time_ms is not None] if rounding else []
    own = [] if output.end_time_ms is None else [output.end_time_ms]
    late = [*known, *(min(end, end_ms - 1) for end in ends)]
    return output.model_copy(
        update={
            "custom_map": {**output.custom_map, ROUNDED_TO: ",".join(sorted(texts))},
            "latest_time_ms": max(late + own) if late else None,
        }
    )


def periods_of(record: SegmentRecord) -> tuple[Period, ...]:
    """The periods that a segment's rows were rounded to; raises InvalidInputError if this version knows no such."""
    return tuple(periods.parse(text) for text in _texts(record))


def smallest_window(segments: Iterable[SegmentRecord], window: Window) -> Window:
    """The window, or as much more as was rounded together with it: rows of which nobody can tell any longer whether
    they were inside."""
    rounded = [(record, period) for record in segments for period in periods_of(record)]
    found, last = window, None
    while found != last:
        last = found
        for record, period in rounded:
            found = _widened(found, record, period)
    return found


def instant_text(millis: int) -> str:
    """The start of a period, as `merlot backfill` and manifests take it: `2013-07-01` or `2013-07-01T12:00:00Z`."""
    try:
        return datetime_of(millis).strftime("%Y-%m-%dT%H:%M:%SZ").removesuffix("T00:00:00Z")
    except InvalidInputError:
        return str(millis)


def _widened(window: Window, record: SegmentRecord, period: Period) -> Window:
    start_ms, end_ms = window
    first_ms, last_ms = record.start_time_ms, record.end_time_ms
    if first_ms is None or last_ms is None:
        return window
    # Where rows may have been.
    first_ms, past_ms = period.floor(first_ms), period.next(last_ms)
    if first_ms <= period.floor(start_ms) < past_ms:
        start_ms = period.floor(start_ms)
    if first_ms <= period.floor(end_ms - 1) < past_ms:
        end_ms = period.next(end_ms - 1)
    return start_ms, end_ms


def _window_of(output: SegmentRecord, windows: Sequence[Window]) -> Window:
    """The window that the output is of; all of them if nobody knows."""
    time_ms = output.start_time_ms
    inside = [one for one in windows if time_ms is None or one[0] <= time_ms < one[1]] or windows
    return min(start for start, _ in inside), max(end for _, end in inside)


def _reaches(record: SegmentRecord, start_ms: int, end_ms: int) -> bool:
    if record.start_time_ms is None or record.end_time_ms is None:
        return True
    return record.start_time_ms < end_ms and start_ms <= record.end_time_ms


def _texts(record: SegmentRecord) -> list[str]:
    return [text for text in record.custom_map.get(ROUNDED_TO, "").split(",") if text]
