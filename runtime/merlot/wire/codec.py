"""Encode and decode requests and answers: a JSON header, then the query or an Arrow IPC stream.

    message = header length u32 · header (a JSON object) · body                little-endian

A reader ignores members that it does not know; missing members have their defaults.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections import OrderedDict
from typing import Any, Final, get_type_hints

import orjson
import pyarrow as pa

from merlot.errors import CorruptionError
from merlot.ids import TableName
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.spec.table import MAX_TIMEOUT_MS
from merlot.vectors.arrow_bounds import check_uncompressed
from merlot.wire.messages import ServerRequest, ServerResponse
from merlot.wire.plain_rows import plain_rows, rows_of

_STATS_FIELDS: Final = tuple(field.name for field in dataclasses.fields(QueryStats))
_KNOWN_STATS: Final = get_type_hints(QueryStats)
_SEPARATOR: Final = "\n"
_LENGTH_BYTES: Final = 4
_UNREADABLE: Final = (
    *(pa.ArrowException, OSError, EOFError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError),
    *(struct.error, SystemError),
)
ROWS_OF_NOTHING: Final = 1 << 24
"""Rows that an answer without bytes for them may have, as columns of NULLs do."""
ROWS_PER_BYTE: Final = 8
LONG_CHARS: Final = 1000
KEPT_CHARS: Final = 4 << 20
MANY_NAMES: Final = 64
MAX_NAMES: Final = 32


def encode_request(request: ServerRequest) -> bytes:
    """Encode a request.

    The header has `id`, `table`, `timeoutMs`, `segments` (one per line: a single text is ten times cheaper to read than
    a list of texts) and `whereBytes`. The body is the query's WHERE, `whereBytes` long, and the rest of the query."""
    header = {
        "id": request.request_id,
        "table": request.table,
        "timeoutMs": request.timeout_ms,
        "segments": _names(request.segments),
        "whereBytes": len(request.where),
    }
    return _joined(header, request.where + request.query)


def decode_request(data: bytes) -> ServerRequest:
    """Decode a request; raise CorruptionError if the bytes are no request."""
    try:
        header, body = _parted(data)
        cut, timeout_ms = header.get("whereBytes", 0), header["timeoutMs"]
        for value, kind in ((header["id"], str), (header["table"], str), (cut, int), (timeout_ms, int)):
            if type(value) is not kind:
                raise CorruptionError(f"request cannot be read bytes={len(data)}")
        if not (0 <= cut <= len(body) and 0 < timeout_ms <= MAX_TIMEOUT_MS):
            raise CorruptionError(f"request out of bounds timeout_ms={timeout_ms} where_bytes={cut}")
        return ServerRequest(
            request_id=header["id"],
            table=TableName(header["table"]),
            query=body[cut:],
            segments=_split(header["segments"]),
            timeout_ms=timeout_ms,
            where=body[:cut],
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"request cannot be read bytes={len(data)}") from error


def encode_response(response: ServerResponse) -> bytes:
    """Encode an answer.

    The header has `stats`, `missing` (one per line), `error` ([code, text]), and `columns` and `values` if the rows are
    few. The body is the rows as an Arrow IPC stream, if the header does not have them."""
    header: dict[str, Any] = {}
    body = b""
    if response.missing:
        header["missing"] = _SEPARATOR.join(response.missing)
    if response.error is not None:
        header["error"] = response.error
    if response.partial is not None:
        stats = response.partial.stats
        header["stats"] = {name: value for name in _STATS_FIELDS if (value := getattr(stats, name))}
        plain = plain_rows(response.partial.content)
        if plain is None:
            body = _encode_table(response.partial.data)
        else:
            header["columns"], header["values"] = plain
    return _joined(header, body)


def decode_response(data: bytes) -> ServerResponse:
    """Decode an answer; raise CorruptionError if the bytes are no answer. The rows are views of a copy that the answer
    owns."""
    try:
        header, body = _parted(data)
        partial = None
        if "stats" in header:
            content = rows_of(header["columns"], header["values"]) if "columns" in header else _decode_table(body)
            partial = Partial(content, _stats(header["stats"]))
        error = header.get("error")
        return ServerResponse(
            partial=partial,
            missing=_split(header.get("missing", "")),
            error=None if error is None else (int(error[0]), str(error[1])),
        )
    except _UNREADABLE as error:
        raise CorruptionError(f"answer cannot be read bytes={len(data)} reason={error}") from error


_NAMES: Final[OrderedDict[int, tuple[tuple[str, ...], orjson.Fragment]]] = OrderedDict()
"""JSON texts of many names by the identity of their tuple, which routes share. Used on one event loop; an entry whose
tuple is another object is made again."""


def _names(segments: tuple[str, ...]) -> str | orjson.Fragment:
    """Return the names, one per line; many names as JSON that is kept."""
    if len(segments) < MANY_NAMES:
        return _SEPARATOR.join(segments)
    entry = _NAMES.get(id(segments))
    if entry is None or entry[0] is not segments:
        text = orjson.dumps(_SEPARATOR.join(segments))
        entry = segments, orjson.Fragment(text)
        if len(text) <= KEPT_CHARS:
            _NAMES[id(segments)] = entry
        if len(_NAMES) > MAX_NAMES:
            _NAMES.popitem(last=False)
    return entry[1]


def _joined(header: dict[str, Any], body: bytes) -> bytes:
    text = orjson.dumps(header)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + body


def _parted(data: bytes) -> tuple[dict[str, Any], bytes]:
    stop = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    if stop > len(data):
        raise CorruptionError(f"message is cut short bytes={len(data)}")
    header = orjson.loads(data[_LENGTH_BYTES:stop])
    if not isinstance(header, dict):
        raise CorruptionError(f"message has no header bytes={len(data)}")
    return header, data[stop:]


def _encode_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _decode_table(data: bytes) -> pa.Table:
    """Return the rows, with offsets, lengths and texts checked: operators compute with them unchecked.

    Servers do not compress, so compressed bytes are refused: they could expand without bounds."""
    buffer = pa.py_buffer(data)
    check_uncompressed(buffer)
    table = pa.ipc.open_stream(buffer).read_all()
    if table.num_rows > max(ROWS_OF_NOTHING, ROWS_PER_BYTE * len(data)):
        raise CorruptionError(f"answer has more rows than bytes rows={table.num_rows} bytes={len(data)}")
    table.validate(full=True)
    return table


def _stats(counters: dict[str, Any]) -> QueryStats:
    if not _KNOWN_STATS.keys() >= counters.keys():
        counters = {name: value for name, value in counters.items() if name in _KNOWN_STATS}
    for name, counter in counters.items():
        if type(counter) is not _KNOWN_STATS[name]:
            raise CorruptionError(f"answer has a counter of another type name={name}")
    return QueryStats(**counters)


def _split(text: str) -> tuple[str, ...]:
    if LONG_CHARS < len(text) <= KEPT_CHARS:
        return _split_long(text)
    return tuple(text.split(_SEPARATOR)) if text else ()


@functools.lru_cache(maxsize=32)
def _split_long(text: str) -> tuple[str, ...]:
    """Split a long text of names and keep the result: brokers ask for the same hundreds of segments again and again."""
    return tuple(text.split(_SEPARATOR))
