"""Encode bound queries as compact JSON, for the wire between broker and server: `from_json(to_json(q)) == q`.

Expressions are arrays headed by a letter: L(iteral), C(olumn), F(unction), A(ggregate). Values that JSON lacks are
objects: {"d": decimal text}, {"b": hex}, {"f": "inf"}.

Readers are derived from the annotations of `nodes`, so each field has the type that its node declares, whoever wrote
the bytes. `query.plan.validity` checks whether the tree makes sense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from functools import reduce
from operator import call, itemgetter, or_
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import orjson

from merlot.errors import InvalidInputError
from merlot.tree.errors import InvalidPlanError
from merlot.tree.nodes import Aggregate, BoundQuery, Call, Column, Expr, Literal, Value
from merlot.tree.types import SqlType
from merlot.values.types import TypeName

VERSION = 1
Reader = Callable[[Any], Any]
"""Function that reads a field from a JSON value. It raises InvalidPlanError, or an error of `_NOT_ENCODED`."""

_NOT_ENCODED = (
    orjson.JSONDecodeError,
    KeyError,
    ValueError,
    TypeError,
    IndexError,
    ArithmeticError,
    RecursionError,
    InvalidInputError,
)
"""Errors of decoding bytes that are no encoded query."""


def to_json(query: BoundQuery) -> bytes:
    """Encode a query."""
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
    """Decode a query. Raise InvalidPlanError for bytes that `to_json` did not write."""
    try:
        members = dict(orjson.loads(data))
        if members.pop("v") != VERSION:
            raise InvalidPlanError(f"plan of another version expected={VERSION}")
        return _query(members)
    except _NOT_ENCODED as error:
        raise _not_encoded("plan", error) from error


def where_to_json(where: Expr | None) -> bytes:
    """Encode a WHERE by itself; empty if there is none."""
    return b"" if where is None else orjson.dumps(_encode(where))


def both_wheres(first: bytes, second: bytes) -> bytes:
    """Combine two encoded WHEREs by AND. The first may be empty."""
    return b'["F","BOOLEAN","and",[%b,%b]]' % (first, second) if first else second


def where_from_json(data: bytes) -> Expr | None:
    """Decode a WHERE. Raise InvalidPlanError for bytes that `where_to_json` did not write."""
    try:
        return _expr(orjson.loads(data)) if data else None
    except _NOT_ENCODED as error:
        raise _not_encoded("filter", error) from error


def split(data: bytes) -> tuple[bytes, Expr | None]:
    """Split an encoded query into the encoded query without WHERE, and its WHERE. Queries that differ only in WHERE
    have the first part in common. Raise InvalidPlanError if the bytes are no JSON object, or its WHERE is missing or
    cannot be decoded; `from_json` checks the other members."""
    try:
        members = dict(orjson.loads(data))
        where = members["where"]
        condition = None if where is None else _expr(where)
        members["where"] = None
        return orjson.dumps(members), condition
    except _NOT_ENCODED as error:
        raise _not_encoded("plan", error) from error


def _not_encoded(what: str, error: Exception) -> InvalidPlanError:
    reason = str(error) if isinstance(error, InvalidInputError) else type(error).__name__
    return InvalidPlanError(f"{what} is not encoded as one reason={reason:.200}")


def _encode_optional(expr: Expr | None) -> Any:
    return None if expr is None else _encode(expr)


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
"""Calls whose arguments after the first are literals of one type; there may be many of them."""
_AS_THEY_ARE = frozenset({"INT", "LONG", "TIMESTAMP", "STRING"})
"""Types of the constants in long lists whose values are encoded as they are."""


def _encode_list(candidates: Sequence[Expr]) -> list[list[Any]]:
    type_ = str(candidates[0].type)
    values = [candidate.value for candidate in candidates if isinstance(candidate, Literal)]
    if type_ not in _AS_THEY_ARE or len(values) < len(candidates):
        return [_encode(candidate) for candidate in candidates]
    return [["L", type_, value] for value in values]


def _encode_value(value: Value) -> Any:
    if isinstance(value, Decimal):
        return {"d": str(value)}
    if isinstance(value, bytes):
        return {"b": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"f": repr(value)}
    return value


def _reader(annotation: Any) -> Reader:
    """Return the reader for a field's annotation."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if origin in (Union, UnionType):
        if NoneType in args:
            return _optional(_reader(reduce(or_, [arg for arg in args if arg is not NoneType])))
        if annotation == Expr:
            return _expr
    if origin is tuple and args[-1] is Ellipsis:
        return _several(_reader(args[0]))
    if origin is tuple:
        return _row(lambda *items: items, list(map(_reader, args)))
    if isinstance(annotation, type) and is_dataclass(annotation):
        hints = get_type_hints(annotation)
        return _row(annotation, [_reader(hints[field.name]) for field in fields(annotation)])
    raise TypeError(f"no reader of {annotation}")


def _exactly(of: type) -> Reader:
    """Return a reader for a type that JSON has; `true` is no number."""

    def read(data: Any) -> Any:
        if type(data) is not of:
            raise InvalidPlanError(f"field has another type expected={of.__name__} got={type(data).__name__}")
        return data

    return read


def _optional(reader: Reader) -> Reader:
    return lambda data: None if data is None else reader(data)


def _several(reader: Reader) -> Reader:
    """Return a reader for an array of any length. It adds no stack frame of its own per element, since trees are
    deep."""

    def read(data: Any) -> Any:
        if type(data) is not list:
            raise InvalidPlanError(f"field has another type expected=list got={type(data).__name__}")
        return tuple(map(reader, data))

    return read


def _row(make: Callable[..., Any], readers: Sequence[Reader]) -> Reader:
    """Return a reader for an array with a value for each field, in their order."""

    def read(data: Any) -> Any:
        if type(data) is not list or len(data) != len(readers):
            raise InvalidPlanError(f"row has other fields expected={len(readers)}")
        return make(*map(call, readers, data))

    return read


_TYPES: Final = {str(of): of for base in TypeName for of in (SqlType(base), SqlType(base, is_array=True))}


def _type(text: Any) -> SqlType:
    of = _TYPES.get(text)
    if of is None:
        raise InvalidPlanError("unknown type of an expression")
    return of


_PLAIN: Final[dict[Any, Reader]] = {**{of: _exactly(of) for of in (str, bool, int)}, SqlType: _type}


@dataclass(frozen=True, slots=True)
class _Node:
    """Reader of a kind of node, whose array has the kind's letter, the type, then the other fields in order."""

    make: Callable[..., Expr]
    size: int
    arranged: Callable[[Any], tuple[Any, ...]]
    """Function that returns the fields of an array in the order in which the node declares them."""
    readers: tuple[Reader, ...]


def _node(of: type) -> _Node:
    hints = get_type_hints(of)
    names = [field.name for field in fields(of)]
    written = ["type", *(name for name in names if name != "type")]
    positions = [written.index(name) + 1 for name in names]
    return _Node(of, len(written) + 1, itemgetter(*positions), tuple(_reader(hints[name]) for name in names))


def _expr(data: Any) -> Expr:
    if type(data) is not list:
        raise InvalidPlanError(f"expression is not an array got={type(data).__name__}")
    kind = data[0]
    if kind == "L":
        _, written, value = data
        of = _type(written)
        return Literal(None if value is None else _VALUES[of.base](value), of)
    if kind == "F" and data[2] in _LISTS and len(data[3]) > 1:
        _, written, function, args = data
        return Call(function, (_expr(args[0]), *_listed(args[1:])), _type(written))
    node = _NODES[kind]
    if len(data) != node.size:
        raise InvalidPlanError(f"node has other fields kind={kind} expected={node.size - 1}")
    return node.make(*map(call, node.readers, node.arranged(data)))


_NODES: Final = {"C": _node(Column), "F": _node(Call), "A": _node(Aggregate)}


def _listed(candidates: list[Any]) -> Sequence[Expr]:
    """Decode the literals of an IN, which may have a hundred thousand of one type; other expressions one by one."""
    written = candidates[0][1]
    if written not in _AS_THEY_ARE:
        return list(map(_expr, candidates))
    of = _type(written)
    read = _VALUES[of.base]
    values = [value for kind, type_, value in candidates if kind == "L" and type_ == written]
    if len(values) < len(candidates) or None in values:
        return list(map(_expr, candidates))
    return [Literal(read(value), of) for value in values]


def _whole(bits: int) -> Reader:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(data: Any) -> int:
        if type(data) is not int or not low <= data <= high:
            raise InvalidPlanError(f"constant is not a whole number of {bits} bits")
        return data

    return read


def _float(data: Any) -> float:
    if type(data) is float:
        return data
    written = _written("f", data)
    if written not in ("nan", "inf", "-inf"):
        raise InvalidPlanError("constant is not a number")
    # A single object for NaN: expressions are compared, and no NaN equals another.
    return math.nan if written == "nan" else float(written)


def _decimal(data: Any) -> Decimal:
    value = Decimal(_written("d", data))
    if not value.is_finite():
        raise InvalidPlanError("constant is not a finite number")
    return value


def _bytes(data: Any) -> bytes:
    return bytes.fromhex(_written("b", data))


def _written(kind: str, data: Any) -> str:
    """Return the text of a value that JSON lacks."""
    if type(data) is not dict or list(data) != [kind] or type(data[kind]) is not str:
        raise InvalidPlanError(f"constant is not encoded as one got={type(data).__name__}")
    text: str = data[kind]
    return text


def _nothing(_data: Any) -> None:
    raise InvalidPlanError("constant of no type has a value")


_VALUES: Final[dict[TypeName, Reader]] = {
    TypeName.INT: _whole(32),
    TypeName.LONG: _whole(64),
    TypeName.TIMESTAMP: _whole(64),
    TypeName.FLOAT: _float,
    TypeName.DOUBLE: _float,
    TypeName.BIG_DECIMAL: _decimal,
    TypeName.BOOLEAN: _exactly(bool),
    TypeName.STRING: _exactly(str),
    TypeName.JSON: _exactly(str),
    TypeName.BYTES: _bytes,
    TypeName.UNKNOWN: _nothing,
}
"""Readers of a literal's value, by its type; NULL has no value to read."""


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_MEMBERS: Final = {
    _camel(field.name): (field.name, _reader(get_type_hints(BoundQuery)[field.name])) for field in fields(BoundQuery)
}
"""Members of an encoded query, with the field that each becomes and its reader."""


def _query(members: dict[str, Any]) -> BoundQuery:
    """Decode a query's members. An unknown member might change the answer, so it is refused like a missing one."""
    if members.keys() != _MEMBERS.keys():
        raise InvalidPlanError(f"plan has other members than it needs got={len(members)} expected={len(_MEMBERS)}")
    return BoundQuery(**{field: read(members[name]) for name, (field, read) in _MEMBERS.items()})
