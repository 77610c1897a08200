"""Bound queries as compact JSON, for the wire between broker and server: `from_json(to_json(q)) == q`.

Expressions are arrays headed by a letter: L(iteral), C(olumn), F(unction), A(ggregate). Values that JSON lacks are
objects: {"d": decimal text}, {"b": hex}, {"f": "inf"}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import orjson

from merlot.errors import InvalidInputError
from merlot.tree.nodes import Aggregate, BoundQuery, Call, Column, Expr, Literal, OrderKey, Output, Value
from merlot.tree.types import SqlType

VERSION = 1

_NOT_ENCODED = (
    orjson.JSONDecodeError,
    KeyError,
    ValueError,
    TypeError,
    IndexError,
    ArithmeticError,
    RecursionError,
)
"""What decoding raises for bytes that nobody encoded."""


def to_json(query: BoundQuery) -> bytes:
    """The query as bytes."""
    return orjson.dumps(
        {
            "v": VERSION,
            "table": query.table,
            "select": [[output.label, _encode(output.expr)] for output in query.select],
            "distinct": query.distinct,
            "where": _encode_optional(query.where),
            "groupBy": [_encode(expr) for expr in query.group_by],
            "having": _encode_optional(query.having),
            "orderBy": [[_encode(key.expr), key.ascending, key.nulls_last] for key in query.order_by],
            "limit": query.limit,
            "offset": query.offset,
            "options": query.options,
            "explain": query.explain,
        }
    )


def from_json(data: bytes) -> BoundQuery:
    """The query that `to_json` wrote; raises InvalidInputError for anything else."""
    try:
        fields = orjson.loads(data)
        if fields["v"] != VERSION:
            raise InvalidInputError(f"unknown query encoding version={fields['v']} expected={VERSION}")
        return _query(fields)
    except _NOT_ENCODED as error:
        raise InvalidInputError(f"not an encoded query: {type(error).__name__}") from error


def where_to_json(where: Expr | None) -> bytes:
    """A WHERE by itself; empty if there is none."""
    return b"" if where is None else orjson.dumps(_encode(where))


def both_wheres(first: bytes, second: bytes) -> bytes:
    """Two of what `where_to_json` wrote, as one that keeps what both keep. The first one may be empty."""
    return b'["F","BOOLEAN","and",[%b,%b]]' % (first, second) if first else second


def where_from_json(data: bytes) -> Expr | None:
    """The WHERE that `where_to_json` wrote; raises InvalidInputError for anything else."""
    try:
        return _decode(orjson.loads(data)) if data else None
    except _NOT_ENCODED as error:
        raise InvalidInputError(f"not an encoded filter: {type(error).__name__}") from error


def split(data: bytes) -> tuple[bytes, Expr | None]:
    """A query without its WHERE, encoded, and the WHERE: queries that differ in constants share the first."""
    try:
        fields = orjson.loads(data)
        where = _decode_optional(fields["where"])
        fields["where"] = None
        return orjson.dumps(fields), where
    except _NOT_ENCODED as error:
        raise InvalidInputError(f"not an encoded query: {type(error).__name__}") from error


def _query(fields: dict[str, Any]) -> BoundQuery:
    return BoundQuery(
        table=fields["table"],
        select=tuple(Output(label, _decode(expr)) for label, expr in fields["select"]),
        distinct=fields["distinct"],
        where=_decode_optional(fields["where"]),
        group_by=tuple(_decode(expr) for expr in fields["groupBy"]),
        having=_decode_optional(fields["having"]),
        order_by=tuple(OrderKey(_decode(expr), ascending, last) for expr, ascending, last in fields["orderBy"]),
        limit=fields["limit"],
        offset=fields["offset"],
        options=tuple((name, value) for name, value in fields["options"]),
        explain=fields["explain"],
    )


def _encode_optional(expr: Expr | None) -> Any:
    return None if expr is None else _encode(expr)


def _decode_optional(data: Any) -> Expr | None:
    return None if data is None else _decode(data)


def _encode(expr: Expr) -> list[Any]:
    if isinstance(expr, Literal):
        return ["L", str(expr.type), _encode_value(expr.value)]
    if isinstance(expr, Column):
        return ["C", str(expr.type), expr.name]
    if isinstance(expr, Call) and expr.function in _LISTS:
        args = [_encode(expr.args[0]), *_encode_list(expr.args[1:])]
    else:
        args = [_encode(arg) for arg in expr.args]
    if isinstance(expr, Aggregate):
        return ["A", str(expr.type), expr.function, args, _encode_optional(expr.filter)]
    return ["F", str(expr.type), expr.function, args]


_LISTS = ("in", "not_in")
"""Calls whose arguments after the first are literals of one type: there may be many of them."""
_AS_THEY_ARE = frozenset({"INT", "LONG", "TIMESTAMP", "STRING"})
"""Types whose values JSON has."""


def _encode_list(candidates: Sequence[Expr]) -> list[list[Any]]:
    type_ = str(candidates[0].type)
    values = [candidate.value for candidate in candidates if isinstance(candidate, Literal)]
    if type_ not in _AS_THEY_ARE or len(values) < len(candidates):
        return [_encode(candidate) for candidate in candidates]
    return [["L", type_, value] for value in values]


def _decode_list(candidates: Sequence[Any]) -> list[Expr]:
    written = candidates[0][1]
    if written in _AS_THEY_ARE:
        of = _type(written)
        found: list[Expr] = [
            Literal(value, of) for kind, type_, value in candidates if kind == "L" and type_ == written
        ]
        if len(found) == len(candidates):
            return found
    return [_decode(candidate) for candidate in candidates]


def _decode(data: Any) -> Expr:
    kind, type_ = data[0], _type(data[1])
    if kind == "L":
        return Literal(_decode_value(data[2]), type_)
    if kind == "C":
        return Column(data[2], type_)
    if kind == "F" and data[2] in _LISTS and len(data[3]) > 1:
        args = (_decode(data[3][0]), *_decode_list(data[3][1:]))
    else:
        args = tuple(_decode(arg) for arg in data[3])
    if kind == "A":
        return Aggregate(data[2], args, type_, _decode_optional(data[4]))
    if kind == "F":
        return Call(data[2], args, type_)
    raise InvalidInputError(f"unknown expression kind kind={kind}")


@lru_cache(maxsize=64)
def _type(text: str) -> SqlType:
    return SqlType.parse(text)


def _encode_value(value: Value) -> Any:
    if isinstance(value, Decimal):
        return {"d": str(value)}
    if isinstance(value, bytes):
        return {"b": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"f": repr(value)}
    return value


def _decode_value(data: Any) -> Value:
    if not isinstance(data, dict):
        value: Value = data
        return value
    if "d" in data:
        return Decimal(data["d"])
    # One NaN: expressions are compared, and no NaN equals another.
    return bytes.fromhex(data["b"]) if "b" in data else math.nan if data["f"] == "nan" else float(data["f"])
