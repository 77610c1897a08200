"""Audit logs: who did what, bounded, and without a secret in any line."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import orjson
import pytest
from aiohttp import web
from tests.unit.security.callers import LeapingClock, callers, rules

from merlot.broker.audited_queries import audit_query
from merlot.broker.queries import SqlRequest
from merlot.broker.query_errors import named
from merlot.broker.response import BrokerAnswer
from merlot.codes import QueryErrorCode
from merlot.http.described import describe
from merlot.http.door import DOOR, PUBLIC, of_table
from merlot.http.server import HttpServer
from merlot.security import audit
from merlot.security.access import Identity, Right
from merlot.security.audit import AuditLog, AuditSettings
from merlot.security.door import Door


@describe(answer={}, right=of_table(Right.QUERY))
async def read(_: web.Request) -> web.Response:
    return web.Response(text="rows")


@describe(answer={}, right=of_table(Right.MANAGE))
async def change(_: web.Request) -> web.Response:
    return web.Response(text="changed")


@describe(answer={}, right=PUBLIC)
async def public(_: web.Request) -> web.Response:
    return web.Response(text="OK")


@pytest.fixture
async def audited(tmp_path: Path) -> AsyncIterator[tuple[str, Path, Door]]:
    door = Door(rules(), LeapingClock(), AuditLog(AuditSettings(path=str(tmp_path / "audit.log"))))
    app = web.Application()
    app[DOOR] = door
    app.add_routes(
        [web.get("/tables/{table}", read), web.delete("/tables/{table}", change), web.get("/health", public)]
    )
    server = HttpServer(app)
    yield f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}", tmp_path / "audit.log", door
    await server.stop()


async def test_refused_and_changing_requests_are_recorded_and_no_others(audited: tuple[str, Path, Door]) -> None:
    url, path, door = audited
    by_name = {caller.name: {"Authorization": caller.authorization or ""} for caller in callers()}
    async with httpx.AsyncClient(base_url=url) as client:
        await client.get("/tables/flights", headers=by_name["reader"])
        await client.get("/health")
        await client.delete("/tables/flights?sql=secret&type=OFFLINE", headers=by_name["reader"])
        await client.delete("/tables/flights", headers=by_name["owner"])
        await client.get("/tables/flights", headers=by_name["wrong password"])
    door.close()
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    told = [(line["user"], line["verb"], line["path"], line["decision"], line["status"]) for line in lines]
    assert told == [
        ("reader", "DELETE", "/tables/flights", "refused", 403),
        ("owner", "DELETE", "/tables/flights", "allowed", 200),
        ("anonymous", "GET", "/tables/flights", "refused", 401),
    ]
    assert lines[0]["query"] == {"type": "OFFLINE"}
    assert all(line["from"] == "127.0.0.1" and line["durationMs"] >= 0 for line in lines)
    text = path.read_text()
    assert not any(word in text for word in ("secret", "Basic", "guess", "reader's"))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("settings", [{}, {"with_queries": True}, {"with_queries": True, "with_texts": True}])
def test_queries_are_recorded_without_their_constants(tmp_path: Path, settings: dict[str, bool]) -> None:
    log = AuditLog(AuditSettings(path=str(tmp_path / "audit.log"), **settings))
    asked = SqlRequest("SELECT a FROM t WHERE b = 'a secret'", identity=Identity("ann"), client="1.2.3.4")
    refusal = named(QueryErrorCode.ACCESS_DENIED, "permission denied user=ann right=query table=t")
    audit_query(log, asked, BrokerAnswer.refusal("b", refusal))
    audit_query(log, asked, BrokerAnswer(request_id="1", client_request_id=None, broker_id="b", tables=("t",)))
    log.close()
    refused, *allowed = [orjson.loads(line) for line in (tmp_path / "audit.log").read_bytes().splitlines()]
    assert (refused["user"], refused["decision"], refused["errorCode"]) == ("ann", "refused", 180)
    assert "table=t" in refused["why"]
    assert [(line["tables"], line["decision"]) for line in allowed] == [(["t"], "allowed")] * bool(settings)
    assert ("secret" in (tmp_path / "audit.log").read_text()) is settings.get("with_texts", False)


def test_a_process_ends_though_nobody_takes_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = threading.Event()
    log = AuditLog(AuditSettings(path=str(tmp_path / "audit.log")))
    monkeypatch.setattr(log, "_write", lambda _: may_write.wait())
    for number in range(audit.MAX_WAITING + 10):
        log.record({"number": number})
    log.close(0.1)
    may_write.set()
    log.close(60)


def test_files_are_rotated_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(AuditSettings(path=str(path), max_bytes=1_000, num_files=3))
    for number in range(200):
        log.record({"number": number, "filling": "x" * 50})
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"]
    assert all(file.stat().st_size <= 1_000 for file in files)
    numbers = [
        orjson.loads(line)["number"]
        for file in [path.with_name(f"audit.log.{number}") for number in (3, 2, 1)] + [path]
        for line in file.read_bytes().splitlines()
    ]
    assert numbers == list(range(200))[-len(numbers) :]


def test_an_audit_log_goes_on_where_it_was(tmp_path: Path) -> None:
    settings = AuditSettings(path=str(tmp_path / "audit.log"))
    for number in range(2):
        log = AuditLog(settings)
        log.record({"number": number})
        log.close()
    assert (tmp_path / "audit.log").read_text() == '{"number":0}\n{"number":1}\n'
