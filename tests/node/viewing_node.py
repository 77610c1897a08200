"""A whole node in this process, whose broker is asked as somebody who sees a part of each table."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from tests.node.nodes import SHORT_WAITS, call
from tests.sql.slt_data import Dataset
from tests.sql.slt_nodes import manifest, upload_segments

from merlot.broker.queries import SqlRequest
from merlot.broker.role import BrokerRole
from merlot.embedded.node import EmbeddedNode, NodeConfig
from merlot.security.views import Views
from merlot.store.deepstore import DeepStore
from merlot.testing.patience import PATIENCE_S


class ViewingNode:
    """A node on a loop of its own."""

    def __init__(self, node: EmbeddedNode, loop: asyncio.AbstractEventLoop) -> None:
        self.node = node
        self._loop = loop

    @property
    def broker(self) -> BrokerRole:
        assert self.node._broker is not None
        return self.node._broker

    def run(self, work: Any) -> Any:
        """The result of a coroutine on the node's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def ask(self, sql: str, views: Views | None = None, options: str = "") -> dict[str, Any]:
        """The answer as Pinot's JSON has it."""

        async def ask() -> bytes:
            return (await self.broker.query(SqlRequest(sql, options, views=views))).to_bytes()

        answer: dict[str, Any] = orjson.loads(self.run(ask()))
        return answer

    def rows(self, sql: str, views: Views | None = None) -> list[list[Any]]:
        """The rows of an answer without exceptions."""
        answer = self.ask(sql, views)
        assert not answer["exceptions"], (sql, answer["exceptions"])
        rows: list[list[Any]] = answer["resultTable"]["rows"]
        return rows


@contextmanager
def viewing_node(datasets: Sequence[Dataset], folder: Path) -> Iterator[ViewingNode]:
    """A node that serves these tables, each in twelve segments."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    node = EmbeddedNode(NodeConfig(data_dir=folder / "data", http_port=0, tuning=SHORT_WAITS))
    viewing = ViewingNode(node, loop)
    try:
        viewing.run(node.start())
        for dataset in datasets:
            viewing.run(_publish(viewing, dataset, folder))
        yield viewing
    finally:
        viewing.run(node.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _publish(viewing: ViewingNode, dataset: Dataset, folder: Path) -> None:
    store = DeepStore(str(folder / "data" / "deepstore"))
    records = await asyncio.to_thread(upload_segments, dataset, folder / "built", store)
    await call(viewing.node, "POST", "/apply", json=manifest(dataset))
    listed = [record.model_dump(mode="json", by_alias=True) for record in records]
    body = {"publishId": "first", "records": listed}
    await call(viewing.node, "POST", f"/segments/{dataset.name}/publish", json=body)

    async def num_served() -> int:
        answer = await viewing.broker.query(SqlRequest(f"SELECT COUNT(*) FROM {dataset.name}"))
        return 0 if answer.exceptions or answer.result is None else int(answer.result.rows[0][0])

    async with asyncio.timeout(PATIENCE_S):
        while await num_served() != dataset.rows.num_rows:
            await asyncio.sleep(0.05)
