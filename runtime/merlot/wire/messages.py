"""What a broker asks of a server, and what it gets back. In one process these objects travel as they are."""

from __future__ import annotations

from dataclasses import dataclass

from merlot.ids import TableName
from merlot.query.answer.partial import Partial


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """Run `query` (a bound tree, `tree.tree_json`) over these segments, each `name@crc`, within `timeout_ms`.

    Queries that differ in the constants of WHERE are alike in `query` if WHERE is told apart, in `where`; if that is
    empty, `query` has its own."""

    request_id: str
    table: TableName
    query: bytes
    segments: tuple[str, ...]
    timeout_ms: int
    where: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResponse:
    """The partial result over the segments that are not `missing`; or why there is none: (Pinot's code, message).

    `partial` is None with an error, and may be None when every asked segment is missing.
    """

    partial: Partial | None = None
    missing: tuple[str, ...] = ()
    error: tuple[int, str] | None = None
