"""A node whose metastore is gone while its files are there says so, instead of answering with nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml
from tests.unit.embedded.nodes import OwnNode, apply, ask

from merlot.cli.main import run
from merlot.ids import RawTableName, offline
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until
from merlot.testing.sample import orders_manifest, upload_orders

COUNT = "SELECT COUNT(*) FROM orders"
ORDERS = offline(RawTableName("orders"))


def manifest() -> str:
    table = orders_manifest()
    document = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump({"apiVersion": table.api_version, "kind": table.kind, **document})


async def publish(own: OwnNode, store: DeepStore) -> None:
    records = await asyncio.to_thread(upload_orders, store, range(3))
    body = {"records": [one.model_dump(mode="json", by_alias=True, exclude_defaults=True) for one in records]}
    await own.call("POST", "/segments/orders/publish", json=body)


async def rows_of(own: OwnNode) -> Any:
    answer = await ask(own.node, COUNT)
    return None if answer["exceptions"] else answer["resultTable"]["rows"][0][0]


async def test_a_lost_metastore_is_an_error_until_the_table_is_recovered(tmp_path: Path) -> None:
    async with OwnNode(tmp_path) as own:
        await apply(own.node, manifest())
        store = DeepStore(str(tmp_path / "data" / "deepstore"))
        assert (await rows_of(own)) in (None, 0)
        await publish(own, store)
        total = 3 * 100

        async def is_whole() -> bool:
            return bool(await rows_of(own) == total)

        await until(is_whole)
        catalog = tmp_path / "data" / "deepstore" / ORDERS / "_catalog"

        async def is_kept() -> bool:
            return catalog.exists()

        await until(is_kept)
        await own.node.stop()
        for file in (tmp_path / "data").glob("metastore.sqlite*"):
            file.write_bytes(b"")
        own.node = own._made()
        await own.node.start()
        await apply(own.node, manifest())
        answers: list[dict[str, Any]] = []

        async def is_lost() -> bool:
            answers.append(await ask(own.node, COUNT))
            return "merlot recover orders" in str(answers[-1]["exceptions"])

        await until(is_lost)
        for sql in (COUNT, f"SELECT * FROM ({COUNT}) a, ({COUNT}) b"):
            assert [one["errorCode"] for one in (await ask(own.node, sql))["exceptions"]] == [305]
        status = await own.call("GET", "/status")
        assert status["tables"]["orders"]["metastoreLost"].startswith("the metastore is a new one: 3 segments")
        assert await asyncio.to_thread(run, ["recover", "orders", "--url", own.node.url]) == 0
        await until(is_whole)
        assert await asyncio.to_thread(run, ["undelete", "orders", "--url", own.node.url]) == 0
        status = await own.call("GET", "/status")
        assert status["tables"]["orders"]["metastoreLost"] == ""
