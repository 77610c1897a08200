"""A hybrid table on a node: rows that batches and the stream both bring are answered once, whoever answers for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.node.nodes import StartNode, apply, ask, call, until_answer, until_rows
from tests.support.hybrid import OrderFiles, hybrid_text
from tests.support.sample import START_MS, total_amount, upload_orders

from merlot.embedded.node import EmbeddedNode
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until
from merlot.values.periods import DAY_MS

NUM_DAYS = 6
PER_DAY = 100
TOTALS = "SELECT count(*), count(DISTINCT id), sum(amount) FROM orders"
ROLLUP = """
apiVersion: merlot.dev/v1alpha1
kind: MergeRollupTask
metadata: {name: orders-merge}
spec:
  table: orders
  schedule: 1s
  levels:
    - {name: daily, bucketTimePeriod: 1d, bufferTimePeriod: 0d, maxNumParallelBuckets: 10}
"""


class Orders:
    """A node with the table, the stream of which has each day's rows in two partitions."""

    def __init__(self, node: EmbeddedNode, folder: Path, start_node: StartNode) -> None:
        self.node = node
        self._start_node = start_node
        self._folder = folder
        self.files = OrderFiles(folder / "topic")

    async def call(self, method: str, path: str, **arguments: Any) -> Any:
        return await call(self.node, method, path, **arguments)

    async def create(self, selector: str) -> None:
        manifest = hybrid_text(self.files.folder, selector=selector)
        await apply(self.node, manifest)

    async def restart(self) -> None:
        await self.node.stop()
        self.node = await self._start_node()

    async def publish(self, days: Sequence[int], revision: int = 0) -> None:
        """Batches of whole days; another revision has other amounts."""
        store = DeepStore(str(self._folder / "node" / "deepstore"))
        records = await asyncio.to_thread(upload_orders, store, days, revision=revision)
        body = {"publishId": f"days {days}", "records": [json.loads(one.to_bytes()) for one in records]}
        await self.call("POST", "/segments/orders/publish", json=body)

    def expected(self, corrected: Sequence[int] = ()) -> list[int]:
        days = range(self.files.num_days)
        amounts = sum(total_amount([day], revision=1 if day in corrected else 0) for day in days)
        return [PER_DAY * len(days), PER_DAY * len(days), amounts]

    async def totals(self) -> list[int]:
        answer = await ask(self.node, TOTALS)
        assert answer["exceptions"] == [], answer
        return [int(value) for value in answer["resultTable"]["rows"][0]]

    async def boundary(self) -> int | None:
        facts = await self.call("GET", "/tables/orders/metadata")
        found: int | None = facts["timeBoundaryMs"]
        return found

    async def until_boundary(self, day: int) -> None:
        """Until the stream answers from this day on; every answer on the way is right."""
        wanted = START_MS + day * DAY_MS

        told = f"TIME_BOUNDARY(column:at,streamFrom:{wanted},"

        async def is_there() -> bool:
            assert (await self.totals())[:2] == self.expected()[:2]
            plan = await ask(self.node, "EXPLAIN PLAN FOR SELECT count(*) FROM orders")
            is_routed = any(row[0].startswith(told) for row in plan["resultTable"]["rows"])
            return is_routed and await self.boundary() == wanted

        await until(is_there)


@pytest.fixture
async def orders(start_node: StartNode, tmp_path: Path, request: pytest.FixtureRequest) -> Orders:
    started = Orders(await start_node(), tmp_path, start_node)
    await started.create(getattr(request, "param", "balanced"))
    started.files.append(NUM_DAYS)

    await until_rows(started.node, TOTALS, [started.expected()])
    return started


BOTH = pytest.mark.parametrize("orders", ["balanced", "strictReplicaGroup"], indirect=True)
"""Whoever is asked for a partition."""


@BOTH
async def test_batches_take_over_day_by_day_and_no_answer_has_a_row_twice_or_lacks_one(orders: Orders) -> None:
    assert await orders.boundary() is None
    await orders.publish([0, 1], revision=1)
    await orders.until_boundary(1)
    assert await orders.totals() == orders.expected(corrected=[0]), "the batch's amounts, up to its last day"
    await orders.publish([2, 3], revision=1)
    await orders.until_boundary(3)
    assert await orders.totals() == orders.expected(corrected=[0, 1, 2])


async def test_filters_on_time_meet_the_boundary_and_leave_out_what_cannot_match(orders: Orders) -> None:
    await orders.publish([0, 1, 2, 3], revision=1)
    await orders.until_boundary(3)
    for first, last in ((0, 1), (1, 3), (2, 4), (3, 6), (4, 5)):
        window = f"at >= {START_MS + first * DAY_MS} AND at < {START_MS + last * DAY_MS}"
        answer = await ask(orders.node, f"SELECT count(*), sum(amount) FROM orders WHERE {window}")
        rows = answer["resultTable"]["rows"][0]
        expected = sum(total_amount([day], revision=1 if day < 3 else 0) for day in range(first, last))
        assert rows == [PER_DAY * (last - first), expected]
        if last <= 3:
            assert answer["numConsumingSegmentsQueried"] == 0, "nothing of the stream is asked for"
            assert answer["numSegmentsQueried"] == last - first
    selected = await ask(orders.node, "SELECT id FROM orders ORDER BY at, id LIMIT 1000")
    assert sorted(row[0] for row in selected["resultTable"]["rows"]) == list(range(PER_DAY * NUM_DAYS))
    everything = await ask(orders.node, "SET skipSegmentPruning=true; SELECT count(*) FROM orders")
    assert everything["resultTable"]["rows"] == [[PER_DAY * NUM_DAYS]]


async def test_the_boundary_is_told(orders: Orders) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{orders.node.url}/debug/timeBoundary/orders") as none:
        assert none.status == 404
    await orders.publish([0, 1])
    await orders.until_boundary(1)
    told = await orders.call("GET", "/debug/timeBoundary/orders")
    assert told == {"timeColumn": "at", "timeValue": str(START_MS + DAY_MS - 1)}
    plan = await ask(orders.node, "EXPLAIN PLAN FOR SELECT count(*) FROM orders")
    operators = [row[0] for row in plan["resultTable"]["rows"]]
    (line,) = [one for one in operators if one.startswith("TIME_BOUNDARY")]
    assert line.startswith(f"TIME_BOUNDARY(column:at,streamFrom:{START_MS + DAY_MS},segmentsHidden:")


@BOTH
async def test_parts_are_merged_apart_and_a_restart_goes_on_with_the_boundary(orders: Orders) -> None:
    await orders.publish([0, 1, 2, 3])
    await orders.until_boundary(3)
    await orders.call("POST", "/apply", data=ROLLUP)

    async def is_merged() -> bool:
        assert await orders.totals() == orders.expected()
        rollup = await orders.call("GET", "/rollups/orders-merge")
        assert rollup["state"] != "Failing", rollup
        return bool(rollup["state"] == "UpToDate" and rollup["history"])

    await until(is_merged)
    segments = await orders.call("GET", "/segments/orders/metadata")
    visible = [one for one in segments.values() if one.get("visible", True)]
    merged = [one for one in visible if one["name"].startswith(("merged_", "spilled_"))]
    assert {bool(one.get("streamOffsets")) for one in merged} == {True, False}
    assert sum(one["totalDocs"] for one in merged if not one.get("streamOffsets")) == 4 * PER_DAY
    names = {one["name"] for one in visible}

    async def routes_of_these() -> Any:
        """The broker hears of the last merge after the controller."""
        routes = await orders.call("GET", "/debug/routingTable/orders")
        routed = {name for servers in routes.values() for one in servers.values() for name in one}
        return routes if routed <= names else None

    routes = await until(routes_of_these)
    assert {
        (half, bool(segments[name].get("streamOffsets") or "__" in name))
        for half, servers in routes.items()
        for names in servers.values()
        for name in names
    } == {("orders_OFFLINE", False), ("orders_REALTIME", True)}
    assert await orders.call("GET", "/debug/routingTable/orders_REALTIME") == {
        "orders_REALTIME": routes["orders_REALTIME"]
    }
    assert sorted(await orders.call("GET", "/debug/lineage/orders")) == ["orders_OFFLINE", "orders_REALTIME"]
    await orders.restart()
    await until_rows(orders.node, TOTALS, [orders.expected()])
    await orders.until_boundary(3)


async def test_a_backfill_replaces_what_batches_brought(orders: Orders) -> None:
    await orders.publish([0, 1, 2])
    await orders.until_boundary(2)
    query = f"startTimestamp={START_MS}&endTimestamp={START_MS + NUM_DAYS * DAY_MS}"
    selected = await orders.call("GET", f"/segments/orders/select?{query}")
    names = {name for group in selected for found in group.values() for name in found}
    assert len(names) == 3
    assert not any("__" in name for name in names)


async def test_rows_of_a_day_without_batches_come_as_they_did(orders: Orders) -> None:
    await orders.publish([0])
    await orders.until_boundary(0)
    orders.files.append(1)
    await until_answer(orders.node, "SELECT count(*) FROM orders", "totalDocs", orders.files.num_days * PER_DAY)
    assert (await orders.totals())[:2] == orders.expected()[:2]
