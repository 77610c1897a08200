"""`nullHandling` of a table changes while a node runs: queries follow without a restart, and a query's option wins."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pytest
import yaml
from tests.node.nodes import StartNode, apply, ask, until_rows
from tests.support.sample import START_MS, orders_manifest

from merlot.catalog.publish import upload
from merlot.embedded.node import EmbeddedNode
from merlot.ingest.batch import build_from_tables
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until

NULL = -(2**31)
"""The default value of a dimension of type INT."""
TIPS = [number % 5 if number % 3 else None for number in range(30)]
PRESENT = [tip for tip in TIPS if tip is not None]
STORED = [NULL if tip is None else tip for tip in TIPS]
JOINED = "FROM orders a JOIN orders b ON a.id = b.id"
ANSWERS: dict[str, tuple[list[list[Any]], list[list[Any]]]] = {
    "SELECT COUNT(tip), SUM(tip) FROM orders": ([[30, sum(STORED)]], [[len(PRESENT), sum(PRESENT)]]),
    "SELECT MIN(tip) FROM orders": ([[min(STORED)]], [[min(PRESENT)]]),
    "SELECT COUNT(*) FROM orders WHERE tip < 1": (
        [[sum(tip < 1 for tip in STORED)]],
        [[sum(tip < 1 for tip in PRESENT)]],
    ),
    "SELECT tip FROM orders ORDER BY id LIMIT 2": ([[NULL], [1]], [[None], [1]]),
    "SELECT COUNT(*) FROM orders WHERE NOT tip = 1": (
        [[sum(tip != 1 for tip in STORED)]],
        [[sum(tip != 1 for tip in PRESENT)]],
    ),
    "SELECT tip, COUNT(*) FROM orders WHERE id = 0 GROUP BY tip": ([[NULL, 1]], [[None, 1]]),
    f"SELECT COUNT(*) {JOINED} WHERE a.tip < 1": (
        [[sum(tip < 1 for tip in STORED)]],
        [[sum(tip < 1 for tip in PRESENT)]],
    ),
}
"""Rows without null handling, and with it."""
COUNTED = "SELECT COUNT(CASE WHEN tip > 1 THEN 1 END) FROM orders"
COUNTS = (len(STORED), sum(tip > 1 for tip in PRESENT))


def orders(name: str = "orders") -> Table:
    table = orders_manifest(more_fields="      - {name: tip, type: INT}")
    return table.model_copy(update={"metadata": table.metadata.model_copy(update={"name": name})})


def text_of(table: Table, *, sees_nulls: bool | None) -> str:
    """The manifest; None: it does not say."""
    document = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if sees_nulls is not None:
        document["spec"]["nullHandling"] = sees_nulls
    return yaml.safe_dump({"apiVersion": table.api_version, "kind": table.kind, **document})


async def change(node: EmbeddedNode, *, sees_nulls: bool | None) -> None:
    await apply(node, text_of(orders(), sees_nulls=sees_nulls))


@pytest.fixture
async def node(start_with_orders: StartNode, tmp_path: Path) -> EmbeddedNode:
    """A node with orders in two segments, a third of whose tips are null."""
    node = await start_with_orders(orders(), range(0))
    rows = pa.table(
        {
            "at": [START_MS + number % 2 * 86_400_000 + number for number in range(30)],
            "id": list(range(30)),
            "city": ["Oslo"] * 30,
            "amount": [1] * 30,
            "tip": pa.array(TIPS, pa.int32()),
        }
    )

    def publish() -> list[dict[str, Any]]:
        (tmp_path / "built").mkdir()
        table = orders()
        made = build_from_tables(table, [rows], tmp_path / "built").segments
        store = DeepStore(str(tmp_path / "node" / "deepstore"))
        records = [upload(store, one, table.name) for one in made]
        return [one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in records]

    records = await asyncio.to_thread(publish)
    await post(node, "/segments/orders/publish", {"records": records})
    await until_rows(node, "SELECT COUNT(*) FROM orders", [[30]])
    return node


async def post(node: EmbeddedNode, path: str, body: Any) -> Any:
    async with aiohttp.ClientSession() as session, session.post(f"{node.url}{path}", json=body) as answer:
        found = await answer.json()
        assert answer.status == 200, found
        return found


async def rows(node: EmbeddedNode, sql: str, **body: Any) -> list[list[Any]]:
    answer = await post(node, "/query/sql", {"sql": sql, **body})
    assert answer["exceptions"] == [], answer
    found: list[list[Any]] = answer["resultTable"]["rows"]
    return found


async def check_all(node: EmbeddedNode, *, sees_nulls: bool) -> None:
    """Every text, and every way to say otherwise."""
    for sql, answers in ANSWERS.items():
        assert await rows(node, sql) == answers[sees_nulls], sql
        for wanted in (False, True):
            option = f"enableNullHandling={str(wanted).lower()}"
            assert await rows(node, f"SET {option}; {sql}") == answers[wanted], sql
            assert await rows(node, sql, queryOptions=option) == answers[wanted], sql


async def check_warnings(node: EmbeddedNode, *, sees_nulls: bool) -> None:
    answer = await ask(node, COUNTED)
    assert answer["resultTable"]["rows"] == [[COUNTS[sees_nulls]]]
    assert ("queryWarnings" in answer) == (not sees_nulls), answer.get("queryWarnings")
    for wanted in (False, True):
        answer = await ask(node, f"SET enableNullHandling={str(wanted).lower()}; {COUNTED}")
        assert answer["resultTable"]["rows"] == [[COUNTS[wanted]]]
        assert ("queryWarnings" in answer) == (not wanted)


async def test_every_query_follows_the_table_and_its_own_option_wins(node: EmbeddedNode) -> None:
    await check_all(node, sees_nulls=False)
    await check_warnings(node, sees_nulls=False)
    for said in (True, False, True, None):
        await change(node, sees_nulls=said)
        sees_nulls = said is True
        await until_rows(node, "SELECT MIN(tip) FROM orders", ANSWERS["SELECT MIN(tip) FROM orders"][sees_nulls])
        await check_all(node, sees_nulls=sees_nulls)
        await check_warnings(node, sees_nulls=sees_nulls)


async def test_a_query_sees_all_of_the_old_or_all_of_the_new_and_never_turns_back(node: EmbeddedNode) -> None:
    texts = ["SELECT COUNT(tip), SUM(tip) FROM orders", f"SELECT COUNT(*) {JOINED} WHERE a.tip < 1"]
    seen: dict[str, list[Any]] = {sql: [] for sql in texts}

    async def watch(sql: str) -> None:
        while True:
            now = await rows(node, sql)
            if not seen[sql] or seen[sql][-1] != now:
                seen[sql].append(now)

    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(watch(sql)) for sql in texts]
        await until(lambda: all(seen.values()))
        await change(node, sees_nulls=True)
        await until(lambda: all(seen[sql][-1] == ANSWERS[sql][True] for sql in texts))
        for one in watching:
            one.cancel()
    assert seen == {sql: list(ANSWERS[sql]) for sql in texts}


async def test_a_query_over_two_tables_follows_either_of_them(node: EmbeddedNode) -> None:
    others = orders("others")
    sql = "SELECT COUNT(*) FROM orders a LEFT JOIN others b ON a.id = b.id WHERE a.tip < 1"
    answers = ANSWERS["SELECT COUNT(*) FROM orders WHERE tip < 1"]
    await apply(node, text_of(others, sees_nulls=False))
    await until_rows(node, sql, answers[False])
    for said in (True, False):
        await apply(node, text_of(others, sees_nulls=said))
        await until_rows(node, sql, answers[said])
        alone = "SELECT COUNT(*) FROM orders WHERE tip < 1"
        assert await rows(node, alone) == answers[False], "the other table's setting is not this one's"
