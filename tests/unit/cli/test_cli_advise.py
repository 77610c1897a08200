"""`merlot advise`: what it is called with, which segments it takes, and how brokers' logs become one."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import web
from tests.support.apps import serve_app
from tests.support.sample import orders_manifest
from tests.unit.cli.conftest import FakeNode

from merlot.cli.advisor import AdviceRequest, brokers_log, newest
from merlot.cli.client import NodeClient
from merlot.cli.main import run
from merlot.cluster.records import SegmentRecord


def record(name: str, rows: int, end_ms: int | None) -> SegmentRecord:
    return SegmentRecord(name=name, crc=1, size_bytes=1, url="", total_docs=rows, end_time_ms=end_ms)


def test_the_newest_segments_that_there_is_room_for_are_taken() -> None:
    every = [record("a", 10, 1), record("b", 50, 3), record("c", 60, 2), record("d", 30, None), record("e", 20, 2)]
    assert [one.name for one in newest(every, 8, 100)] == ["b", "e", "a"]
    assert [one.name for one in newest(every, 2, 1000)] == ["b", "c"]
    assert [one.name for one in newest(every, 8, 1)] == ["b"]


def test_apply_needs_a_file_to_write_into(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", "flights", "--apply"]) == 2
    assert capsys.readouterr().err == "error: --apply writes into the file that --manifest names\n"


def test_a_table_that_is_not_there_is_one_line(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", "nothing"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def brokers() -> Iterator[list[str]]:
    """Two brokers that were asked the same and something else, and one that does not answer."""

    def told(count: int, *texts: str) -> dict[str, Any]:
        figures = {"count": count, "timeMs": 2.0 * count, "numSegmentsProcessed": 3 * count}
        return {"query": "SELECT ?", "options": "", "samples": list(texts), **figures}

    with ExitStack() as stack:
        urls = []
        for queries in ([told(2, "SELECT 1")], [told(5, "SELECT 2"), {**told(1), "query": "SELECT a"}]):
            app = web.Application()

            async def answer(_: web.Request, queries: list[dict[str, Any]] = queries) -> web.Response:
                return web.json_response({"queries": queries})

            app.add_routes([web.get("/debug/queryLog/orders", answer)])
            urls.append(stack.enter_context(serve_app(app)))
        yield [*urls, "http://127.0.0.1:9"]


def test_the_logs_of_all_brokers_are_one(brokers: list[str]) -> None:
    warned: list[str] = []
    order = AdviceRequest(client=NodeClient(brokers[0]), table="orders", brokers=tuple(brokers), warn=warned.append)
    first, second = brokers_log(order, orders_manifest())
    assert (first.normal, first.count, first.time_ms, first.num_segments) == ("SELECT ?", 7, 14.0, 21)
    assert first.texts == ("SELECT 1",)
    assert (second.normal, second.texts) == ("SELECT a", ())
    assert len(warned) == 1
    assert warned[0].startswith("a broker's log is missing: cannot reach merlot at http://127.0.0.1:9")
