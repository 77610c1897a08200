"""Times that rounding in merges hides: the time of a segment's newest row, and the windows that may be replaced in it.
The functions are pure.

A merge that rounds times leaves two facts with its outputs, and every merge or backfill hands them on from its inputs:
`latest_time_ms` in the record, and `ROUNDED_TO` in the custom map, the periods that rows were rounded to. Segments that
were merged by releases without this, or that are not rounded, have neither; their own times are used then.
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
    """Return an output's record with the true times of its inputs, and with the effect of its own `rounding`, if any.
    The output has rows of one of the windows."""
    start_ms, end_ms = _window_of(output, windows)
    reaching = [record for record in inputs if _reaches(record, start_ms, end_ms)]
    texts = {text for record in reaching for text in _period_texts(record)} | ({rounding} if rounding else set())
    if not texts:
        return output
    latest = [record.latest_time_ms for record in reaching if record.latest_time_ms is not None]
    ends = [record.end_time_ms for record in reaching if record.end_time_ms is not None] if rounding else []
    own = [] if output.end_time_ms is None else [output.end_time_ms]
    late = [*latest, *(min(end, end_ms - 1) for end in ends)]
    return output.model_copy(
        update={
            "custom_map": {**output.custom_map, ROUNDED_TO: ",".join(sorted(texts))},
            "latest_time_ms": max(late + own) if late else None,
        }
    )


def periods_of(record: SegmentRecord) -> tuple[Period, ...]:
    """Return the periods that a segment's rows were rounded to; raise InvalidInputError for a period unknown to this
    version."""
    return tuple(periods.parse(text) for text in _period_texts(record))


def smallest_window(segments: Iterable[SegmentRecord], window: Window) -> Window:
    """Return the window, widened by the periods that rows were rounded to: nobody can tell whether such rows were
    inside the window."""
    rounded = [(record, period) for record in segments for period in periods_of(record)]
    widened, previous = window, None
    while widened != previous:
        previous = widened
        for record, period in rounded:
            widened = _widened(widened, record, period)
    return widened


def instant_text(millis: int) -> str:
    """Return the start of a period, as `merlot backfill` and manifests accept it: `2013-07-01` or
    `2013-07-01T12:00:00Z`."""
    try:
        return datetime_of(millis).strftime("%Y-%m-%dT%H:%M:%SZ").removesuffix("T00:00:00Z")
    except InvalidInputError:
        return str(millis)


def _widened(window: Window, record: SegmentRecord, period: Period) -> Window:
    start_ms, end_ms = window
    first_ms, last_ms = record.start_time_ms, record.end_time_ms
    if first_ms is None or last_ms is None:
        return window
    # Rows may have been in [first_ms, past_ms) before rounding.
    first_ms, past_ms = period.floor(first_ms), period.next(last_ms)
    if first_ms <= period.floor(start_ms) < past_ms:
        start_ms = period.floor(start_ms)
    if first_ms <= period.floor(end_ms - 1) < past_ms:
        end_ms = period.next(end_ms - 1)
    return start_ms, end_ms


def _window_of(output: SegmentRecord, windows: Sequence[Window]) -> Window:
    """Return the window of the output; the span of all windows if it is in none, or has no start."""
    time_ms = output.start_time_ms
    inside = [window for window in windows if time_ms is None or window[0] <= time_ms < window[1]] or windows
    return min(start for start, _ in inside), max(end for _, end in inside)


def _reaches(record: SegmentRecord, start_ms: int, end_ms: int) -> bool:
    if record.start_time_ms is None or record.end_time_ms is None:
        return True
    return record.start_time_ms < end_ms and start_ms <= record.end_time_ms


def _period_texts(record: SegmentRecord) -> list[str]:
    return [text for text in record.custom_map.get(ROUNDED_TO, "").split(",") if text]
