"""A broker's request to a server, and the answer. Within one process these objects are passed on without encoding."""

from __future__ import annotations

from dataclasses import dataclass

from merlot.ids import TableName
from merlot.query.answer.partial import Partial


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """Request to run `query` (a bound tree, `tree.tree_json`) over these segments, each `name@crc`, in `timeout_ms`.

    `where` holds the query's WHERE, so that `query` is the same for queries that differ only in the constants of WHERE.
    If `where` is empty, WHERE is part of `query`."""

    request_id: str
    table: TableName
    query: bytes
    segments: tuple[str, ...]
    timeout_ms: int
    where: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResponse:
    """The partial result over the segments that are not `missing`, or the reason why there is none: (Pinot's code,
    message).

    `partial` is None if there is an error, and may be None if every requested segment is missing."""

    partial: Partial | None = None
    missing: tuple[str, ...] = ()
    error: tuple[int, str] | None = None
