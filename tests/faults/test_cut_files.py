"""The file of a segment is cut below a node that serves it: answers are right or say that they are not, the process
lives, and the file is set aside and fetched anew."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import RoleProcess
from tests.support.sample import order_rows, publish_orders

from merlot.embedded.node import METASTORE_FILE
from merlot.metastore.sqlite import SqliteMetastore
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S

DAYS, NUM_ROWS = range(3), 60_000
QUERIES = (
    "SELECT count(*), sum(amount), sum(id) FROM orders WHERE id >= 0",
    "SELECT city, sum(amount) FROM orders GROUP BY city ORDER BY city",
    "SELECT count(*) FROM orders WHERE amount > 500 AND city <> 'Rome'",
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the handler of SIGBUS is for Linux")


def ask(node: RoleProcess, sql: str) -> dict[str, Any]:
    body = json.dumps({"sql": sql}).encode()
    request = urllib.request.Request(f"{node.url}/query/sql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        fields: dict[str, Any] = json.load(answer)
        return fields


def rows(node: RoleProcess, sql: str) -> Any:
    """Rows; None if the answer says that it is not whole."""
    answer = ask(node, sql)
    return None if answer["exceptions"] or answer.get("partialResult") else answer["resultTable"]["rows"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RoleProcess]:
    data = tmp_path / "data"
    data.mkdir()
    metastore = SqliteMetastore(data / METASTORE_FILE)
    publish_orders(metastore, DeepStore(str(data / "deepstore")), DAYS, num_rows=NUM_ROWS)
    metastore.close()
    process = RoleProcess(tmp_path, "node", ["serve", "--data", str(data), "--log-level", "INFO"], ("--port",))
    process.start()
    try:
        process.wait_ready()
        yield process
    finally:
        process.kill()


def until_right(node: RoleProcess) -> list[Any]:
    """The right answers to all queries."""
    total = sum(sum(order_rows(day, NUM_ROWS)["amount"].to_pylist()) for day in DAYS)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = [rows(node, sql) for sql in QUERIES]
        if None not in found and found[0][0][:2] == [NUM_ROWS * len(DAYS), total]:
            return found
        assert time.monotonic() < deadline, node.tail()
        time.sleep(0.1)


def test_file_that_is_cut_below_a_node_ends_neither_it_nor_the_truth(node: RoleProcess, tmp_path: Path) -> None:
    right = until_right(node)
    process = node.pid
    served = sorted((tmp_path / "data" / "server").rglob("*.mseg*"))
    assert len(served) == len(DAYS)
    num_flagged = 0
    for round_, file in enumerate(served):
        for stored in (tmp_path / "data" / "deepstore").rglob("*.mseg"):
            # Of one file system, both names are of one file: here only the server's copy is cut.
            if stored.stat().st_ino == file.stat().st_ino:
                shutil.copy(stored, stored.with_suffix(".copy"))
                stored.with_suffix(".copy").replace(stored)
        os.truncate(file, (4096, 0, file.stat().st_size // 2)[round_])
        deadline = time.monotonic() + PATIENCE_S
        num_right = 0
        while num_right < 3 * len(QUERIES):
            place = num_right % len(QUERIES)
            found = rows(node, QUERIES[place])
            assert found in (None, right[place])
            num_right = 0 if found is None else num_right + 1
            num_flagged += found is None
            assert time.monotonic() < deadline, node.tail()
    assert node.pid == process
    assert node.is_running
    assert num_flagged
    log = node.log.read_text()
    assert "query met corrupt or missing data" in log
    assert all(file.stat().st_size > 100_000 for file in served), "not fetched anew"


def test_bus_error_that_is_no_mapped_segment_s_ends_the_process_as_ever(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import mmap, os, sys
        from pathlib import Path
        from merlot.segment.mapping import map_file
        whole, cut = Path(sys.argv[1]), Path(sys.argv[2])
        for path in (whole, cut):
            path.write_bytes(b"x" * 20_000)
        kept = map_file(whole)
        with cut.open("rb") as file:
            own = mmap.mmap(file.fileno(), 20_000, prot=mmap.PROT_READ)
        os.truncate(cut, 0)
        print(own[10_000])
    """)
    command = [sys.executable, "-c", program, str(tmp_path / "whole"), str(tmp_path / "cut")]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert child.returncode == -7, child.stderr
