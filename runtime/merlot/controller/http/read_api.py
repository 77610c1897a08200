"""Pinot's paths to read a cluster by: configs, states, tenants, brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from merlot.controller.http import answers
from merlot.controller.http.responses import answered, asked_half, json_answer
from merlot.errors import InvalidInputError
from merlot.http.described import FLAG, OBJECT, PLAIN, TEXT, array, by_name, describe, one_of, query, record
from merlot.http.door import IDENTIFIED, PUBLIC, READING, is_guarded, may, may_any, of_any, of_table, sees
from merlot.pinot.reads import PinotReads
from merlot.security.access import Right

_RIGHTS: Final = {
    "READ": Right.QUERY,
    "CREATE": Right.INSERT,
    "UPDATE": Right.MANAGE,
    "DELETE": Right.MANAGE,
}
"""Right by Pinot's kind of access."""


def routes(service: PinotReads) -> list[web.RouteDef]:
    """Return all routes."""
    api = _ReadApi(service)
    return [
        web.get("/tableConfigs", api.table_names),
        web.get("/tableConfigs/{table}", api.table_configs),
        web.get("/tables/{table}/idealstate", api.ideal_state),
        web.get("/tables/{table}/externalview", api.external_view),
        web.get("/tables/{table}/segmentsStatus", api.segment_states),
        web.get("/tables/{table}/state", api.state),
        web.get("/tables/{table}/pauseStatus", api.pause_status),
        web.get("/tenants", api.tenants),
        web.get("/tenants/{tenant}", api.tenant),
        web.get("/brokers", api.brokers),
        web.get("/brokers/tables", api.brokers_by_table),
        web.get("/brokers/tables/{table}", api.brokers_of_table),
        web.get("/brokers/tenants", api.brokers_by_tenant),
        web.get("/brokers/tenants/{tenant}", api.brokers_of_tenant),
        web.get("/cluster/info", api.cluster_info),
        web.get("/cluster/configs", api.cluster_configs),
        web.get("/pinot-controller/admin", api.admin),
        web.get("/auth/info", api.auth_info),
        web.get("/auth/verify", api.auth_verify),
        web.get("/auth/verify/v2", api.auth_verify),
    ]


class _ReadApi:
    """Handlers over one service."""

    def __init__(self, service: PinotReads) -> None:
        self._service = service

    @answered
    @describe(answer=answers.NAMES, right=of_any(*READING))
    async def table_names(self, request: web.Request) -> web.Response:
        """Names of all tables that the caller may know of."""
        names = await asyncio.to_thread(self._service.table_names)
        return json_answer([name for name in names if sees(request, name)])

    @answered
    @describe(answer=answers.TABLE_CONFIGS, right=of_table(*READING, is_whole=True))
    async def table_configs(self, request: web.Request) -> web.Response:
        """A table's schema and the configs of its halves, in Pinot's form."""
        return await self._of_table(request, self._service.table_configs)

    @answered
    @describe(answers.TYPE, answer=answers.STATES_BY_HALF, right=of_table(*READING))
    async def ideal_state(self, request: web.Request) -> web.Response:
        """Return what every server should have, by half and segment; of a typed name, or with `?type=`, of that
        half."""
        return await self._by_half(request, self._service.ideal_state)

    @answered
    @describe(answers.TYPE, answer=answers.STATES_BY_HALF, right=of_table(*READING))
    async def external_view(self, request: web.Request) -> web.Response:
        """Return what servers report to have, by half and segment; of a typed name, or with `?type=`, of that half."""
        return await self._by_half(request, self._service.external_view)

    @answered
    @describe(
        answer=array(record({"segmentName": TEXT, "segmentStatus": one_of("GOOD", "PARTIAL", "BAD")})),
        right=of_table(*READING),
    )
    async def segment_states(self, request: web.Request) -> web.Response:
        """GOOD, PARTIAL or BAD of each segment."""
        return await self._of_table(request, self._service.segment_states)

    @answered
    @describe(answer=record({"state": one_of("enabled", "disabled")}), right=of_table(*READING))
    async def state(self, request: web.Request) -> web.Response:
        """Say if the table is enabled: `disabled` if its manifest suspends it. PUT changes it."""
        if "state" in request.query:
            raise InvalidInputError("GET changes nothing: PUT /tables/{table}/state?state=enable, or disable")
        return await self._of_table(request, self._service.state)

    @answered
    @describe(
        answer=record({"pauseFlag": FLAG, "consumingSegments": answers.NAMES, "comment": TEXT}),
        right=of_table(*READING),
    )
    async def pause_status(self, request: web.Request) -> web.Response:
        """Say if the table's stream is paused, and which segments still consume."""
        return await self._of_table(request, self._service.pause_status)

    @answered
    @describe(answer=record({"SERVER_TENANTS": answers.NAMES, "BROKER_TENANTS": answers.NAMES}), right=of_any(*READING))
    async def tenants(self, _request: web.Request) -> web.Response:
        """Names of tenants."""
        return json_answer(await asyncio.to_thread(self._service.tenants))

    @answered
    @describe(
        answer=record({"tenantName": TEXT, "ServerInstances": answers.NAMES, "BrokerInstances": answers.NAMES}),
        right=of_any(*READING),
    )
    async def tenant(self, request: web.Request) -> web.Response:
        """Live instances of a tenant."""
        return json_answer(await asyncio.to_thread(self._service.tenant, request.match_info["tenant"]))

    @answered
    @describe(
        answer=record({"tenants": by_name(answers.NAMES), "tables": by_name(answers.NAMES)}), right=of_any(*READING)
    )
    async def brokers(self, request: web.Request) -> web.Response:
        """Names of live brokers, by tenant and by table."""
        names = await asyncio.to_thread(self._service.broker_names)
        tables = await self._seen_typed_names(request)
        return json_answer({"tenants": {"default": names}, "tables": dict.fromkeys(tables, names)})

    @answered
    @describe(answer=by_name(answers.NAMES), right=of_any(*READING))
    async def brokers_by_table(self, request: web.Request) -> web.Response:
        """Names of live brokers, by table."""
        names = await asyncio.to_thread(self._service.broker_names)
        return json_answer(dict.fromkeys(await self._seen_typed_names(request), names))

    @answered
    @describe(answer=answers.NAMES, right=of_table(*READING))
    async def brokers_of_table(self, request: web.Request) -> web.Response:
        """Names of the live brokers of a table: every broker serves every table."""
        await asyncio.to_thread(self._service.state, request.match_info["table"])
        return json_answer(await asyncio.to_thread(self._service.broker_names))

    @answered
    @describe(answer=by_name(answers.NAMES), right=of_any(*READING))
    async def brokers_by_tenant(self, _request: web.Request) -> web.Response:
        """Names of live brokers, by tenant."""
        return json_answer({"default": await asyncio.to_thread(self._service.broker_names)})

    @answered
    @describe(answer=answers.NAMES, right=of_any(*READING))
    async def brokers_of_tenant(self, _request: web.Request) -> web.Response:
        """Names of the live brokers of a tenant: every broker serves every table."""
        return json_answer(await asyncio.to_thread(self._service.broker_names))

    @answered
    @describe(answer=record({"clusterName": TEXT}), right=of_any(*READING))
    async def cluster_info(self, _request: web.Request) -> web.Response:
        """The cluster's name."""
        return json_answer({"clusterName": "merlot"})

    @answered
    @describe(answer=OBJECT, right=of_any(*READING))
    async def cluster_configs(self, _request: web.Request) -> web.Response:
        """Settings that the cluster keeps: none, each process has its own."""
        return json_answer({})

    @answered
    @describe(answer=TEXT, media_type=PLAIN, right=PUBLIC)
    async def admin(self, _request: web.Request) -> web.Response:
        """GOOD, while the metastore answers."""
        await asyncio.to_thread(self._service.ping)
        return web.Response(text="GOOD")

    @answered
    @describe(answer=record({"workflow": TEXT}), right=PUBLIC)
    async def auth_info(self, request: web.Request) -> web.Response:
        """Say how Pinot's console is to log in: NONE without an access document, BASIC with one."""
        return json_answer({"workflow": "BASIC" if is_guarded(request) else "NONE"})

    @answered
    @describe(
        query("tableName", "Table that the access is to; any table if left out."),
        query("accessType", "READ, CREATE, UPDATE or DELETE; READ if left out."),
        answer=FLAG,
        right=IDENTIFIED,
    )
    async def auth_verify(self, request: web.Request) -> web.Response:
        """Say whether the caller may read, or change, a table."""
        kind = request.query.get("accessType", "READ").upper()
        if kind not in _RIGHTS:
            raise InvalidInputError(f"accessType must be one of {', '.join(_RIGHTS)} got={kind!r:.50}")
        table = request.query.get("tableName", "")
        right = _RIGHTS[kind]
        return json_answer(may(request, right, table) if table else may_any(request, right))

    async def _seen_typed_names(self, request: web.Request) -> list[str]:
        names = await asyncio.to_thread(self._service.typed_names)
        return [name for name in names if sees(request, name)]

    async def _by_half(self, request: web.Request, read: Callable[[str], dict[str, Any]]) -> web.Response:
        half = asked_half(request)
        answer = await asyncio.to_thread(read, request.match_info["table"])
        return json_answer({name: states if half in (None, name) else None for name, states in answer.items()})

    async def _of_table(self, request: web.Request, read: Callable[[str], Any]) -> web.Response:
        return json_answer(await asyncio.to_thread(read, request.match_info["table"]))
