"""Merges on a node: declared, done by its minion while queries go on, told, and nothing lost."""

from typing import Any

import aiohttp
import pytest
from tests.node.nodes import StartNode, ask, until_rows
from tests.support.sample import orders_manifest, total_amount

from merlot.embedded.node import EmbeddedNode
from merlot.testing.patience import PATIENCE_S, until

TOTAL = "SELECT sum(amount), count(*) FROM orders"
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
async def node(start_with_orders: StartNode) -> EmbeddedNode:
    """A node with orders of some days, a segment a day."""
    return await start_with_orders(orders_manifest(), range(NUM_DAYS))


async def post(session: aiohttp.ClientSession, url: str, text: str) -> Any:
    async with session.post(url, data=text) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def get(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as answer:
        return await answer.json()


async def total(node: EmbeddedNode) -> list[int]:
    answer = await ask(node, TOTAL)
    assert answer["exceptions"] == []
    return [int(value) for value in answer["resultTable"]["rows"][0]]


async def test_segments_are_merged_and_no_answer_changes(node: EmbeddedNode, session: aiohttp.ClientSession) -> None:
    expected = [total_amount(range(NUM_DAYS)), NUM_DAYS * 100]
    await until_rows(node, TOTAL, [expected])
    await post(session, f"{node.url}/apply", ROLLUP)
    states = set()

    async def end() -> Any:
        assert await total(node) == expected
        rollup = await get(session, f"{node.url}/rollups/orders-merge")
        states.add(rollup["state"])
        return rollup if rollup["state"] == "UpToDate" and rollup["history"] else None

    rollup = await until(end, 2 * PATIENCE_S)
    assert "Failing" not in states
    fine, coarse = rollup["levels"]
    assert (fine["delay"], coarse["delay"], fine["segmentsBehindWatermark"]) == (0, 0, 0)
    assert fine["merged"]["rowsBefore"] >= NUM_DAYS * 100
    assert coarse["segments"] <= 3
    assert await total(node) == expected
