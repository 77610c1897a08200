"""Pinot's paths that upload segments or have servers reload them."""

from __future__ import annotations

import asyncio
from email.message import Message

from aiohttp import web

from merlot.controller.http import answers
from merlot.controller.http.responses import answered, flag, json_answer
from merlot.controller.service import ControllerService
from merlot.errors import InvalidInputError
from merlot.http.described import FILE, FLAG, describe, header, query, record
from merlot.http.door import authorize, of_any, of_table
from merlot.security.access import Right

RELOAD = (
    "0 reload messages sent: none are needed. What a changed manifest asks of segments, servers make by themselves, "
    "beside queries; GET /status tells how far they are"
)
RESET = "nothing to reset: servers try to load again what failed, by themselves, within two minutes"
INGEST = (
    "files are not ingested by a request: name the source in spec.ingestion.batch of the table's manifest and apply it,"
    " or build segments with merlot_spark.build_segments and send them to /v2/segments (docs/ingestion.md)"
)


def routes(service: ControllerService) -> list[web.RouteDef]:
    """Return all routes."""
    api = _SegmentApi(service)
    return [
        web.post("/segments", api.upload),
        web.post("/v2/segments", api.upload),
        web.post("/segments/{table}/reload", api.reload),
        web.post("/segments/{table}/{segment}/reload", api.reload),
        web.post("/segments/{table}/reset", api.reset),
        web.post("/segments/{table}/{segment}/reset", api.reset),
        web.post("/ingestFromFile", api.ingest),
        web.post("/ingestFromURI", api.ingest),
    ]


class _SegmentApi:
    """Handlers over one service."""

    def __init__(self, service: ControllerService) -> None:
        self._service = service

    @answered
    @describe(
        query("tableName", "Table that the segment is of.", is_required=True),
        query("tableType", "OFFLINE, the only half that takes files."),
        query("allowRefresh", "Take the place of a segment of that name.", FLAG),
        header("UPLOAD_TYPE", "SEGMENT, the only kind that is taken."),
        bodies={"application/octet-stream": FILE, "multipart/form-data": record({"file": FILE})},
        answer=answers.STATUS,
        right=of_any(Right.INSERT),
    )
    async def upload(self, request: web.Request) -> web.Response:
        """`?tableName=`: publish a segment file of Merlot's, a form's part or the whole body. One of its name goes,
        unless `allowRefresh=false`."""
        query = request.query
        table = query.get("tableName", "")
        if not table:
            raise InvalidInputError("tableName says of which table the segment is: it is missing")
        authorize(request, Right.INSERT, table)
        if query.get("tableType", "OFFLINE").upper() != "OFFLINE":
            raise InvalidInputError("segments of a stream are made of its messages; upload to tableType=OFFLINE")
        kind = request.headers.get("UPLOAD_TYPE", "SEGMENT").upper()
        if kind != "SEGMENT" or "DOWNLOAD_URI" in request.headers:
            raise InvalidInputError(f"a controller fetches no file from elsewhere uploadType={kind}: send the file")
        content = _file_of(await request.read(), request.headers.get("Content-Type", ""))
        may_replace = flag(request, "allowRefresh", default=True)
        upload = self._service.uploads.upload
        name = await asyncio.to_thread(upload, table, content, may_replace=may_replace)
        return json_answer({"status": f"Successfully uploaded segment: {name} of table: {table}"})

    @answered
    @describe(
        query("forceDownload", "Refused: servers fetch damaged files anew by themselves.", FLAG),
        answer=answers.STATUS,
        right=of_table(Right.MANAGE),
    )
    async def reload(self, request: web.Request) -> web.Response:
        """Nothing, since servers do by themselves what Pinot's reload has them do. `forceDownload` is refused."""
        await self._check_there(request)
        if flag(request, "forceDownload"):
            raise InvalidInputError(
                "forceDownload: servers check their files, and fetch damaged ones anew, by themselves"
            )
        return json_answer({"status": RELOAD})

    @answered
    @describe(answer=answers.STATUS, right=of_table(Right.MANAGE))
    async def reset(self, request: web.Request) -> web.Response:
        """Nothing, since servers try by themselves what failed."""
        await self._check_there(request)
        return json_answer({"status": RESET})

    @answered
    @describe(answer=None, right=of_any(Right.INSERT))
    async def ingest(self, _request: web.Request) -> web.Response:
        """Refused, with what to do instead."""
        raise InvalidInputError(INGEST)

    async def _check_there(self, request: web.Request) -> None:
        """Raise NotFoundError if the table, or the segment, does not exist."""
        table, segment = request.match_info["table"], request.match_info.get("segment")
        await asyncio.to_thread(self._service.check_segment, table, segment)


def _file_of(data: bytes, content_type: str) -> memoryview:
    """Return the first part of a form, or the whole body if it is no form."""
    header = Message()
    header["Content-Type"] = content_type
    if header.get_content_type() != "multipart/form-data":
        return memoryview(data)
    boundary = f"--{header.get_param('boundary', '')}".encode()
    begin = data.find(boundary)
    start = data.find(b"\r\n\r\n", begin) + 4
    end = data.find(b"\r\n" + boundary, start)
    if len(boundary) == 2 or begin < 0 or start < 4 or end < 0:
        raise InvalidInputError("the body is no form with a file in it")
    return memoryview(data)[start:end]
