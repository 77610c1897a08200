"""Segments that were published without pruning info are served whole, and pruned once they are annotated."""

import asyncio

import pytest
from tests.node.nodes import StartNode, until_answer
from tests.support.sample import START_MS, orders_manifest, total_amount

from merlot.cli.main import run
from merlot.embedded.node import EmbeddedNode
from merlot.spec.table import RoutingSpec
from merlot.values.periods import DAY_MS

DAYS = list(range(6))
SQL = f"SELECT sum(amount) FROM orders WHERE at >= {START_MS + 4 * DAY_MS}"


@pytest.fixture
async def node(start_with_orders: StartNode) -> EmbeddedNode:
    table = orders_manifest()
    indexing = table.spec.indexing.model_copy(update={"bloom": ("id",)})
    routing = RoutingSpec(segment_pruners=("time", "bloom"))
    spec = table.spec.model_copy(update={"routing": routing, "indexing": indexing})
    table = table.model_copy(update={"spec": spec})
    return await start_with_orders(table, DAYS, lambda one: one.model_copy(update={"ranges": {}, "columns": ""}))


async def test_old_segments_are_pruned_once_they_are_annotated(node: EmbeddedNode) -> None:
    before = await until_answer(node, SQL, "totalDocs", 100 * len(DAYS))
    assert before["numSegmentsPrunedByBroker"] == 0
    assert await asyncio.to_thread(run, ["segment", "annotate", "orders", "--url", node.url]) == 0
    after = await until_answer(node, SQL, "numSegmentsPrunedByBroker", 4)
    assert after["resultTable"]["rows"] == before["resultTable"]["rows"] == [[total_amount([4, 5])]]
    assert after["totalDocs"] == 100 * len(DAYS)
    # Built without a Bloom filter; its record has one now.
    by_id = await until_answer(node, "SELECT count(*) FROM orders WHERE id = 333", "numSegmentsPrunedByBroker", 5)
    assert by_id["resultTable"]["rows"] == [[1]]
