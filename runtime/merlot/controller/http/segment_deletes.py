"""Pinot's paths that delete segments: one, several, those of a window, or a whole half. A request is done wholly or
refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from aiohttp import web

from merlot.cluster.segments.table_types import table_type_of
from merlot.cluster.segments.view import TableView
from merlot.controller.http import answers
from merlot.controller.http.responses import answered, asked_half, json_answer, segment_names
from merlot.controller.http.segments_in_window import select, window_of
from merlot.controller.service import ControllerService
from merlot.errors import InvalidInputError
from merlot.http.described import describe, query
from merlot.http.door import of_table
from merlot.ids import raw_name
from merlot.security.access import Right

Choose = Callable[[TableView], Iterable[str]]

ALLOWED_RETENTIONS: Final = frozenset({"0d", "-1d"})
MOST_SHOWN: Final = 5
"""Most names in an answer; more are given as a number, as in Pinot."""


def routes(service: ControllerService) -> list[web.RouteDef]:
    """Return all routes."""
    api = _Deletes(service)
    return [
        web.delete("/segments/{table}", api.delete_several),
        web.post("/segments/{table}/delete", api.delete_listed),
        web.delete("/segments/{table}/choose", api.delete_window),
        web.delete("/segments/{table}/{segment}", api.delete_segment),
    ]


class _Deletes:
    def __init__(self, service: ControllerService) -> None:
        self._service = service

    @answered
    @describe(answers.RETENTION, answer=answers.STATUS, right=of_table(Right.MANAGE))
    async def delete_segment(self, request: web.Request) -> web.Response:
        """Delete a segment."""
        _check_parameters(request, {"retention"})
        segment = request.match_info["segment"]
        await asyncio.to_thread(self._service.delete_segments, request.match_info["table"], lambda _: [segment])
        return json_answer({"status": f"Segment {segment} deleted"})

    @answered
    @describe(
        query("segments", "Names of segments, with commas between or one each."),
        answers.TYPE,
        answers.RETENTION,
        answer=answers.STATUS,
        right=of_table(Right.MANAGE),
    )
    async def delete_several(self, request: web.Request) -> web.Response:
        """`?segments=a&segments=b`, or `a,b`: delete these. Without any, all of the half that `?type=` says."""
        _check_parameters(request, {"segments", "type", "retention"})
        names = [name for text in request.query.getall("segments", []) for name in text.split(",") if name]
        half = asked_half(request)
        if "segments" in request.query:
            return await self._delete(request, _listed(names, half))
        if half is None:
            raise InvalidInputError("type is missing: OFFLINE or REALTIME, all of whose segments are to be deleted")
        await self._delete(request, lambda view: _of_half(view, half))
        return json_answer({"status": f"All segments of table {_shown(request, half)} deleted"})

    @answered
    @describe(answers.TYPE, answers.RETENTION, body=answers.NAMES, answer=answers.STATUS, right=of_table(Right.MANAGE))
    async def delete_listed(self, request: web.Request) -> web.Response:
        """Delete the segments of a JSON array of names."""
        _check_parameters(request, {"type", "retention"})
        names = await segment_names(request)
        return await self._delete(request, _listed(names, asked_half(request)))

    @answered
    @describe(
        answers.START, answers.END, answers.TYPE, answers.RETENTION, answer=answers.STATUS, right=of_table(Right.MANAGE)
    )
    async def delete_window(self, request: web.Request) -> web.Response:
        """`?startTimestamp=&endTimestamp=`, epoch milliseconds, both: delete the segments all of whose rows are in the
        window, the end not included; of the half that `?type=` says, or of both. Segments that still consume stay."""
        _check_parameters(request, {"startTimestamp", "endTimestamp", "type", "retention"})
        if not {"startTimestamp", "endTimestamp"} <= request.query.keys():
            raise InvalidInputError("a window has a startTimestamp and an endTimestamp")
        (start_ms, end_ms), half = window_of(request), asked_half(request)

        def choose(view: TableView) -> Iterable[str]:
            sealed = (
                segment
                for segment in view.visible.values()
                if not segment.is_open and half in (None, table_type_of(segment))
            )
            return select(sealed, start_ms, end_ms, exclude_overlapping=True)

        return await self._delete(request, choose)

    async def _delete(self, request: web.Request, choose: Choose) -> web.Response:
        table = request.match_info["table"]
        deleted = await asyncio.to_thread(self._service.delete_segments, table, choose)
        if 0 < len(deleted) <= MOST_SHOWN:
            status = f"Deleted segments: [{', '.join(deleted)}] from table: {_shown(request, asked_half(request))}"
        else:
            status = f"Deleted {len(deleted)} segments from table: {_shown(request, asked_half(request))}"
        return json_answer({"status": status})


def _listed(names: Sequence[str], half: str | None) -> Choose:
    """Return a function that chooses the segments of a list. If a half is given, all of them have to be in it."""
    if not names:
        raise InvalidInputError("no segments are named")

    def choose(view: TableView) -> Sequence[str]:
        outside = [name for name in names if half is not None and _is_outside(view, name, half)]
        if outside:
            raise InvalidInputError(f"segment is not of this half of the table half={half} segment={outside[0]}")
        return names

    return choose


def _is_outside(view: TableView, name: str, half: str) -> bool:
    record = view.segment(name)
    return record is not None and table_type_of(record) != half


def _of_half(view: TableView, half: str) -> set[str]:
    return {name for name, record in view.segments.items() if table_type_of(record) == half}


def _shown(request: web.Request, half: str | None) -> str:
    raw = raw_name(request.match_info["table"])
    return raw if half is None else f"{raw}_{half}"


def _check_parameters(request: web.Request, parameters: set[str]) -> None:
    """Raise InvalidInputError if the request has other parameters: `?segmentNames=a` would delete all segments."""
    unknown = sorted(request.query.keys() - parameters)
    if unknown:
        raise InvalidInputError(f"parameter is not known name={unknown[0]!r:.50} known={', '.join(sorted(parameters))}")
    retention = request.query.get("retention")
    if retention is not None and retention not in ALLOWED_RETENTIONS:
        raise InvalidInputError(
            "retention: deleted segments cannot be kept, their files go once queries have let go of them; leave it out"
        )
