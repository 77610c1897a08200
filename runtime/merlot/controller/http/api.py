"""The controller over HTTP: Pinot's paths, and Merlot's own for manifests and publishing.

`routes` returns plain routes, so that an embedded node can serve them beside the broker's on one port. Handlers parse,
call the service on a thread, and shape the answer. Errors are `{"code", "error"}` with the status of their family.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, TypeVar

import aiohttp
import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

import merlot
from merlot.cluster.fence import FENCE_HEADER, Fence
from merlot.cluster.fence import parse as parse_fence
from merlot.cluster.records import AnnotationRecord, SegmentRecord
from merlot.cluster.segments.publish import PublishRequest
from merlot.controller.http import (
    absent_api,
    answers,
    lineage_api,
    merge_api,
    pinot_api,
    read_api,
    recovery_api,
    segment_api,
    segment_deletes,
    segments_in_window,
    stream_api,
)
from merlot.controller.http.responses import answered, asked_half, flag, json_answer, parse_body
from merlot.controller.service import ControllerService
from merlot.errors import (
    UnavailableError,
)
from merlot.http.described import FLAG, OBJECT, PLAIN, TEXT, WHOLE, array, by_name, describe, query, record
from merlot.http.door import (
    PUBLIC,
    READING,
    authorize,
    hidden_columns,
    of_any,
    of_cluster,
    of_table,
    passed_credentials,
    sees,
)
from merlot.http.guard import BODY_LIMITS, BodyLimit
from merlot.http.health import health_routes
from merlot.http.openapi import with_description
from merlot.http.process import process_routes
from merlot.http.tls_door import tls_of
from merlot.ids import raw_name
from merlot.pinot import cluster_json
from merlot.pinot.schema_json import without_columns
from merlot.security.access import Right
from merlot.spec.table import MAX_TIMEOUT_MS
from merlot.uris import http_url, redact

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PUBLISH_LIMIT = BodyLimit(256 << 20, timeout_s=600.0)
"""Limit for 100,000 records with many columns."""
UPLOAD_LIMIT = BodyLimit(64 << 20, timeout_s=600.0)
"""Limit of uploads. A controller handles two such bodies at a time, and holds half a gigabyte of bodies at most."""
LIMITS = {
    "/segments": UPLOAD_LIMIT,
    "/v2/segments": UPLOAD_LIMIT,
    "/segments/{table}/publish": PUBLISH_LIMIT,
    "/segments/{table}/annotate": PUBLISH_LIMIT,
    "/segments/{table}/delete": BodyLimit(32 << 20, timeout_s=120.0),
    "/segments/{table}/startReplaceSegments": BodyLimit(32 << 20, timeout_s=120.0),
    "/apply": BodyLimit(4 << 20),
    "/sql": BodyLimit(4 << 20),
}
"""Limits of routes that take more than a megabyte."""

PROXY_CONNECT_S = 5.0
PROXY_TOTAL_S = MAX_TIMEOUT_MS / 1000
"""Longest time of a query; its broker ends it at its own deadline."""

PASSED_HEADERS = ("X-Correlation-Id", "Database", "Pinot-Use-Http-Status-For-Errors")
ANSWERED_HEADERS = ("Content-Type", "X-Pinot-Error-Code")


class PublishBody(BaseModel):
    """Body of `POST /segments/{t}/publish`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    publish_id: str = ""
    records: tuple[SegmentRecord, ...] = ()
    replace: tuple[str, ...] = ()
    """Names of segments that the records replace. Those that are not among the records are removed in the same
    write."""
    replace_all: bool = Field(default=False)
    """True: every segment that is not among the records is removed."""
    replace_rows: bool = Field(default=False)
    """True: rows may be removed that the records do not hold, or all of them if there are no records. Refused
    otherwise."""
    dry_run: bool = Field(default=False)
    """True: answer what would become of the segments, and write nothing."""
    segment_lineage_entry_id: str = ""
    """Replacement that the records are outputs of. Refused if it does not wait for them."""
    shape: dict[str, str] | None = None
    """Shape (`spec.shape`) of the manifest that the segments were built by. Refused if the table has another one.
    Without it only the records' columns are compared."""


class AnnotateBody(BaseModel):
    """Body of `POST /segments/{t}/annotate`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    annotations: tuple[AnnotationRecord, ...]


def make_app(service: ControllerService) -> web.Application:
    """Return an application of these routes only."""
    app = web.Application()
    app[BODY_LIMITS] = LIMITS
    app.add_routes(with_description(routes(service), "Merlot controller"))
    return app


def routes(service: ControllerService) -> list[web.RouteDef]:
    """Return all routes; HEAD comes with GET."""
    api = _ControllerApi(service)
    return [
        # A silent metastore is no reason to restart a controller, only to ask another controller.
        *health_routes(api.health),
        *process_routes(),
        web.get("/status", api.status),
        web.get("/version", api.version),
        web.get("/databases", api.databases),
        web.get("/instances", api.instances),
        web.get("/instances/{instance}", api.instance),
        web.post("/instances/{instance}/drain", api.drain),
        web.post("/instances/{instance}/undrain", api.undrain),
        web.get("/tables", api.tables),
        web.get("/tables/livebrokers", api.live_brokers),
        web.get("/tables/{table}", api.table),
        web.delete("/tables/{table}", api.delete_table),
        web.get("/tables/{table}/manifest", api.manifest),
        web.get("/tables/{table}/schema", api.schema),
        web.get("/tables/{table}/instances", api.table_instances),
        web.get("/tables/{table}/size", api.size),
        web.get("/tables/{table}/metadata", api.metadata),
        web.get("/tables/{table}/rebalance", api.rebalance_progress),
        web.post("/tables/{table}/rebalance", api.rebalance),
        web.delete("/tables/{table}/rebalance", api.abort_rebalance),
        web.get("/v2/brokers", api.brokers_by_all),
        web.get("/v2/brokers/tables", api.brokers_by_table),
        web.get("/v2/brokers/tables/{table}", api.brokers_of_table),
        web.get("/v2/brokers/tenants", api.brokers_by_tenant),
        web.get("/v2/brokers/tenants/{tenant}", api.brokers),
        web.get("/segments/{table}", api.segments),
        web.get("/segments/{table}/metadata", api.segments_metadata),
        web.get("/segments/{table}/{segment}/metadata", api.segment_metadata),
        web.post("/segments/{table}/publish", api.publish),
        web.post("/segments/{table}/annotate", api.annotate),
        web.post("/apply", api.apply),
        *read_api.routes(service.reading),
        *pinot_api.routes(service),
        *segment_api.routes(service),
        *segment_deletes.routes(service),
        *merge_api.routes(service.merges),
        *stream_api.routes(service.streams),
        *recovery_api.routes(service.recovery),
        *segments_in_window.routes(service),
        *lineage_api.routes(*service.lineage_source),
        web.get("/sql", api.sql),
        web.post("/sql", api.sql),
        *absent_api.routes(),  # last: a pattern may fit a path that is there
    ]


class _ControllerApi:
    """Handlers over one service."""

    def __init__(self, service: ControllerService) -> None:
        self._service = service
        self._applying = asyncio.Semaphore(1)
        """Allows one application at a time. A manifest of 100,000 values takes half a second of Python."""

    @answered
    @describe(answer=TEXT, media_type=PLAIN, right=PUBLIC)
    async def health(self, _request: web.Request) -> web.Response:
        await asyncio.to_thread(self._service.ping)
        return web.Response(text="OK")

    @answered
    @describe(answer=OBJECT, right=of_cluster(*READING))
    async def status(self, request: web.Request) -> web.Response:
        """Everything an operator watches, in one answer; 304 if it has not changed since the caller's `ETag`."""
        answer = await asyncio.to_thread(self._service.status)
        headers = {"ETag": f'"{answer.etag}"'}
        if any(tag.value == answer.etag for tag in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=answer.body, content_type="application/json", headers=headers)

    @answered
    @describe(
        query("leaving", "For good: its segments are moved to other servers first.", FLAG),
        answers.FENCE,
        answer=record({"draining": FLAG, "leaving": FLAG, "sinceMs": WHOLE}),
        right=of_cluster(Right.ADMIN),
    )
    async def drain(self, request: web.Request) -> web.Response:
        """`?leaving=true`: for good; its segments are moved to other servers first."""
        leaving = flag(request, "leaving")
        instance = request.match_info["instance"]
        mark = await asyncio.to_thread(self._service.drain, instance, leaving=leaving, fence=_fence(request))
        return json_answer({"draining": True, "leaving": mark.leaving, "sinceMs": mark.since_ms})

    @answered
    @describe(answers.FENCE, answer=record({"draining": FLAG}), right=of_cluster(Right.ADMIN))
    async def undrain(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self._service.undrain, request.match_info["instance"], fence=_fence(request))
        return json_answer({"draining": False})

    @answered
    @describe(answer=by_name(TEXT), right=of_any(*READING))
    async def version(self, _request: web.Request) -> web.Response:
        # Metabase's driver asks for this very key.
        return json_answer({"merlot": merlot.__version__, "pinot-segment-uploader-default": merlot.__version__})

    @answered
    @describe(answer=answers.NAMES, right=of_any(*READING))
    async def databases(self, _request: web.Request) -> web.Response:
        return json_answer(["default"])

    @answered
    @describe(answer=record({"instances": answers.NAMES, "details": array(answers.INSTANCE)}), right=of_any(*READING))
    async def instances(self, _request: web.Request) -> web.Response:
        records = await asyncio.to_thread(self._service.instances)
        names = sorted(records)
        return json_answer({"instances": names, "details": [cluster_json.instance(records[name]) for name in names]})

    @answered
    @describe(answer=answers.INSTANCE, right=of_any(*READING))
    async def instance(self, request: web.Request) -> web.Response:
        record = await asyncio.to_thread(self._service.instance, request.match_info["instance"])
        return json_answer(cluster_json.instance(record))

    @answered
    @describe(answer=record({"tables": answers.NAMES}), right=of_any(*READING))
    async def tables(self, request: web.Request) -> web.Response:
        return json_answer({"tables": await self._seen_tables(request)})

    async def _seen_tables(self, request: web.Request) -> list[str]:
        """Return the raw names of the tables that the caller may know of."""
        names = await asyncio.to_thread(self._service.table_names)
        return [name for name in names if sees(request, name)]

    @answered
    @describe(answers.TYPE, answer=by_name(answers.TABLE_CONFIG), right=of_table(*READING, is_whole=True))
    async def table(self, request: web.Request) -> web.Response:
        """Pinot's table configs, by half; of a typed name, or with `?type=`, of that half."""
        half = asked_half(request)
        configs = await asyncio.to_thread(self._service.reading.configs_by_half, request.match_info["table"])
        return json_answer({name: config for name, config in configs.items() if half in (None, name)})

    @answered
    @describe(answer=answers.MANIFEST, right=of_table(*READING, is_whole=True))
    async def manifest(self, request: web.Request) -> web.Response:
        """With what publishers have to keep to: the deep store of the table's files, null if this process has none, and
        the shape that segments have to be built for."""
        name = request.match_info["table"]
        record = await asyncio.to_thread(self._service.table, name)
        expected = await asyncio.to_thread(self._service.expected_of_publishers, name)
        body = orjson.dumps({"revision": record.revision, "manifest": record.manifest, **expected})
        # Manifests from before such URIs were refused may contain credentials.
        return web.Response(text=redact(body.decode()), content_type="application/json")

    @answered
    @describe(answer=answers.SCHEMA, right=of_table(*READING))
    async def schema(self, request: web.Request) -> web.Response:
        name = request.match_info["table"]
        schema = await asyncio.to_thread(self._service.schema, name)
        return json_answer(without_columns(schema, hidden_columns(request, name)))

    @answered
    @describe(answer=answers.TABLE_INSTANCES, right=of_table(*READING))
    async def table_instances(self, request: web.Request) -> web.Response:
        return await self._of_table(request, self._service.instances_of_table)

    @answered
    @describe(answer=answers.SIZE, right=of_table(*READING))
    async def size(self, request: web.Request) -> web.Response:
        return await self._of_table(request, self._service.size)

    @answered
    @describe(answer=answers.METADATA, right=of_table(*READING, is_whole=True))
    async def metadata(self, request: web.Request) -> web.Response:
        return await self._of_table(request, self._service.metadata)

    @answered
    @describe(answers.DRY_RUN, answer=answers.REBALANCE, right=of_table(Right.MANAGE))
    async def rebalance(self, request: web.Request) -> web.Response:
        """`?dryRun=true`: what would move."""
        rebalancing = self._service.rebalancing
        return await self._of_table(request, rebalancing.plan if _is_dry_run(request) else rebalancing.start)

    @answered
    @describe(answer=answers.REBALANCE_PROGRESS, right=of_table(*READING))
    async def rebalance_progress(self, request: web.Request) -> web.Response:
        return await self._of_table(request, self._service.rebalancing.progress)

    @answered
    @describe(answer=answers.REBALANCE_PROGRESS, right=of_table(Right.MANAGE))
    async def abort_rebalance(self, request: web.Request) -> web.Response:
        return await self._of_table(request, self._service.rebalancing.abort)

    @answered
    @describe(answers.TYPE, answer=answers.STATUS, right=of_table(Right.MANAGE))
    async def delete_table(self, request: web.Request) -> web.Response:
        """`?type=OFFLINE` names a half, as a name's suffix does."""
        name, half = request.match_info["table"], request.query.get("type")
        if half is not None:
            name = f"{raw_name(name)}_{half.upper()}"
        names = await asyncio.to_thread(self._service.reading.typed_names_of, name)
        await asyncio.to_thread(self._service.delete_table, name)
        return json_answer({"status": f"Tables: [{', '.join(names)}] deleted"})

    @answered
    @describe(
        query("tables", "Names of tables, with commas between; all if left out."),
        answer=by_name(answers.BROKERS),
        right=of_any(*READING),
    )
    async def live_brokers(self, request: web.Request) -> web.Response:
        asked = [raw_name(name) for text in request.query.getall("tables", []) for name in text.split(",") if name]
        brokers = await asyncio.to_thread(self._service.brokers)
        names = await asyncio.to_thread(self._service.reading.typed_names)
        return json_answer({name: brokers for name in names if _is_wanted(request, name, asked)})

    @answered
    @describe(
        answer=record({"tenants": by_name(answers.BROKERS), "tables": by_name(answers.BROKERS)}), right=of_any(*READING)
    )
    async def brokers_by_all(self, request: web.Request) -> web.Response:
        """Live brokers, by tenant and by table."""
        brokers = await asyncio.to_thread(self._service.brokers)
        names = await self._seen_tables(request)
        return json_answer({"tenants": {"default": brokers}, "tables": dict.fromkeys(names, brokers)})

    @answered
    @describe(answer=by_name(answers.BROKERS), right=of_any(*READING))
    async def brokers_by_table(self, request: web.Request) -> web.Response:
        brokers = await asyncio.to_thread(self._service.brokers)
        # Raw names, as in Pinot: its client for Node looks tables up so.
        return json_answer(dict.fromkeys(await self._seen_tables(request), brokers))

    @answered
    @describe(answer=answers.BROKERS, right=of_table(*READING))
    async def brokers_of_table(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self._service.table, request.match_info["table"])
        return json_answer(await asyncio.to_thread(self._service.brokers))

    @answered
    @describe(answer=by_name(answers.BROKERS), right=of_any(*READING))
    async def brokers_by_tenant(self, _request: web.Request) -> web.Response:
        return json_answer({"default": await asyncio.to_thread(self._service.brokers)})

    @answered
    @describe(answer=answers.BROKERS, right=of_any(*READING))
    async def brokers(self, _request: web.Request) -> web.Response:
        return json_answer(await asyncio.to_thread(self._service.brokers))

    @answered
    @describe(
        query("excludeReplacedSegments", "Without segments that others have taken the place of.", FLAG),
        answers.TYPE,
        answer=answers.BY_HALF,
        right=of_table(*READING),
    )
    async def segments(self, request: web.Request) -> web.Response:
        is_short = flag(request, "excludeReplacedSegments")
        table, half = request.match_info["table"], asked_half(request)
        by_half = await asyncio.to_thread(lambda: self._service.segments(table, only_visible=is_short))
        return json_answer([names for names in by_half if half is None or half in names])

    @answered
    @describe(answer=by_name(answers.SEGMENT), right=of_table(*READING, is_whole=True))
    async def segments_metadata(self, request: web.Request) -> web.Response:
        return await self._of_table(request, self._service.segment_statuses)

    @answered
    @describe(answer=answers.SEGMENT, right=of_table(*READING, is_whole=True))
    async def segment_metadata(self, request: web.Request) -> web.Response:
        table, segment = request.match_info["table"], request.match_info["segment"]
        statuses = await asyncio.to_thread(self._service.segment_statuses, table, segment)
        return json_answer(statuses[segment])

    @answered
    @describe(body=PublishBody, answer=answers.PUBLISHED, right=of_table(Right.INSERT))
    async def publish(self, request: web.Request) -> web.Response:
        data = await request.read()
        body = await asyncio.to_thread(_parse_publish, data)
        result = await asyncio.to_thread(self._service.publish, request.match_info["table"], body)
        return json_answer(
            {
                "published": result.published,
                "unchanged": result.unchanged,
                "removed": result.removed,
                "replaced": result.replaced,
                "rows": dataclasses.asdict(result.rows),
                "epoch": result.epoch,
            }
        )

    @answered
    @describe(body=AnnotateBody, answer=answers.ANNOTATED, right=of_table(Right.INSERT))
    async def annotate(self, request: web.Request) -> web.Response:
        body = await asyncio.to_thread(parse_body, AnnotateBody, await request.read())
        result = await asyncio.to_thread(self._service.annotate, request.match_info["table"], body.annotations)
        return json_answer(
            {
                "annotated": result.annotated,
                "unchanged": result.unchanged,
                "replaced": result.replaced,
                "epoch": result.epoch,
            }
        )

    @answered
    @describe(answers.DRY_RUN, bodies={"application/yaml": TEXT}, answer=answers.APPLIED, right=of_any(Right.MANAGE))
    async def apply(self, request: web.Request) -> web.Response:
        text = (await request.read()).decode(errors="replace")
        may_manage = partial(authorize, request, Right.MANAGE)
        async with self._applying:
            results = await asyncio.to_thread(
                self._service.apply, text, dry_run=_is_dry_run(request), authorize=may_manage
            )
        return json_answer([result.to_json() for result in results])

    @answered
    @describe(
        query("sql", "The query, of a GET."),
        query("queryOptions", "Options of a GET, as name=value;name=value."),
        body=record(sql=TEXT, queryOptions=TEXT),
        is_body_required=False,
        answer=OBJECT,
        failed=OBJECT,
        right=of_any(Right.QUERY),
    )
    async def sql(self, request: web.Request) -> web.Response:
        """Hand a query to a live broker: some clients know the controller only."""
        brokers = await asyncio.to_thread(self._service.broker_records)
        if not brokers:
            raise UnavailableError("no broker is live; start one, or wait until it has registered")
        headers = {name: request.headers[name] for name in PASSED_HEADERS if name in request.headers}
        headers |= passed_credentials(request)
        headers["Content-Type"] = request.headers.get("Content-Type", "application/json")
        timeout = aiohttp.ClientTimeout(total=PROXY_TOTAL_S, connect=PROXY_CONNECT_S)
        body = await request.read()
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for broker in brokers:
                url = f"{http_url(broker.host, broker.http_port, tls=broker.tls)}/query/sql"
                try:
                    return await _forward(session, request, url, body, headers)
                except aiohttp.ClientConnectorError as error:
                    _LOG.warning("broker cannot be reached url=%s cause=%s", url, error)
                except (aiohttp.ClientError, TimeoutError) as error:
                    raise UnavailableError(f"broker failed url={url} cause={error!r}") from error
        raise UnavailableError(f"no broker can be reached num_brokers={len(brokers)}")

    async def _of_table(self, request: web.Request, read: Callable[[str], Any]) -> web.Response:
        return json_answer(await asyncio.to_thread(read, request.match_info["table"]))


def _is_wanted(request: web.Request, table: str, asked: Collection[str]) -> bool:
    """Return True if a list is to contain a table: asked for, or all are, and the caller may know of it."""
    return (not asked or raw_name(table) in asked) and sees(request, table)


def _fence(request: web.Request) -> Fence | None:
    """Return the fence of an operator, which may have been superseded without knowing it."""
    text = request.headers.get(FENCE_HEADER)
    return None if text is None else parse_fence(text)


def _is_dry_run(request: web.Request) -> bool:
    return request.query.get("dryRun", "").lower() == "all" or flag(request, "dryRun")


async def _forward(
    session: aiohttp.ClientSession, request: web.Request, url: str, body: bytes, headers: dict[str, str]
) -> web.Response:
    async with session.request(
        request.method, url, params=request.query, data=body, headers=headers, ssl=tls_of(request.app)
    ) as answer:
        passed = {name: answer.headers[name] for name in ANSWERED_HEADERS if name in answer.headers}
        return web.Response(status=answer.status, body=await answer.read(), headers=passed)


def _parse_publish(data: bytes) -> PublishRequest:
    body = parse_body(PublishBody, data)
    return PublishRequest(
        records=body.records,
        publish_id=body.publish_id,
        replace=body.replace,
        replace_all=body.replace_all,
        replace_rows=body.replace_rows,
        is_dry_run=body.dry_run,
        entry=body.segment_lineage_entry_id,
        shape=body.shape,
    )
