"""A node to talk to: the controller's real endpoint, and broker answers that a test prepares."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from merlot.cluster.sqlite import SqliteMetastore
from merlot.controller import api
from merlot.controller.service import ControllerService


@dataclass
class FakeNode:
    """`answers` are given in order to `POST /query/sql`; `asked` are the bodies that came."""

    metastore: SqliteMetastore
    answers: list[Any] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    is_hanging: threading.Event = field(default_factory=threading.Event)

    async def query(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(orjson.loads(await request.read()))
        if not self.answers:
            self.is_hanging.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, web.Response):
            return answer
        return web.json_response(answer)


def answer(names: list[str], types: list[str], rows: list[list[Any]], **stats: Any) -> dict[str, Any]:
    """A broker's response object."""
    schema = {"columnNames": names, "columnDataTypes": types}
    return {
        "resultTable": {"dataSchema": schema, "rows": rows},
        "exceptions": [],
        "numServersQueried": 1,
        "numServersResponded": 1,
        **stats,
    }


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNode]:
    """Runs on a thread of its own, since the command line blocks. MERLOT_URL points to it."""
    metastore = SqliteMetastore(tmp_path / "node.db")
    fake = FakeNode(metastore)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> web.AppRunner:
        app = web.Application()
        app.add_routes([*api.routes(ControllerService(metastore)), web.post("/query/sql", fake.query)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    monkeypatch.setenv("MERLOT_URL", fake.url)
    try:
        yield fake
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        metastore.close()


@pytest.fixture
def broker_answer() -> Any:
    """Builds a broker's response object."""
    return answer
