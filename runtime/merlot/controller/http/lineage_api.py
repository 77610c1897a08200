"""Replacement of segments over HTTP, as in Pinot: start, publish the outputs under their names, end; or revert."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.lineage import replacements as lineage
from merlot.cluster.lineage.replacements import EndOptions, LineageEntry, Replacement
from merlot.cluster.manifests.tables import get_table, spec_of
from merlot.cluster.records import InstanceRecord, Role
from merlot.cluster.segments.transaction import WriteContext
from merlot.controller.http import answers
from merlot.controller.http.responses import answered, flag, json_answer, parse_body
from merlot.errors import InvalidInputError, UnavailableError
from merlot.http.described import FLAG, NUMBER, TEXT, by_name, describe, one_of, query, record
from merlot.http.door import READING, of_table, passed_credentials
from merlot.http.tls_door import tls_of
from merlot.ids import OFFLINE_SUFFIX, SegmentKey, SegmentName, TableName, raw_name
from merlot.metastore.protocol import Metastore
from merlot.security.access import Right
from merlot.spec.table import PushType
from merlot.uris import http_url

_LOG = logging.getLogger(__name__)

BROKER_TIMEOUT_S = 2.0
WAIT_S = 60.0
"""Longest wait of an end for servers to load the outputs, unless the caller says otherwise (`timeoutSeconds`)."""
LONGEST_WAIT_S = 600.0
LOOK_S = (0.1, 2.0)
"""First and longest pause between two looks."""


class StartBody(BaseModel):
    """Body of `startReplaceSegments`."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)

    segments_from: tuple[str, ...] = ()
    segments_to: tuple[str, ...] = ()
    custom_map: dict[str, str] = Field(default_factory=dict)
    segment_lineage_entry_id: str | None = None
    """Not Pinot's: the caller's own id, which makes the call repeatable."""
    segment_crcs: dict[str, int] = Field(default_factory=dict)
    """Not Pinot's: versions of the inputs that the caller has seen. Refused if any of them has changed."""


class EndBody(BaseModel):
    """Body of `endReplaceSegments`, which may be missing."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)

    segments_to: tuple[str, ...] | None = None
    custom_map: dict[str, str] = Field(default_factory=dict)


def routes(metastore: Metastore, context: WriteContext) -> list[web.RouteDef]:
    """Return all routes."""
    api = _LineageApi(metastore, context)
    return [
        web.post("/segments/{table}/startReplaceSegments", api.start),
        web.post("/segments/{table}/endReplaceSegments", api.end),
        web.post("/segments/{table}/revertReplaceSegments", api.revert),
        web.get("/segments/{table}/lineage", api.lineage),
        web.get("/segments/{table}/lineage/{entry}/brokers", api.brokers),
    ]


class _LineageApi:
    def __init__(self, metastore: Metastore, context: WriteContext) -> None:
        self._metastore = metastore
        self._context = context

    @answered
    @describe(
        query("forceCleanup", "Revert replacements under way that use the same segments.", FLAG),
        answers.TYPE,
        body=StartBody,
        answer=record({"segmentLineageEntryId": TEXT}),
        right=of_table(Right.INSERT),
    )
    async def start(self, request: web.Request) -> web.Response:
        """`?forceCleanup=true` reverts replacements under way that use the same segments; in REFRESH tables it also
        removes what the inputs themselves have replaced, so that two generations are kept."""
        body = parse_body(StartBody, await request.read())
        is_forced = flag(request, "forceCleanup")
        entry = await asyncio.to_thread(self._start, _table(request), body, is_forced)
        return json_answer({"segmentLineageEntryId": entry})

    def _start(self, table: str, body: StartBody, is_forced: bool) -> str:
        record = get_table(self._metastore, table)
        if spec_of(record).spec.upsert is not None:
            raise InvalidInputError(
                f"segments of an upsert table are replaced by publishing others in their place table={record.name}"
            )
        replacement = Replacement(
            segments_from=[_input(name, body.segment_crcs) for name in body.segments_from],
            segments_to=body.segments_to,
            custom_map=body.custom_map,
            entry=body.segment_lineage_entry_id,
            force=is_forced,
            drops_older=is_forced and spec_of(record).spec.push_type is PushType.REFRESH,
        )
        return lineage.start_replacement(self._metastore, record.name, replacement, context=self._context)

    @answered
    @describe(
        answers.ENTRY,
        answers.TYPE,
        query("timeoutSeconds", "How long to wait for servers to load the outputs.", NUMBER),
        body=EndBody,
        is_body_required=False,
        answer=answers.LINEAGE_ENTRY,
        right=of_table(Right.INSERT),
    )
    async def end(self, request: web.Request) -> web.Response:
        """Waits until the outputs are loaded; 503 if they are not in time: call it again."""
        data = await request.read()
        body = parse_body(EndBody, data) if data.strip() else EndBody()
        ending = EndOptions(segments_to=body.segments_to, custom_map=body.custom_map)
        table = (await asyncio.to_thread(get_table, self._metastore, _table(request))).name
        deadline = time.monotonic() + _seconds(request, "timeoutSeconds", WAIT_S)
        pause_s, longest_s = LOOK_S
        while True:
            try:
                entry = await asyncio.to_thread(self._end, table, _entry_id(request), ending)
                return json_answer(_to_json(entry))
            except UnavailableError:
                # This polls rather than waits in a thread: a thread per request would leave none for other requests.
                if time.monotonic() + pause_s > deadline:
                    raise
                await asyncio.sleep(pause_s)
                pause_s = min(longest_s, pause_s * 2)

    def _end(self, table: TableName, entry: str, ending: EndOptions) -> LineageEntry:
        return lineage.end_replacement(self._metastore, table, entry, ending, context=self._context)

    @answered
    @describe(
        answers.ENTRY,
        answers.TYPE,
        query("forceRevert", "Revert a replacement that has not ended.", FLAG),
        answer=answers.LINEAGE_ENTRY,
        right=of_table(Right.INSERT),
    )
    async def revert(self, request: web.Request) -> web.Response:
        """`?forceRevert=true` for a replacement that has not ended."""
        table, entry, is_forced = _table(request), _entry_id(request), flag(request, "forceRevert")
        reverted = await asyncio.to_thread(self._revert, table, entry, is_forced)
        return json_answer(_to_json(reverted))

    def _revert(self, table: str, entry: str, is_forced: bool) -> LineageEntry:
        name = get_table(self._metastore, table).name
        return lineage.revert_replacement(self._metastore, name, entry, force=is_forced, context=self._context)

    @answered
    @describe(
        answers.TYPE,
        answer=record({"tableNameWithType": TEXT, "lineageEntries": by_name(answers.LINEAGE_ENTRY)}),
        right=of_table(*READING),
    )
    async def lineage(self, request: web.Request) -> web.Response:
        """All entries that are not cleaned up yet, in the order of their times."""
        return json_answer(await asyncio.to_thread(self._lineage, _table(request)))

    @answered
    @describe(
        answers.TYPE,
        answer=record({"brokers": by_name(one_of("Routed", "Behind", "Unreachable"))}),
        right=of_table(*READING),
    )
    async def brokers(self, request: web.Request) -> web.Response:
        """Not Pinot's: whether each live broker sends queries to the outputs of an entry that has ended."""
        table = (await asyncio.to_thread(get_table, self._metastore, _table(request))).name
        brokers = await asyncio.to_thread(live_instances, self._metastore, Role.BROKER)
        entry = request.match_info["entry"]
        timeout = aiohttp.ClientTimeout(total=BROKER_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout, headers=passed_credentials(request)) as session:
            states = await asyncio.gather(
                *(_routing(session, broker, table, entry, tls_of(request.app)) for broker in brokers.values())
            )
        return json_answer({"brokers": dict(zip(brokers, states, strict=True))})

    def _lineage(self, table: str) -> dict[str, Any]:
        name = get_table(self._metastore, table).name
        entries = sorted(lineage.list_entries(self._metastore, name), key=lambda entry: (entry.since_ms, entry.id))
        return {"tableNameWithType": name, "lineageEntries": {entry.id: _to_json(entry) for entry in entries}}


async def _routing(
    session: aiohttp.ClientSession, broker: InstanceRecord, table: TableName, entry: str, tls: ssl.SSLContext | bool
) -> str:
    """Return one broker's state: Routed, Behind, or Unreachable."""
    url = f"{http_url(broker.host, broker.http_port, tls=broker.tls)}/debug/lineage/{quote(raw_name(table))}"
    try:
        async with session.get(url, ssl=tls) as answer:
            halves = list((await answer.json()).values()) if answer.status == HTTPStatus.OK else []
    except (aiohttp.ClientError, TimeoutError) as error:
        _LOG.info("broker does not say what it routes to url=%s cause=%r", url, error)
        return "Unreachable"
    return "Routed" if halves and all(entry in half["completed"] for half in halves) else "Behind"


def _to_json(entry: LineageEntry) -> dict[str, Any]:
    """Return Pinot's fields, followed by Merlot's own."""
    return {
        "segmentsFrom": list(entry.segments_from),
        "segmentsTo": list(entry.segments_to),
        "state": str(entry.state),
        "timestamp": entry.since_ms,
        "createdMs": entry.created_ms,
        "customMap": dict(entry.custom_map),
    }


def _table(request: web.Request) -> str:
    half = request.query.get("type", "OFFLINE").upper()
    if half != OFFLINE_SUFFIX.removeprefix("_"):
        raise InvalidInputError(f"table type has no segments to replace, leave it out or say OFFLINE type={half!r}")
    return request.match_info["table"]


def _input(name: str, crcs: Mapping[str, int]) -> SegmentKey | str:
    return SegmentKey(SegmentName(name), crcs[name]) if name in crcs else name


def _entry_id(request: web.Request) -> str:
    entry = request.query.get("segmentLineageEntryId", "")
    if not entry:
        raise InvalidInputError("segmentLineageEntryId is missing: give the id that startReplaceSegments answered")
    return entry


def _seconds(request: web.Request, name: str, default: float) -> float:
    text = request.query.get(name, "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise InvalidInputError(f"{name} must be 0 to {LONGEST_WAIT_S:.0f} seconds got={text!r}")
    return seconds
