"""A node whose metastore is gone while its files are there says so, instead of answering with nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.node.nodes import OwnNode, apply, ask
from tests.support.events import EventFiles, events_manifest
from tests.support.sample import orders_manifest, upload_orders

from merlot.cli.main import run
from merlot.cluster.losses import CatalogRecord
from merlot.controller.cleaning.catalog_store import read_catalog
from merlot.ids import RawTableName, offline
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until

COUNT = "SELECT COUNT(*) FROM orders"
ORDERS = offline(RawTableName("orders"))
EVENTS = offline(RawTableName("events"))


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


async def test_all_tables_of_a_lost_metastore_come_back_without_their_manifests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with OwnNode(tmp_path) as own:
        await apply(own.node, manifest())
        await publish(own, DeepStore(str(tmp_path / "data" / "deepstore")))
        copy = tmp_path / "data" / "deepstore" / "_manifests" / "tables" / f"{ORDERS}.json.z"

        async def is_copied() -> bool:
            return copy.exists() and await rows_of(own) == 300

        await until(is_copied)
        await own.node.stop()
        lose_metastore(tmp_path)
        own.node = own._made()
        await own.node.start()
        for flags, expected in ((["--all", "--dry-run"], "orders   unknown"), (["--manifests"], "kind: Table")):
            assert await asyncio.to_thread(run, ["recover", *flags, "--url", own.node.url]) == 0
            assert expected in capsys.readouterr().out
        assert await asyncio.to_thread(run, ["recover", "--all", "--url", own.node.url]) == 0
        assert "3 segments brought back" in capsys.readouterr().out
        await until(is_copied)
        assert await asyncio.to_thread(run, ["recover", "--all", "--url", own.node.url]) == 0
        assert "nothing is lost" in capsys.readouterr().out


def stream_manifest(topic: Path, *, upserts: bool) -> str:
    document = events_manifest(topic, flush_rows=100).model_dump(mode="json", by_alias=True, exclude_unset=True)
    if upserts:
        document["spec"]["schema"]["primaryKey"] = ["city"]
        partitioning = {"city": {"functionName": "Murmur", "numPartitions": 1}}
        document["spec"]["partitioning"] = {"columns": partitioning}
        document["spec"]["upsert"] = {"config": {"mode": "FULL", "comparisonColumns": ["id"]}}
    return json.dumps(document)


def lose_metastore(folder: Path) -> None:
    for file in (folder / "data").glob("metastore.sqlite*"):
        file.write_bytes(b"")


@pytest.mark.parametrize("upserts", [False, True], ids=["appends", "upserts"])
async def test_a_table_that_consumes_a_stream_reads_on_where_its_segments_end(tmp_path: Path, upserts: bool) -> None:
    last = 0 if upserts else 1
    files = EventFiles(tmp_path / "topic", last + 1)
    text = stream_manifest(files.folder, upserts=upserts)
    store = DeepStore(str(tmp_path / "data" / "deepstore"))
    newest = "SELECT city, id FROM events ORDER BY city, id LIMIT 100000"

    def expected() -> list[list[Any]]:
        rows = [
            (partition, json.loads(line))
            for partition in range(last + 1)
            for line in (files.folder / str(partition) / "events.json").read_text().splitlines()
        ]
        if upserts:
            rows = list({(partition, row["city"]): (partition, row) for partition, row in rows}.values())
        return sorted([row["city"], row["id"]] for _, row in rows)

    async def is_whole() -> bool:
        answer = await ask(own.node, newest)
        return not answer["exceptions"] and answer["resultTable"]["rows"] == expected()

    async def kept() -> CatalogRecord | None:
        catalog = await asyncio.to_thread(read_catalog, store, EVENTS)
        sealed = [] if catalog is None else [one for one in catalog.stream_segments if not one.is_open]
        return catalog if len(sealed) == (9 if upserts else 8) else None

    async with OwnNode(tmp_path) as own:
        await apply(own.node, text)
        for _ in range(3):
            files.append(110, 0)
            files.append(190, last)
        await until(is_whole)
        catalog = await until(kept)
        assert catalog is not None
        await own.node.stop()
        lose_metastore(tmp_path)
        files.append(30, 0)
        own.node = own._made()
        await own.node.start()
        await apply(own.node, text)

        async def is_lost() -> bool:
            return "merlot recover events" in str((await ask(own.node, newest))["exceptions"])

        await until(is_lost)
        assert await asyncio.to_thread(run, ["recover", "events", "--url", own.node.url]) == 0
        await until(is_whole)
        found = await own.call("GET", "/segments/events/metadata")
        sealed = {one.name for one in catalog.stream_segments if not one.is_open}
        assert sealed <= found.keys()
        files.append(250, last)
        await until(is_whole)
        await own.restart()
        await until(is_whole)
