"""Nodes as the tests of this folder start and ask them."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from merlot.embedded.node import Node
from merlot.testing.patience import until

StartNode = Callable[..., Awaitable[Node]]


async def ask(node: Node, sql: str) -> dict[str, Any]:
    """The answer to a query, whole."""
    async with aiohttp.ClientSession() as session, session.post(f"{node.url}/query/sql", json={"sql": sql}) as answer:
        fields: dict[str, Any] = await answer.json()
    return fields


async def until_answer(node: Node, sql: str, name: str, expected: int) -> dict[str, Any]:
    """The first answer whose field is as expected."""

    async def right_answer() -> dict[str, Any] | None:
        fields = await ask(node, sql)
        return fields if fields.get(name) == expected else None

    answer = await until(right_answer)
    assert answer is not None
    assert answer["exceptions"] == []
    return answer


async def until_rows(node: Node, sql: str, expected: list[list[Any]]) -> None:
    """Until a query has these rows."""

    async def is_right() -> bool:
        fields = await ask(node, sql)
        return not fields["exceptions"] and fields["resultTable"]["rows"] == expected

    await until(is_right)
