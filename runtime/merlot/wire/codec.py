"""Requests and answers as bytes and back: protobuf outside, Arrow IPC for rows, JSON for counters. `merlot.proto`."""

from __future__ import annotations

import dataclasses
import functools

import orjson
import pyarrow as pa
from google.protobuf.message import DecodeError

from merlot.errors import CorruptionError
from merlot.ids import TableName
from merlot.query.result import Partial, QueryStats
from merlot.wire import frames
from merlot.wire.messages import ServerRequest, ServerResponse

_STATS_FIELDS = frozenset(field.name for field in dataclasses.fields(QueryStats))
_SEPARATOR = "\n"
LONG_CHARS = 1000


def encode_request(request: ServerRequest) -> bytes:
    """`ExecuteRequest`."""
    frame = frames.ExecuteRequest(
        request_id=request.request_id,
        table=request.table,
        query=request.query,
        segments=_SEPARATOR.join(request.segments),
        timeout_ms=request.timeout_ms,
    )
    data: bytes = frame.SerializeToString()
    return data


def decode_request(data: bytes) -> ServerRequest:
    """Raises CorruptionError if the bytes are no request."""
    try:
        frame = frames.ExecuteRequest.FromString(data)
    except DecodeError as error:
        raise CorruptionError(f"request cannot be read bytes={len(data)}") from error
    return ServerRequest(
        request_id=frame.request_id,
        table=TableName(frame.table),
        query=frame.query,
        segments=_split(frame.segments),
        timeout_ms=frame.timeout_ms,
    )


def encode_response(response: ServerResponse) -> bytes:
    """`ExecuteResponse`."""
    frame = frames.ExecuteResponse(missing=_SEPARATOR.join(response.missing))
    if response.partial is not None:
        frame.data = _encode_table(response.partial.data)
        frame.stats = orjson.dumps(_counters(response.partial.stats))
    if response.error is not None:
        frame.error_code, frame.error_message = response.error
    data: bytes = frame.SerializeToString()
    return data


def decode_response(data: bytes) -> ServerResponse:
    """Raises CorruptionError if the bytes are no answer. The rows are views of a copy that the answer owns."""
    try:
        frame = frames.ExecuteResponse.FromString(data)
        partial = _decode_partial(frame.data, frame.stats) if frame.data else None
    except (DecodeError, pa.ArrowInvalid, orjson.JSONDecodeError) as error:
        raise CorruptionError(f"answer cannot be read bytes={len(data)} reason={error}") from error
    problem = (frame.error_code, frame.error_message) if frame.error_code else None
    return ServerResponse(partial=partial, missing=_split(frame.missing), error=problem)


def _encode_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _decode_partial(data: bytes, stats: bytes) -> Partial:
    table = pa.ipc.open_stream(data).read_all()
    counters = orjson.loads(stats) if stats else {}
    known = {name: value for name, value in counters.items() if name in _STATS_FIELDS}
    return Partial(table, QueryStats(**known))


def _counters(stats: QueryStats) -> dict[str, int | bool]:
    """What is not zero."""
    return {name: value for name in _STATS_FIELDS if (value := getattr(stats, name))}


def _split(text: str) -> tuple[str, ...]:
    if len(text) > LONG_CHARS:
        return _split_long(text)
    return tuple(text.split(_SEPARATOR)) if text else ()


@functools.lru_cache(maxsize=32)
def _split_long(text: str) -> tuple[str, ...]:
    """Brokers ask for the same hundreds of segments again and again."""
    return tuple(text.split(_SEPARATOR))
