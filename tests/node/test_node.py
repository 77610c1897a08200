"""Every role in one process over a folder."""

import asyncio
import json
import socket
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.node.nodes import SHORT_WAITS, StartNode
from tests.support.sample import orders_manifest, total_amount, upload_orders

from merlot.cluster import paths
from merlot.cluster.manifests.tables import put_table
from merlot.codes import QueryErrorCode
from merlot.embedded.node import METASTORE_FILE, EmbeddedNode, NodeConfig
from merlot.errors import UnavailableError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import until


async def publish(
    session: aiohttp.ClientSession, node: EmbeddedNode, folder: Path, days: list[int], revision: int = 0
) -> None:
    """Apply the table and publish, as a client does, over HTTP."""
    table = orders_manifest()
    document = table.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    text = yaml.safe_dump({"apiVersion": table.api_version, "kind": table.kind, **document})
    async with session.post(f"{node.url}/apply", data=text) as answer:
        assert answer.status == 200, await answer.text()
    store = DeepStore(str(folder / "node" / "deepstore"))
    records = await asyncio.to_thread(upload_orders, store, days, revision=revision)
    body = {"publishId": "test", "replaceRows": True, "records": [json.loads(record.to_bytes()) for record in records]}
    async with session.post(f"{node.url}/segments/orders/publish", json=body) as answer:
        assert answer.status == 200, await answer.text()


async def ask_total(session: aiohttp.ClientSession, node: EmbeddedNode) -> Any:
    async with session.post(f"{node.url}/query/sql", json={"sql": "SELECT sum(amount) FROM orders"}) as answer:
        return await answer.json()


async def total(session: aiohttp.ClientSession, node: EmbeddedNode) -> Any:
    fields = await ask_total(session, node)
    assert fields["exceptions"] == []
    return fields["resultTable"]["rows"][0][0]


NOT_YET = ([QueryErrorCode.TABLE_DOES_NOT_EXIST], [QueryErrorCode.BROKER_SEGMENT_UNAVAILABLE])
"""Errors of a table that was created a moment ago: its broker does not know it yet, or waits until the controller has
compared it with the deep store."""


async def until_total(session: aiohttp.ClientSession, node: EmbeddedNode, expected: int) -> None:
    async def is_right() -> bool:
        fields = await ask_total(session, node)
        if [one["errorCode"] for one in fields["exceptions"]] in NOT_YET:
            return False
        assert fields["exceptions"] == []
        return bool(fields["resultTable"]["rows"][0][0] == expected)

    await until(is_right)


async def test_what_is_published_over_http_is_answered_and_survives_a_restart(
    start_node: StartNode, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    node = await start_node()
    await publish(session, node, tmp_path, [0, 1, 2])
    await until_total(session, node, total_amount([0, 1, 2]))
    await node.stop()
    again = await start_node()
    assert again.not_ready() is None
    assert await total(session, again) == total_amount([0, 1, 2])


@pytest.mark.parametrize("damage", ["manifest of a later version", "no record", "no tree"])
async def test_a_table_that_cannot_be_read_keeps_no_other_from_being_served(
    start_node: StartNode, session: aiohttp.ClientSession, tmp_path: Path, damage: str
) -> None:
    node = await start_node()
    await publish(session, node, tmp_path, [0])
    await node.stop()
    await asyncio.to_thread(put_unreadable_table, tmp_path / "node" / METASTORE_FILE, damage)
    again = await start_node()
    await until_total(session, again, total_amount([0]))
    assert again.not_ready() == "loading segments of later_OFFLINE"


def put_unreadable_table(metastore_file: Path, damage: str) -> None:
    """A table whose nodes have something that cannot be read."""
    metastore = SqliteMetastore(metastore_file)
    sample = orders_manifest()
    put_table(metastore, sample.model_copy(update={"metadata": sample.metadata.model_copy(update={"name": "later"})}))
    path = paths.segments_root("later_OFFLINE") if damage == "no tree" else paths.table_config("later_OFFLINE")
    node = metastore.get(path)
    assert node is not None
    text = b"{"
    if damage == "manifest of a later version":
        record = json.loads(node.data)
        record["manifest"]["spec"]["replication"] = "as needed"
        text = json.dumps(record).encode()
    metastore.put(path, text, node.version)
    metastore.close()


async def test_a_refreshed_segment_is_switched_without_a_wrong_answer(
    start_node: StartNode, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    node = await start_node()
    await publish(session, node, tmp_path, [0])
    old, new = total_amount([0]), total_amount([0], revision=1)
    await until_total(session, node, old)
    await publish(session, node, tmp_path, [0], revision=1)
    seen = set()

    async def is_new() -> bool:
        seen.add(await total(session, node))
        return new in seen

    await until(is_new)
    assert seen <= {old, new}


async def test_one_port_answers_brokers_and_controllers_paths(
    start_node: StartNode, session: aiohttp.ClientSession
) -> None:
    node = await start_node()
    for path in ("/health", "/health/liveness", "/health/readiness", "/version", "/tables", "/instances"):
        async with session.get(f"{node.url}{path}") as answer:
            assert answer.status == 200, path
    async with session.get(f"{node.url}/metrics") as answer:
        assert "merlot_server_running_queries" in await answer.text()
    async with session.post(f"{node.url}/query/sql", json={"sql": "SELECT 1"}) as answer:
        assert (await answer.json())["resultTable"]["rows"] == [[1]]
    async with session.head(f"{node.url}/no/such/path") as answer:
        assert answer.status == 404


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}])
async def test_pages_of_others_are_not_obeyed(
    start_node: StartNode, session: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    """On no path of the port; what is no page's request is."""
    node = await start_node()
    manifest = orders_manifest().model_dump_json(by_alias=True, exclude_unset=True)
    for path, body in (("/apply", manifest), ("/query/sql", '{"sql": "SELECT 1"}'), ("/tables/nosuch", "")):
        async with session.post(f"{node.url}{path}", data=body, headers=headers) as answer:
            assert answer.status == 403, path
            assert next(iter(headers.values())) in (await answer.json())["error"]
    async with session.get(f"{node.url}/tables", headers=headers) as answer:
        assert (answer.status == 403) == ("Host" in headers)
    async with session.get(f"{node.url}/tables") as answer:
        assert (await answer.json())["tables"] == []


async def test_a_folder_serves_one_node_at_a_time(start_node: StartNode) -> None:
    await start_node()
    with pytest.raises(UnavailableError) as refused:
        await start_node()
    assert "\n" not in str(refused.value)


async def test_a_taken_port_is_said_in_one_line(start_node: StartNode, tmp_path: Path) -> None:
    node = await start_node()
    other = EmbeddedNode(NodeConfig(data_dir=tmp_path / "other", http_port=node.port, tuning=SHORT_WAITS))
    with pytest.raises(UnavailableError, match=f"cannot listen address=127.0.0.1:{node.port}"):
        await other.start()


async def test_the_data_folder_is_its_owner_s_alone(tmp_path: Path) -> None:
    node = EmbeddedNode(NodeConfig(data_dir=tmp_path / "node", http_port=0, tuning=SHORT_WAITS))
    await node.start()
    await node.stop()
    assert stat.S_IMODE((tmp_path / "node").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "node" / "server").stat().st_mode) == 0o700


async def test_a_node_on_every_address_tells_clients_a_name_that_they_can_call(
    session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    node = EmbeddedNode(NodeConfig(data_dir=tmp_path / "node", host="0.0.0.0", http_port=0, tuning=SHORT_WAITS))
    await node.start()
    try:
        async with session.get(f"{node.url}/instances") as answer:
            instances = (await answer.json())["instances"]
    finally:
        await node.stop()
    assert f"Broker_{socket.gethostname()}_{node.port}" in instances
    assert not [name for name in instances if "0.0.0.0" in name]
