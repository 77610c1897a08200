"""Requests as clients send them, and what of the answers they read."""

from typing import Any

import httpx
from tests.clients.flights_node import Address

Rows = list[list[Any]]


def answer_of(node: Address, sql: str, options: str | None = None, path: str = "/query/sql") -> dict[str, Any]:
    """The whole answer of a query without exceptions, of all servers; AssertionError of another."""
    body = {"sql": sql} if options is None else {"sql": sql, "queryOptions": options}
    response = httpx.post(f"{node.url}{path}", json=body, timeout=60)
    assert response.status_code == 200
    answer: dict[str, Any] = response.json()
    assert answer["exceptions"] == []
    assert answer["numServersQueried"] == answer["numServersResponded"] >= 1
    return answer


def rows_of(node: Address, sql: str, options: str | None = None, path: str = "/query/sql") -> Rows:
    """Its rows."""
    rows: Rows = answer_of(node, sql, options, path)["resultTable"]["rows"]
    return rows
