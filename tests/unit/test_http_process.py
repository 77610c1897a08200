"""What a process tells of itself, and how its log is turned up and down."""

import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from merlot.http.process import process_routes

LOGGER = "merlot.broker.queries"


@pytest.fixture
async def client() -> AsyncIterator[TestClient[web.Request, web.Application]]:
    app = web.Application()
    app.add_routes(process_routes())
    async with TestClient(TestServer(app)) as client:
        logging.getLogger(LOGGER)
        yield client
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)


async def test_a_logger_is_turned_up_and_down(client: TestClient[web.Request, web.Application]) -> None:
    assert {"root", "merlot", LOGGER} <= set(await (await client.get("/loggers")).json())
    for level, told in (("debug", "DEBUG"), ("WARN", "WARN"), ("OFF", "OFF")):
        answer = await client.put(f"/loggers/{LOGGER}?level={level}")
        assert await answer.json() == {"name": LOGGER, "level": told}
        assert await (await client.get(f"/loggers/{LOGGER}")).json() == {"name": LOGGER, "level": told}
    assert not logging.getLogger(LOGGER).isEnabledFor(logging.CRITICAL)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/loggers/nowhere", 404),
        ("PUT", "/loggers/nowhere?level=INFO", 404),
        ("PUT", "/loggers/botocore?level=DEBUG", 404),
        ("PUT", f"/loggers/{LOGGER}?level=LOUD", 400),
        ("PUT", f"/loggers/{LOGGER}", 400),
        ("PUT", "/loggers/root?level=DEBUG", 400),
    ],
)
async def test_loggers_of_libraries_and_unknown_levels_are_refused(
    client: TestClient[web.Request, web.Application], method: str, path: str, status: int
) -> None:
    answer = await client.request(method, path)
    assert answer.status == status
    assert (await answer.json())["code"] == status


async def test_machine_and_memory_are_told_but_no_settings(client: TestClient[web.Request, web.Application]) -> None:
    told = await (await client.get("/appconfigs")).json()
    assert told["systemConfig"]["availableProcessors"] >= 1
    assert 0 < told["runtimeConfig"]["currentHeapSize"] < told["runtimeConfig"]["maxHeapSize"]
    assert told["pinotConfig"] == {}
