"""`merlot advise`: what it is called with, which segments it takes, and how brokers' logs become one."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.apps import serve_app
from tests.support.sample import build_orders, orders_manifest
from tests.unit.cli.conftest import FakeNode

from merlot.cli.advisor import AdviceRequest, advise, brokers_log, newest
from merlot.cli.client import NodeClient
from merlot.cli.main import run
from merlot.cli.starting import INTERRUPTED
from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import SegmentRecord

QUERIES = (
    "SELECT city, SUM(amount), MAX(id) FROM orders GROUP BY city",
    *(f"SELECT city, SUM(amount) FROM orders WHERE id > {number} GROUP BY city" for number in range(5)),
    *(f"SELECT SUM(id) FROM orders WHERE amount = {number}" for number in range(5)),
)
"""Queries for which several changes are tried."""
PATIENCE_S = 120.0


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


def read_until(text: str, descriptor: int) -> str:
    """Return what comes up to the text and a little more."""
    read, deadline = "", time.monotonic() + PATIENCE_S
    while text not in read:
        assert time.monotonic() < deadline, f"{text!r} did not come: {read!r}"
        if select.select([descriptor], [], [], 1)[0]:
            read += os.read(descriptor, 4096).decode()
    return read


@pytest.fixture
def sample(node: FakeNode, tmp_path: Path) -> tuple[Path, Path]:
    """Return the file of a segment whose table the node has, and a file of queries."""
    put_table(node.metastore, orders_manifest())
    queries = tmp_path / "queries.sql"
    queries.write_text(";".join(QUERIES))
    return build_orders(tmp_path, 0, 50_000).path, queries


def interrupted(step: str, segment: Path, queries: Path) -> tuple[int, str, str]:
    """Return the exit code, the output and the errors of the command, which gets a Ctrl-C once it shows a step."""
    command = [sys.executable, "-m", "merlot.cli.main", "advise", "orders", "--file", str(segment), "-o", "json"]
    ours, terminal = pty.openpty()
    with subprocess.Popen(
        [*command, "--queries", str(queries)],
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        env={**os.environ, "TMPDIR": str(queries.parent)},
    ) as process:
        try:
            read_until(step, ours)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=PATIENCE_S)
            os.write(terminal, b"the end")
            return process.returncode, output, read_until("the end", ours)
        finally:
            process.kill()
            os.close(terminal)
            os.close(ours)


def test_an_interrupt_in_the_trials_shows_what_is_measured_by_then(sample: tuple[Path, Path], tmp_path: Path) -> None:
    code, output, errors = interrupted("1 of ", *sample)
    assert (code, json.loads(output)["sample"]["rows"]) == (INTERRUPTED, 50_000)
    assert re.search(r"stopped: [0-9]+ changes? of [0-9]+ tried", errors), errors
    assert "Traceback" not in errors
    assert not list(tmp_path.glob("merlot-advise-*"))


def test_an_interrupt_before_anything_is_measured_ends_quietly(sample: tuple[Path, Path], tmp_path: Path) -> None:
    code, output, errors = interrupted("measuring the queries", *sample)
    assert (code, output) == (INTERRUPTED, "")
    assert re.sub(r"\r\x1b\[K|the end| as they are", "", errors) == ""
    assert not list(tmp_path.glob("merlot-advise-*"))


def test_an_interrupt_between_two_trials_keeps_the_first(node: FakeNode, sample: tuple[Path, Path]) -> None:
    def press(step: str) -> None:
        if step.startswith("2 of "):
            signal.raise_signal(signal.SIGINT)

    warned: list[str] = []
    client, (segment, queries) = NodeClient(node.url), sample
    order = AdviceRequest(
        client=client, table="orders", queries=queries, files=(segment,), say=press, warn=warned.append
    )
    assert advise(order).is_interrupted
    assert [text.partition(" of ")[0] for text in warned] == ["stopped: 1 change"]
