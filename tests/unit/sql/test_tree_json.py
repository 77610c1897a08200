"""What goes over the wire comes back the same."""

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from merlot.errors import InvalidInputError
from merlot.tree.nodes import Aggregate, BoundQuery, Call, Column, Expr, Literal, OrderKey, Output
from merlot.tree.tree_json import from_json, to_json
from merlot.tree.types import LONG, SqlType
from merlot.values.types import TypeName

_TYPES = st.builds(SqlType, st.sampled_from(TypeName), st.booleans())
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    _TEXT,
    st.binary(max_size=8),
    st.decimals(allow_nan=False, allow_infinity=False),
)
_LEAVES: st.SearchStrategy[Expr] = st.one_of(st.builds(Literal, _VALUES, _TYPES), st.builds(Column, _TEXT, _TYPES))
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


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(_QUERIES)
def test_a_query_comes_back_equal(query: BoundQuery) -> None:
    assert from_json(to_json(query)) == query


def test_values_keep_their_python_types() -> None:
    for value in (1, 1.0, True, "1", b"1", Decimal("1.0"), float("inf")):
        query = BoundQuery("t", (Output("x", Literal(value, LONG)),))
        (output,) = from_json(to_json(query)).select
        assert isinstance(output.expr, Literal)
        assert (type(output.expr.value), output.expr.value) == (type(value), value)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"v":1}', b'{"v":99}', b'{"v":1,"select":[["a",["Z","INT",1]]]}']
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        from_json(data)
