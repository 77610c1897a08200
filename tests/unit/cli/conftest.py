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
from tests.support.apps import serve_app

from merlot.controller.http import api
from merlot.controller.service import ControllerService
from merlot.metastore.sqlite import SqliteMetastore


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
    app = web.Application()
    app.add_routes([*api.routes(ControllerService(metastore)), web.post("/query/sql", fake.query)])
    with serve_app(app) as fake.url:
        monkeypatch.setenv("MERLOT_URL", fake.url)
        yield fake
    metastore.close()


@pytest.fixture
def broker_answer() -> Any:
    """Builds a broker's response object."""
    return answer
