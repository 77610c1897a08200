"""Nodes to start, empty or with orders of some days."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import aiohttp
import pytest
from tests.node.nodes import SHORT_WAITS, StartNode
from tests.support.sample import ORDERS, upload_orders

from merlot.cluster.manifests.tables import put_table
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import publish
from merlot.embedded.node import METASTORE_FILE, EmbeddedNode, NodeConfig
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def start_node(tmp_path: Path) -> AsyncIterator[StartNode]:
    """Starts a node over the folder `node`."""
    nodes: list[EmbeddedNode] = []

    async def start(http_port: int = 0, grpc_port: int | None = None) -> EmbeddedNode:
        node = EmbeddedNode(
            NodeConfig(
                data_dir=tmp_path / "node",
                http_port=http_port,
                grpc_port=grpc_port,
                stream_folders=(str(tmp_path),),
                tuning=SHORT_WAITS,
            )
        )
        nodes.append(node)
        await node.start()
        return node

    yield start
    for node in nodes:
        await node.stop()


@pytest.fixture
def start_with_orders(start_node: StartNode, tmp_path: Path) -> StartNode:
    """Starts a node that finds a table and a segment for each of some days, as a former life left them."""

    def fill(table: Table, days: Sequence[int], change: Callable[[SegmentRecord], SegmentRecord]) -> None:
        folder = tmp_path / "node"
        folder.mkdir()
        metastore = SqliteMetastore(folder / METASTORE_FILE)
        put_table(metastore, table)
        publish(metastore, ORDERS, [change(one) for one in upload_orders(DeepStore(str(folder / "deepstore")), days)])
        metastore.close()

    async def start(
        table: Table, days: Sequence[int], change: Callable[[SegmentRecord], SegmentRecord] = lambda record: record
    ) -> EmbeddedNode:
        await asyncio.to_thread(fill, table, days, change)
        return await start_node()

    return start
