"""What a broker asks of a server, and what it gets back. In one process these objects travel as they are."""

from __future__ import annotations

from dataclasses import dataclass

from merlot.ids import TableName
from merlot.query.partial import Partial


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """Run `query` (a bound tree, `sql.tree_json`) over these segments, each `name@crc`, within `timeout_ms`."""

    request_id: str
    table: TableName
    query: bytes
    segments: tuple[str, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResponse:
    """The partial result over the segments that are not `missing`; or why there is none: (Pinot's code, message).

    `partial` is None with an error, and may be None when every asked segment is missing.
    """

    partial: Partial | None = None
    missing: tuple[str, ...] = ()
    error: tuple[int, str] | None = None
