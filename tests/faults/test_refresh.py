"""A segment is replaced under the same name, with other times, while queries run and one replica loads late."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.budget import count
from tests.support.faulty_s3 import FaultyS3, serve_faulty_s3
from tests.support.processes import ClusterProcesses, RoleProcess
from tests.support.sample import ORDERS, START_MS, order_rows, orders_manifest, segment_name, upload_orders

from merlot.catalog.publish import upload
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.spec.table import RoutingSpec, Table
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S, until
from merlot.values.periods import DAY_MS

pytestmark = pytest.mark.cluster

LATE_S = count("MERLOT_LATE_S", quick=2, every=3, fuzz=10)
"""How much later than the other one replica loads; 10 tells more than 3, and takes longer."""
DAYS = range(6)
OLD_DAY, NEW_DAY = 3, 40
"""The day that goes, and the day that comes in its place, with more rows."""
NEW_ROWS = 130
NUM_CLIENTS = 4
ALL = "SELECT count(*), sum(amount), min(id), max(id) FROM orders"
SINCE = f"{ALL} WHERE at >= {START_MS + NEW_DAY * DAY_MS}"
OLD = f"{ALL} WHERE at >= {START_MS + OLD_DAY * DAY_MS} AND at < {START_MS + (OLD_DAY + 1) * DAY_MS}"


class LateCluster(ClusterProcesses):
    """Each server fetches the same files from a deep store of its own."""

    def __init__(self, folder: Path, zookeeper: str, deep_stores: Sequence[str]) -> None:
        self._deep_stores = deep_stores
        super().__init__(folder, zookeeper, num_servers=len(deep_stores), deep_store=deep_stores[0])

    def _server(self, number: int, shared: Sequence[str]) -> RoleProcess:
        self.deep_store_uri = self._deep_stores[number]
        try:
            return super()._server(number, shared)
        finally:
            self.deep_store_uri = self._deep_stores[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """When it was asked and answered, and whether it is the old table's or the new one's; None: neither."""

    asked: float
    answered: float
    is_new: bool | None
    text: str


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FaultyS3, FaultyS3]]:
    """Two doors to one store."""
    for name, value in {"ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test", "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with serve_faulty_s3() as prompt, serve_faulty_s3() as late:
        yield prompt, late


@pytest.fixture
def cluster(stores: tuple[FaultyS3, FaultyS3], tmp_path: Path, zookeeper: str) -> Iterator[LateCluster]:
    with LateCluster(tmp_path / "cluster", zookeeper, [store.uri() for store in stores]) as cluster:
        cluster.add_table(manifest(), upload_orders(cluster.deep_store, DAYS))
        yield cluster


def manifest() -> Table:
    table = orders_manifest(replication=2)
    routing = RoutingSpec(segment_pruners=("empty", "time", "range"))
    return table.model_copy(update={"spec": table.spec.model_copy(update={"routing": routing})})


def replacement(store: DeepStore) -> SegmentRecord:
    """Rows of the new day under the name of the old day."""
    spec = manifest().spec
    request = BuildRequest(
        name=segment_name(OLD_DAY),
        table="orders",
        schema=spec.table_schema,
        indexing=spec.indexing,
        time_column=spec.time_column,
    )
    with tempfile.TemporaryDirectory() as folder:
        return upload(store, build_segment(request, order_rows(NEW_DAY, NEW_ROWS), Path(folder)), ORDERS)


def expected() -> dict[str, tuple[list[Any], list[Any]]]:
    """By SQL: the row and the table's number of rows, before and after."""
    kept = [row for day in DAYS if day != OLD_DAY for row in order_rows(day).to_pylist()]
    gone, come = order_rows(OLD_DAY).to_pylist(), order_rows(NEW_DAY, NEW_ROWS).to_pylist()
    before, after = len(kept) + len(gone), len(kept) + len(come)
    return {
        ALL: ([*summary([*kept, *gone]), before], [*summary([*kept, *come]), after]),
        SINCE: ([*summary([]), before], [*summary(come), after]),
        OLD: ([*summary(gone), before], [*summary([]), after]),
    }


def summary(rows: Sequence[dict[str, Any]]) -> list[Any]:
    ids = [row["id"] for row in rows]
    total = float(sum(row["amount"] for row in rows))
    return [len(rows), total, float(min(ids)), float(max(ids))] if rows else [0, 0.0, None, None]


async def ask_on(url: str, first: int, answers: list[Answer], end: asyncio.Event) -> None:
    """Ask one query after another until the end."""
    cases = list(expected().items())
    async with aiohttp.ClientSession() as session:
        number = first
        while not end.is_set():
            sql, (before, after) = cases[number % len(cases)]
            number += 1
            asked = time.monotonic()
            async with session.post(f"{url}/query/sql", json={"sql": sql}) as answer:
                fields = await answer.json()
            rows = (fields.get("resultTable") or {}).get("rows") or [[]]
            found = [*plain(rows[0]), fields["totalDocs"]]
            is_whole = not fields["exceptions"] and fields["numServersQueried"] == fields["numServersResponded"]
            is_new = {str(before): False, str(after): True}.get(str(found)) if is_whole else None
            answers.append(Answer(asked, time.monotonic(), is_new, f"{sql} found={found} {fields['exceptions']}"))


def plain(row: Sequence[Any]) -> list[Any]:
    """Extremes of nothing are infinite in Pinot's JSON: None here."""
    return [None if isinstance(value, str) and "Infinity" in value else value for value in row]


async def until_loaded(server: RoleProcess, key: str) -> float:
    """When a server first says that it has loaded this version."""

    await until(lambda: key in server.get("/tables")[ORDERS]["loaded"], PATIENCE_S + LATE_S)
    return time.monotonic()


@pytest.mark.timeout(600 + 2 * LATE_S)
async def test_a_refresh_is_seen_whole_and_at_once_though_one_replica_loads_late(
    cluster: LateCluster, stores: tuple[FaultyS3, FaultyS3]
) -> None:
    answers: list[Answer] = []
    end = asyncio.Event()
    clients = [asyncio.create_task(ask_on(cluster.broker.url, one, answers, end)) for one in range(NUM_CLIENTS)]
    record = await asyncio.to_thread(replacement, cluster.deep_store)
    stores[1].failures = 1 << 30
    await until_answered(answers, 100)
    published = time.monotonic()
    await asyncio.to_thread(publish_now, cluster, record)
    first_loaded = await until_loaded(cluster.servers[0], str(record.key))
    await asyncio.sleep(LATE_S)
    stores[1].failures = 0
    late_loaded = await until_loaded(cluster.servers[1], str(record.key))
    await until_answered(answers, 100)
    end.set()
    await asyncio.gather(*clients)

    assert [one.text for one in answers if one.is_new is None] == []
    seen = min(one.answered for one in answers if one.is_new)
    assert not [one.text for one in answers if one.asked > seen and not one.is_new], "nothing goes back to the old one"
    assert seen < late_loaded, "the new version does not wait for the late replica"
    print(
        f"answers={len(answers)} first replica loaded {1000 * (first_loaded - published):.0f} ms after the publish, "
        f"visible {1000 * (seen - first_loaded):.0f} ms later, late replica after {late_loaded - published:.1f} s"
    )


async def until_answered(answers: list[Answer], more: int) -> None:
    goal = len(answers) + more
    await until(lambda: len(answers) >= goal)


def publish_now(cluster: ClusterProcesses, record: SegmentRecord) -> None:
    with cluster.metastore() as metastore:
        publish(metastore, ORDERS, [record])
