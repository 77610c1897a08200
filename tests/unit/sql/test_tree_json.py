"""What goes over the wire comes back the same."""

import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.tree.errors import InvalidPlanError
from merlot.tree.nodes import Aggregate, BoundQuery, Call, Column, Expr, Literal, OrderKey, Output, Value
from merlot.tree.tree_json import from_json, to_json, where_from_json
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, BYTES, DOUBLE, INT, LONG, STRING, SqlType
from merlot.values.types import TypeName

ONE = Literal(1, INT)
_TYPES = st.builds(SqlType, st.sampled_from(TypeName), st.booleans())
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_VALUES: dict[TypeName, st.SearchStrategy[Value]] = {
    TypeName.INT: st.integers(-(2**31), 2**31 - 1),
    TypeName.LONG: _LONGS,
    TypeName.TIMESTAMP: _LONGS,
    TypeName.FLOAT: st.floats(allow_nan=False),
    TypeName.DOUBLE: st.floats(allow_nan=False),
    TypeName.BIG_DECIMAL: st.decimals(allow_nan=False, allow_infinity=False),
    TypeName.BOOLEAN: st.booleans(),
    TypeName.STRING: _TEXT,
    TypeName.JSON: _TEXT,
    TypeName.BYTES: st.binary(max_size=8),
    TypeName.UNKNOWN: st.none(),
}
_LITERALS = _TYPES.flatmap(lambda of: st.builds(Literal, st.none() | _VALUES[of.base], st.just(of)))
_LEAVES: st.SearchStrategy[Expr] = st.one_of(_LITERALS, st.builds(Column, _TEXT, _TYPES))
_EXPRESSIONS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(Call, _TEXT, st.lists(inner, max_size=3).map(tuple), _TYPES),
        st.builds(Aggregate, _TEXT, st.lists(inner, max_size=2).map(tuple), _TYPES, st.none() | inner),
    ),
    max_leaves=12,
)
_QUERIES = st.builds(
    BoundQuery,
    table=_TEXT,
    select=st.lists(st.builds(Output, _TEXT, _EXPRESSIONS), max_size=3).map(tuple),
    distinct=st.booleans(),
    where=st.none() | _EXPRESSIONS,
    group_by=st.lists(_EXPRESSIONS, max_size=2).map(tuple),
    having=st.none() | _EXPRESSIONS,
    order_by=st.lists(st.builds(OrderKey, _EXPRESSIONS, st.booleans(), st.booleans()), max_size=2).map(tuple),
    limit=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**31 - 1),
    options=st.lists(st.tuples(_TEXT, _TEXT), max_size=3).map(tuple),
    explain=st.booleans(),
)


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(_QUERIES)
def test_a_query_comes_back_equal(query: BoundQuery) -> None:
    assert from_json(to_json(query)) == query


@pytest.mark.parametrize(
    ("value", "of"),
    [
        *((1, LONG), (1.0, DOUBLE), (True, BOOLEAN), ("1", STRING), (b"1", BYTES), (Decimal("1.0"), BIG_DECIMAL)),
        (float("inf"), DOUBLE),
    ],
)
def test_value_keeps_its_python_type(value: Value, of: SqlType) -> None:
    query = BoundQuery("t", (Output("x", Literal(value, of)),))
    (output,) = from_json(to_json(query)).select
    assert isinstance(output.expr, Literal)
    assert (type(output.expr.value), output.expr.value) == (type(value), value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"7", b'{"v":1}', b'{"v":99}', b'{"v":[],"select":1}'])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidPlanError):
        from_json(data)


QUERY = BoundQuery(
    "t",
    (Output("x", Aggregate("sum", (Column("a", LONG),), DOUBLE, Call("equals", (Column("b", INT), ONE), BOOLEAN))),),
    where=Call("in", (Column("b", INT), ONE, Literal(2, INT)), BOOLEAN),
    group_by=(Column("c", STRING),),
    order_by=(OrderKey(Column("c", STRING)),),
    options=(("timeoutMs", "1"),),
)
OTHERS = (None, True, 0, -1.5, 1 << 40, "", "x", [], [1], [["x"]], {}, {"d": "x"}, {"d": 1}, {"b": "0"}, {"f": "x"})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in JSON, with the way to it."""
    if path:
        yield path, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        yield from places(item, (*path, key))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> bytes:
    made = json.loads(json.dumps(data))
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return json.dumps(made).encode()


def test_no_field_takes_a_value_of_another_type() -> None:
    """Whatever a field is replaced by is refused, or is a value of the field's type."""
    encoded = json.loads(to_json(QUERY))
    tried = 0
    for path, before in places(encoded):
        for other in OTHERS:
            tried += 1
            try:
                query = from_json(changed(encoded, path, other))
            except InvalidPlanError:
                continue
            assert well_typed(query, BoundQuery), (path, before, other)
    assert tried > 500


def well_typed(value: Any, annotation: Any) -> bool:
    """Whether a value is of its annotation, all the way down."""
    args = get_args(annotation)
    if is_dataclass(annotation):
        hints = get_type_hints(annotation)
        return type(value) is annotation and all(well_typed(getattr(value, name), of) for name, of in hints.items())
    if get_origin(annotation) is tuple:
        wanted = [args[0]] * len(value) if args[-1] is Ellipsis else args
        return type(value) is tuple and all(map(well_typed, value, wanted))
    if args:
        return any(well_typed(value, arg) for arg in args)
    return type(value) is annotation or isinstance(value, Enum)


@pytest.mark.parametrize("member", ["table", "where", "groupBy", "options", "explain"])
def test_member_that_is_missing_or_unknown_is_refused(member: str) -> None:
    members = json.loads(to_json(QUERY))
    for spoiled in ({**members, "more": 1}, {name: value for name, value in members.items() if name != member}):
        with pytest.raises(InvalidPlanError):
            from_json(json.dumps(spoiled).encode())
    with pytest.raises(InvalidPlanError):
        from_json(to_json(QUERY).replace(b'["C","INT","b"]', b'["C","INT","b",1]'))


@pytest.mark.parametrize(
    "literal",
    [
        *('["L","INT",2147483648]', '["L","INT",1.0]', '["L","INT",true]', '["L","LONG",9223372036854775808]'),
        *('["L","STRING",1]', '["L","BOOLEAN",1]', '["L","DOUBLE",1]', '["L","DOUBLE",{"f":"1"}]'),
        *('["L","BIG_DECIMAL",{"d":"NaN"}]', '["L","BIG_DECIMAL",{"d":"1","b":""}]', '["L","BYTES","00"]'),
        *('["L","UNKNOWN",1]', '["L","INT"]', '["L","INT",1,1]', '["L","NOTHING",1]', '["L",["INT"],1]'),
    ],
)
def test_constant_of_another_type_is_refused_alone_and_in_a_list(literal: str) -> None:
    for text in (literal, f'["F","BOOLEAN","in",[["C","INT","b"],["L","INT",1],{literal}]]'):
        with pytest.raises(InvalidPlanError):
            where_from_json(text.encode())


def test_expression_of_any_depth_is_read_or_refused() -> None:
    for depth in (10, 100, 400, 1_000, 100_000):
        text = '["F","INT","abs",[' * depth + '["L","INT",1]' + "]]" * depth
        try:
            assert where_from_json(text.encode()) is not None
        except InvalidPlanError:
            assert depth > 100
