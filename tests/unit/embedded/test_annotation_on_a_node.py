"""Segments that were published without pruning info are served whole, and pruned once they are annotated."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from merlot.cli.main import run
from merlot.cluster.publish import publish
from merlot.cluster.sqlite import SqliteMetastore
from merlot.cluster.tables import put_table
from merlot.embedded.node import METASTORE_FILE, Node, NodeConfig
from merlot.spec.table import RoutingSpec
from merlot.store.deepstore import DeepStore
from merlot.testing.sample import DAY_MS, ORDERS, START_MS, orders_manifest, total_amount, upload_orders

DAYS = list(range(6))
SQL = f"SELECT sum(amount) FROM orders WHERE at >= {START_MS + 4 * DAY_MS}"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    folder = tmp_path / "node"
    folder.mkdir()
    await asyncio.to_thread(fill, folder)
    node = Node(NodeConfig(data_dir=folder, http_port=0))
    await node.start()
    yield node
    await node.stop()


def fill(folder: Path) -> None:
    metastore = SqliteMetastore(folder / METASTORE_FILE)
    table = orders_manifest()
    indexing = table.spec.indexing.model_copy(update={"bloom": ("id",)})
    routing = RoutingSpec(segment_pruners=("time", "bloom"))
    spec = table.spec.model_copy(update={"routing": routing, "indexing": indexing})
    put_table(metastore, table.model_copy(update={"spec": spec}))
    records = upload_orders(DeepStore(str(folder / "deepstore")), DAYS)
    publish(metastore, ORDERS, [record.model_copy(update={"ranges": {}, "columns": ""}) for record in records])
    metastore.close()


async def until(node: Node, name: str, expected: int, sql: str = SQL) -> dict[str, Any]:
    async with asyncio.timeout(15), aiohttp.ClientSession() as session:
        while True:
            async with session.post(f"{node.url}/query/sql", json={"sql": sql}) as answer:
                fields: dict[str, Any] = await answer.json()
            if fields.get(name) == expected:
                return fields
            await asyncio.sleep(0.01)


async def test_old_segments_are_pruned_once_they_are_annotated(node: Node) -> None:
    before = await until(node, "totalDocs", 100 * len(DAYS))
    assert before["numSegmentsPrunedByBroker"] == 0
    assert await asyncio.to_thread(run, ["segment", "annotate", "orders", "--url", node.url]) == 0
    after = await until(node, "numSegmentsPrunedByBroker", 4)
    assert after["resultTable"]["rows"] == before["resultTable"]["rows"] == [[total_amount([4, 5])]]
    assert after["totalDocs"] == 100 * len(DAYS)
    # Built without a Bloom filter; its record has one now.
    by_id = await until(node, "numSegmentsPrunedByBroker", 5, "SELECT count(*) FROM orders WHERE id = 333")
    assert by_id["resultTable"]["rows"] == [[1]]
