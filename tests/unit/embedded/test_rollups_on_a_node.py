"""Merges on a node: declared, done by its minion while queries go on, told, and nothing lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from merlot.embedded.node import Node, NodeConfig
from merlot.store.deepstore import DeepStore
from merlot.testing.sample import orders_manifest, total_amount, upload_orders

NUM_DAYS = 5
# Buckets of 36 hours: every second day's segment spills over the edge of one.
ROLLUP = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: orders-merge}
spec:
  table: orders
  schedule: 1s
  levels:
    - {name: fine, bucketTimePeriod: 36h, bufferTimePeriod: 0d}
    - {name: coarse, bucketTimePeriod: 144h, bufferTimePeriod: 0d, maxNumParallelBuckets: 2}
"""


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def node(tmp_path: Path, session: aiohttp.ClientSession) -> AsyncIterator[Node]:
    """A node with orders of some days, a segment a day."""
    node = Node(NodeConfig(data_dir=tmp_path / "node", http_port=0))
    await node.start()
    table = orders_manifest()
    document = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    await post(
        session, f"{node.url}/apply", yaml.safe_dump({**document, "apiVersion": table.api_version, "kind": table.kind})
    )
    store = DeepStore(str(tmp_path / "node" / "deepstore"))
    records = await asyncio.to_thread(upload_orders, store, range(NUM_DAYS))
    body = {"publishId": "test", "records": [json.loads(record.to_bytes()) for record in records]}
    await post(session, f"{node.url}/segments/orders/publish", json.dumps(body))
    yield node
    await node.stop()


async def post(session: aiohttp.ClientSession, url: str, text: str) -> Any:
    async with session.post(url, data=text) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def get(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as answer:
        return await answer.json()


async def total(session: aiohttp.ClientSession, node: Node) -> list[int]:
    sql = {"sql": "SELECT sum(amount), count(*) FROM orders"}
    answer = await post(session, f"{node.url}/query/sql", json.dumps(sql))
    assert answer["exceptions"] == []
    return [int(value) for value in answer["resultTable"]["rows"][0]]


async def test_segments_are_merged_and_no_answer_changes(node: Node, session: aiohttp.ClientSession) -> None:
    expected = [total_amount(range(NUM_DAYS)), NUM_DAYS * 100]
    async with asyncio.timeout(30):
        while await total(session, node) != expected:
            await asyncio.sleep(0.05)
    await post(session, f"{node.url}/apply", ROLLUP)
    states = set()
    async with asyncio.timeout(100):
        while True:
            assert await total(session, node) == expected
            rollup = await get(session, f"{node.url}/rollups/orders-merge")
            states.add(rollup["state"])
            if rollup["state"] == "UpToDate" and rollup["history"]:
                break
            await asyncio.sleep(0.05)
    assert "Failing" not in states
    fine, coarse = rollup["levels"]
    assert (fine["delay"], coarse["delay"], fine["segmentsBehindWatermark"]) == (0, 0, 0)
    assert fine["merged"]["rowsBefore"] >= NUM_DAYS * 100
    assert coarse["segments"] <= 3
    assert await total(session, node) == expected
