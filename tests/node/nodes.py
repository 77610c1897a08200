"""Nodes as the tests of this folder start and ask them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from merlot.broker.tuning import BrokerTuning
from merlot.controller.tuning import ControllerTuning
from merlot.embedded.node import EmbeddedNode, NodeConfig, NodeTuning
from merlot.minion.tuning import MinionTuning
from merlot.server.tuning import ServerTuning, StreamTuning
from merlot.testing.patience import until

SHORT_WAITS: Final = NodeTuning(
    broker=BrokerTuning(echo_look_s=0.05),
    controller=ControllerTuning(retry_s=0.1),
    minion=MinionTuning(load_look_s=0.1),
)
"""Minions and the controller look soon whether segments are loaded: most tests wait for it several times."""

StartNode = Callable[..., Awaitable[EmbeddedNode]]


def with_checkpoint_rest(rest_ms: int) -> NodeTuning:
    """Return short waits with a checkpoint of each upsert partition every `rest_ms` milliseconds."""
    return replace(SHORT_WAITS, server=ServerTuning(streams=StreamTuning(checkpoint_rest_ms=rest_ms)))


async def ask(node: EmbeddedNode, sql: str) -> dict[str, Any]:
    """The answer to a query, whole."""
    async with aiohttp.ClientSession() as session, session.post(f"{node.url}/query/sql", json={"sql": sql}) as answer:
        fields: dict[str, Any] = await answer.json()
    return fields


async def call(node: EmbeddedNode, method: str, path: str, **arguments: Any) -> Any:
    """The JSON of an answer that is 200."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"{node.url}{path}", **arguments) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def apply(node: EmbeddedNode, manifest: str) -> Any:
    """What the node says to a manifest."""
    return await call(node, "POST", "/apply", data=manifest, headers={"Content-Type": "application/yaml"})


class OwnNode:
    """A node in a folder, which ends with the block and can begin anew within it."""

    tuning = SHORT_WAITS

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self.node = self._made()

    def _made(self) -> EmbeddedNode:
        return self._made_on(0)

    def _made_on(self, port: int) -> EmbeddedNode:
        return EmbeddedNode(
            NodeConfig(data_dir=self._data, http_port=port, stream_folders=(str(self._folder),), tuning=self.tuning)
        )

    async def __aenter__(self) -> Self:
        await self.node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.node.stop()

    async def restart(self, port: int = 0) -> None:
        await self.node.stop()
        await self.start_again(port)

    async def start_again(self, port: int = 0) -> None:
        """Start a new node in the folder, after the one before has stopped."""
        self.node = self._made() if not port else self._made_on(port)
        await self.node.start()

    async def call(self, method: str, path: str, **arguments: Any) -> Any:
        return await call(self.node, method, path, **arguments)


async def until_answer(node: EmbeddedNode, sql: str, name: str, expected: int) -> dict[str, Any]:
    """The first answer whose field is as expected."""

    async def right_answer() -> dict[str, Any] | None:
        fields = await ask(node, sql)
        return fields if fields.get(name) == expected else None

    answer = await until(right_answer)
    assert answer is not None
    assert answer["exceptions"] == []
    return answer


async def until_rows(node: EmbeddedNode, sql: str, expected: list[list[Any]]) -> None:
    """Until a query has these rows."""

    async def is_right() -> bool:
        fields = await ask(node, sql)
        return not fields["exceptions"] and fields["resultTable"]["rows"] == expected

    await until(is_right)
