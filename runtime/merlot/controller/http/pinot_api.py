"""Pinot's HTTP paths that write tables and schemas, and read schemas, in the form of Pinot's configs. The answers'
`notes` are Merlot's own: they say what became of settings that have no equivalent.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp import web

from merlot.controller.http import answers
from merlot.controller.http.responses import answered, flag, json_answer
from merlot.controller.service import ControllerService
from merlot.errors import InvalidInputError
from merlot.http.described import FLAG, describe, one_of, query
from merlot.http.door import READING, authorize, hidden_columns, of_any, of_table, sees
from merlot.ids import raw_name
from merlot.pinot.schema_json import without_columns
from merlot.pinot.writes import PinotWriteResult
from merlot.security.access import Right

Json = dict[str, Any]

_IS_SUSPENDED = {"enable": False, "disable": True}
"""Requested states. The value is True if the state suspends the table."""


def routes(service: ControllerService) -> list[web.RouteDef]:
    """Return all routes."""
    api = _PinotApi(service)
    return [
        web.post("/tables", api.create_table),
        web.post("/tables/validate", api.validate_table),
        web.put("/tables/{table}", api.change_table),
        web.put("/tables/{table}/state", api.change_state),
        web.get("/schemas", api.schema_names),
        web.post("/schemas", api.create_schema),
        web.post("/schemas/validate", api.validate_schema),
        web.get("/schemas/{schema}", api.schema),
        web.put("/schemas/{schema}", api.change_schema),
        web.delete("/schemas/{schema}", api.delete_schema),
        web.post("/tableConfigs", api.create_configs),
        web.post("/tableConfigs/validate", api.validate_configs),
        web.put("/tableConfigs/{table}", api.change_configs),
        web.delete("/tableConfigs/{table}", api.delete_configs),
    ]


class _PinotApi:
    """Handlers over one service."""

    def __init__(self, service: ControllerService) -> None:
        self._service = service
        self._writes = service.pinot_writes

    @answered
    @describe(body=answers.NEW_TABLE_CONFIG, answer=answers.DONE, right=of_any(Right.MANAGE))
    async def create_table(self, request: web.Request) -> web.Response:
        """Add a table of Pinot's table config, or the half of one that it lacks; its schema was written before."""
        config = await _managed_object(request)
        result = await asyncio.to_thread(self._writes.create_table, config)
        return _done(f"Table {_name_with_type(config)} successfully added", result)

    @answered
    @describe(body=answers.NEW_TABLE_CONFIG, answer=answers.VALIDATED, right=of_any(Right.MANAGE))
    async def validate_table(self, request: web.Request) -> web.Response:
        """Say whether a table config could be added, and what of it has no equivalent."""
        config = await _managed_object(request)
        result = await asyncio.to_thread(self._writes.create_table, config, dry_run=True)
        return _with_notes({str(config["tableType"]).upper(): config}, result)

    @answered
    @describe(body=answers.NEW_TABLE_CONFIG, answer=answers.DONE, right=of_table(Right.MANAGE))
    async def change_table(self, request: web.Request) -> web.Response:
        """Change a table as Pinot's table config says; what such a config cannot say stays."""
        config = await _managed_object(request)
        result = await asyncio.to_thread(self._writes.change_table, request.match_info["table"], config)
        return _done(f"Table config updated for {_name_with_type(config)}", result)

    @answered
    @describe(
        query("state", "What the table is to be.", one_of("enable", "disable"), is_required=True),
        answers.TYPE,
        answer=answers.STATUS,
        right=of_table(Right.MANAGE),
    )
    async def change_state(self, request: web.Request) -> web.Response:
        """`?state=enable|disable`: whether queries of the table are answered; its manifest's `suspend`. `type` may name
        the half, of a table that has one."""
        name, table_type = request.match_info["table"], request.query.get("type")
        state = request.query.get("state", "")
        if table_type is not None:
            name = f"{raw_name(name)}_{table_type.upper()}"
        if state.lower() not in _IS_SUSPENDED:
            drop = "; to drop the table, DELETE /tables/{table}" if state.lower() == "drop" else ""
            raise InvalidInputError(f"state must be enable or disable got={state!r:.50}{drop}")
        await asyncio.to_thread(self._service.set_suspended, name, is_suspended=_IS_SUSPENDED[state.lower()])
        return json_answer({"status": f"Request to {state.lower()} table '{name}' is successful"})

    @answered
    @describe(answer=answers.NAMES, right=of_any(*READING))
    async def schema_names(self, request: web.Request) -> web.Response:
        """Names of all schemas: those of tables, and those that were written apart."""
        names = await asyncio.to_thread(self._writes.schema_names)
        return json_answer([name for name in names if sees(request, name)])

    @answered
    @describe(answer=answers.SCHEMA, right=of_table(*READING, parameter="schema"))
    async def schema(self, request: web.Request) -> web.Response:
        """A schema, in Pinot's form."""
        name = request.match_info["schema"]
        schema = await asyncio.to_thread(self._writes.schema, name)
        return json_answer(without_columns(schema, hidden_columns(request, name)))

    @answered
    @describe(
        query("override", "Change a schema that is there.", FLAG),
        body=answers.SCHEMA,
        answer=answers.DONE,
        right=of_any(Right.MANAGE),
    )
    async def create_schema(self, request: web.Request) -> web.Response:
        """Keep a schema for tables of its name, or change their columns. `?override=false`: only if it is new."""
        document, must_be_new = await _managed_object(request), not flag(request, "override", default=True)
        result = await asyncio.to_thread(self._writes.write_schema, document, is_new=must_be_new)
        return _done(f"{document['schemaName']} successfully added", result)

    @answered
    @describe(body=answers.SCHEMA, answer=answers.SCHEMA, right=of_any(Right.MANAGE))
    async def validate_schema(self, request: web.Request) -> web.Response:
        """Answer the schema if a table could have it."""
        return json_answer(await asyncio.to_thread(self._writes.check_schema, await _managed_object(request)))

    @answered
    @describe(body=answers.SCHEMA, answer=answers.DONE, right=of_table(Right.MANAGE, parameter="schema"))
    async def change_schema(self, request: web.Request) -> web.Response:
        """Change a schema, and the columns of the table that has it: columns are added and widened, none goes."""
        document = await _managed_object(request)
        result = await asyncio.to_thread(self._writes.write_schema, document, request.match_info["schema"])
        return _done(f"{document['schemaName']} successfully added", result)

    @answered
    @describe(answer=answers.STATUS, right=of_table(Right.MANAGE, parameter="schema"))
    async def delete_schema(self, request: web.Request) -> web.Response:
        """Forget a schema that no table has."""
        name = request.match_info["schema"]
        await asyncio.to_thread(self._writes.delete_schema, name)
        return json_answer({"status": f"Schema {name} deleted"})

    @answered
    @describe(body=answers.NEW_TABLE_CONFIGS, answer=answers.DONE, right=of_any(Right.MANAGE))
    async def create_configs(self, request: web.Request) -> web.Response:
        """Add a schema and its table, at once, of Pinot's TableConfigs."""
        document = await _managed_object(request)
        result = await asyncio.to_thread(self._writes.write_configs, document, creates=True)
        return _done(f"TableConfigs {result.names[0]} successfully added", result)

    @answered
    @describe(body=answers.NEW_TABLE_CONFIGS, answer=answers.VALIDATED, right=of_any(Right.MANAGE))
    async def validate_configs(self, request: web.Request) -> web.Response:
        """Say whether TableConfigs could be added, and what of them has no equivalent."""
        document = await _managed_object(request)
        result = await asyncio.to_thread(self._writes.write_configs, document, creates=True, dry_run=True)
        return _with_notes(document, result)

    @answered
    @describe(body=answers.NEW_TABLE_CONFIGS, answer=answers.DONE, right=of_table(Right.MANAGE))
    async def change_configs(self, request: web.Request) -> web.Response:
        """Change a table and its schema, at once."""
        document, name = await _managed_object(request), request.match_info["table"]
        if document.get("tableName", name) != name:
            raise InvalidInputError(f"the configs are of another table expected={name} got={document['tableName']}")
        document = {**document, "tableName": name}
        result = await asyncio.to_thread(self._writes.write_configs, document, creates=False)
        return _done(f"TableConfigs updated for {name}", result)

    @answered
    @describe(answer=answers.STATUS, right=of_table(Right.MANAGE))
    async def delete_configs(self, request: web.Request) -> web.Response:
        """Delete a table with its schema and all of its segments."""
        name = request.match_info["table"]
        await asyncio.to_thread(self._service.delete_table_and_schema, name)
        return json_answer({"status": f"Deleted TableConfigs: {name}"})


async def _managed_object(request: web.Request) -> Json:
    """Return the JSON object in the request's body. Raise AccessDeniedError if the caller may not manage a table that
    it names."""
    document = await _json_object(request)
    parts = [document, *(document[name] for name in ("schema", "offline", "realtime") if name in document)]
    for part in parts:
        for name in ("tableName", "schemaName"):
            if isinstance(part, dict) and isinstance(part.get(name), str):
                authorize(request, Right.MANAGE, part[name])
    return document


async def _json_object(request: web.Request) -> Json:
    """Return the JSON object in the request's body."""
    try:
        content = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"the body is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidInputError("the body is no JSON object")
    return content


def _name_with_type(config: Json) -> str:
    """Return the table's name with its type, as Pinot writes it."""
    name, table_type = config["tableName"], str(config["tableType"]).upper()
    return name if name.endswith(f"_{table_type}") else f"{name}_{table_type}"


def _done(status: str, result: PinotWriteResult) -> web.Response:
    return _with_notes({"status": status}, result)


def _with_notes(answer: Json, result: PinotWriteResult) -> web.Response:
    return json_answer({**answer, "unrecognizedProperties": {}, "notes": list(result.notes)})
