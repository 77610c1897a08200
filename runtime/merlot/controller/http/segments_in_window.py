"""Segments of a window of time: `GET /segments/{table}/select`, as in Pinot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import web

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments import table_types
from merlot.cluster.segments.parts import is_of_stream
from merlot.cluster.segments.view import TableView
from merlot.controller.http import answers
from merlot.controller.http.responses import answered, flag, json_answer
from merlot.controller.service import ControllerService
from merlot.errors import InvalidInputError
from merlot.http.described import FLAG, describe, query
from merlot.http.door import READING, of_table

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


def select(
    segments: Iterable[SegmentRecord], start_ms: int, end_ms: int, *, exclude_overlapping: bool = False
) -> list[str]:
    """Return the names of the segments that may have rows in [start, end), sorted.

    exclude_overlapping: leave out segments that have, or may have, rows outside of the window too."""
    if start_ms >= end_ms:
        raise InvalidInputError(f"window is empty startTimestamp={start_ms} endTimestamp={end_ms}")
    chosen = []
    for record in segments:
        first = _LEAST if record.start_time_ms is None else record.start_time_ms
        last = _GREATEST if record.end_time_ms is None else record.end_time_ms
        is_inside = start_ms <= first and last < end_ms
        if is_inside or (not exclude_overlapping and first < end_ms and start_ms <= last):
            chosen.append(record.name)
    return sorted(chosen)


def _replaceable(view: TableView) -> Iterable[SegmentRecord]:
    """Return the segments that a batch or a backfill of a window may replace. No more rows will be added to them."""
    is_hybrid = view.root.time_boundary_ms is not None
    return (
        segment for segment in view.visible.values() if not (segment.is_open or (is_hybrid and is_of_stream(segment)))
    )


def routes(service: ControllerService) -> list[web.RouteDef]:
    """Return the route."""
    return [web.get("/segments/{table}/select", _SelectApi(service).select)]


class _SelectApi:
    def __init__(self, service: ControllerService) -> None:
        self._service = service

    @answered
    @describe(
        answers.START,
        answers.END,
        query("excludeOverlapping", "Without segments that reach out of the window.", FLAG),
        answer=answers.BY_HALF,
        right=of_table(*READING, is_whole=True),
    )
    async def select(self, request: web.Request) -> web.Response:
        """`?startTimestamp=&endTimestamp=&excludeOverlapping=`: epoch milliseconds, the end is not part of the window;
        either may be left out. Segments that were replaced are not told, nor, of a hybrid table, those of its stream:
        whoever asks is about to replace what batches brought."""
        start_ms, end_ms = window_of(request)
        exclude_overlapping = flag(request, "excludeOverlapping")
        view = await asyncio.to_thread(self._service.view, request.match_info["table"])
        names = select(_replaceable(view), start_ms, end_ms, exclude_overlapping=exclude_overlapping)
        return json_answer([{table_types.OFFLINE: names}])


def window_of(request: web.Request) -> tuple[int, int]:
    """Return `?startTimestamp=&endTimestamp=` in epoch milliseconds; either may be left out."""
    return _millis(request, "startTimestamp", _LEAST), _millis(request, "endTimestamp", _GREATEST)


def _millis(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(f"{name} must be epoch milliseconds got={text!r}") from None
