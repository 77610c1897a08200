"""Queries of several stages through a broker: deadline, cancelling, turns, and what answers tell."""

import asyncio
from collections import Counter
from typing import Any

import aiohttp
from tests.support.sample import order_rows, orders_manifest, total_amount

from merlot.codes import QueryErrorCode
from merlot.embedded.node import EmbeddedNode
from merlot.testing.patience import until

DAYS = [0, 1, 2]
ENDLESS = """SELECT COUNT(*) FROM orders a, orders b, orders c, orders d, orders e, orders f, orders g
    WHERE a.id + b.id + c.id + d.id + e.id + f.id + g.id = -1"""
JOINED = "SELECT SUM(a.amount), COUNT(*) FROM orders a JOIN orders b ON a.id = b.id AND a.at = b.at"


async def ask(session: aiohttp.ClientSession, node: EmbeddedNode, sql: str) -> dict[str, Any]:
    async with session.post(f"{node.url}/query/sql", json={"sql": sql}) as answer:
        fields: dict[str, Any] = await answer.json()
    return fields


async def until_served(session: aiohttp.ClientSession, node: EmbeddedNode) -> None:
    async def are_served() -> bool:
        answer = await ask(session, node, "SELECT COUNT(*) FROM orders")
        return not answer["exceptions"] and answer["resultTable"]["rows"] == [[300]]

    await until(are_served)


async def test_an_answer_of_stages_tells_what_its_leaves_took(
    start_with_orders: Any, session: aiohttp.ClientSession
) -> None:
    node = await start_with_orders(orders_manifest(), DAYS)
    await until_served(session, node)
    sql = JOINED + " WHERE a.at < 1704153600000"
    answer = await ask(session, node, f"SET skipPlannerRules = 'KeyFilters'; {sql}")
    assert answer["exceptions"] == []
    assert answer["resultTable"]["rows"] == [[total_amount([0]), 100]]
    assert answer["numServersQueried"] == answer["numServersResponded"] == 1
    assert answer["tablesQueried"] == ["orders"]
    # Each leaf is pruned by its own filter.
    alone = [await ask(session, node, f"SELECT id FROM orders {rest}") for rest in ("WHERE at < 1704153600000", "")]
    for name in ("numSegmentsQueried", "numSegmentsPrunedByBroker", "numSegmentsPrunedByServer", "totalDocs"):
        assert answer[name] == sum(one[name] for one in alone), name
    assert answer["numSegmentsPrunedByBroker"] + answer["numSegmentsPrunedByServer"] == 2


async def test_a_leaf_is_pruned_by_the_keys_of_a_much_smaller_leaf(
    start_with_orders: Any, session: aiohttp.ClientSession
) -> None:
    node = await start_with_orders(orders_manifest(), DAYS)
    await until_served(session, node)
    sql = JOINED + " WHERE a.at < 1704153600000"
    answer = await ask(session, node, sql)
    assert answer["exceptions"] == []
    assert answer["resultTable"]["rows"] == [[total_amount([0]), 100]]
    # Each of the two leaves reads one segment of three.
    assert answer["numSegmentsPrunedByBroker"] + answer["numSegmentsPrunedByServer"] == 4
    nothing = await ask(session, node, JOINED + " WHERE a.at < 0")
    assert nothing["exceptions"] == []
    assert nothing["resultTable"]["rows"] == [[None, 0]]


async def test_leaves_that_ask_the_same_are_asked_once(start_with_orders: Any, session: aiohttp.ClientSession) -> None:
    node = await start_with_orders(orders_manifest(), DAYS)
    await until_served(session, node)
    answer = await ask(
        session, node, "SELECT COUNT(*) FROM (SELECT id FROM orders) a JOIN (SELECT id FROM orders) b ON a.id = b.id"
    )
    assert answer["exceptions"] == []
    assert answer["numSegmentsQueried"] == 3


async def test_leaves_group_below_joins_where_records_count_few_values(
    start_with_orders: Any, session: aiohttp.ClientSession
) -> None:
    """10,000 rows of four cities, as the records say that were published with the segments."""
    days = range(100)
    node = await start_with_orders(orders_manifest(), days)
    cities = Counter(city for day in days for city in order_rows(day)["city"].to_pylist())

    async def are_served() -> bool:
        return (await ask(session, node, "SELECT COUNT(*) FROM orders"))["resultTable"]["rows"] == [[10_000]]

    await until(are_served)
    joined = "SELECT b.city, COUNT(*), COUNT(DISTINCT a.city) FROM orders a JOIN orders b ON a.city = b.city"
    tested = "SELECT COUNT(*) FROM orders a WHERE NOT EXISTS (SELECT 1 FROM orders b WHERE b.city > a.city)"
    for sql, rule, wanted in (
        (f"{joined} GROUP BY b.city", "GroupBelowJoins", [[city, number**2, 1] for city, number in cities.items()]),
        (tested, "DistinctBelowJoins", [[cities[max(cities)]]]),
    ):
        plan = await ask(session, node, f"EXPLAIN PLAN FOR {sql}")
        assert rule in str(plan["resultTable"]["rows"])
        answer = await ask(session, node, sql)
        assert answer["exceptions"] == []
        assert sorted(answer["resultTable"]["rows"]) == sorted(wanted)


async def test_a_deadline_ends_the_engine(start_with_orders: Any, session: aiohttp.ClientSession) -> None:
    node = await start_with_orders(orders_manifest(), DAYS)
    await until_served(session, node)
    late = await ask(session, node, f"SET timeoutMs = 700; {ENDLESS}")
    assert [one["errorCode"] for one in late["exceptions"]] == [QueryErrorCode.EXECUTION_TIMEOUT]
    assert (await ask(session, node, JOINED))["resultTable"]["rows"] == [[total_amount(DAYS), 300]]


async def test_more_queries_than_have_a_turn_wait_and_are_told_if_it_does_not_come(
    start_with_orders: Any, session: aiohttp.ClientSession
) -> None:
    node = await start_with_orders(orders_manifest(), DAYS)
    await until_served(session, node)
    long = [asyncio.create_task(ask(session, node, f"SET timeoutMs = 60000; {ENDLESS} LIMIT {one}")) for one in (1, 2)]
    ids = await _running(session, node, 2)
    waiting = await ask(session, node, f"SET timeoutMs = 300; {JOINED}")
    assert [one["errorCode"] for one in waiting["exceptions"]] == [QueryErrorCode.QUERY_SCHEDULING_TIMEOUT]
    for one in ids:
        async with session.delete(f"{node.url}/query/{one}") as answer:
            assert answer.status == 200
    for told in await asyncio.gather(*long):
        assert [one["errorCode"] for one in told["exceptions"]] == [QueryErrorCode.QUERY_CANCELLATION]
    assert (await ask(session, node, JOINED))["resultTable"]["rows"] == [[total_amount(DAYS), 300]]


async def _running(session: aiohttp.ClientSession, node: EmbeddedNode, number: int) -> list[str]:
    """Ids of the endless queries, once there are so many."""
    found: list[str] = []

    async def are_there() -> bool:
        async with session.get(f"{node.url}/queries") as answer:
            running = await answer.json()
        found[:] = [one for one, sql in running.items() if ENDLESS in sql]
        return len(found) == number

    await until(are_there)
    return found
