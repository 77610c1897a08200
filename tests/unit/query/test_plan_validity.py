"""What a server takes for a plan: what binding makes, and nothing that it would refuse."""

from __future__ import annotations

import pytest

from merlot.codes import QueryErrorCode
from merlot.functions.registry import FUNCTIONS
from merlot.query.plan.binding import bind
from merlot.query.plan.validity import RULES, check, check_filter, check_length
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse
from merlot.tree import limits
from merlot.tree.errors import InvalidPlanError
from merlot.tree.nodes import Aggregate, BoundQuery, Call, Column, Expr, Literal, Output
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, INT, LONG, STRING, SqlType

A, S, B = Column("a", INT), Column("s", STRING), Column("b", BOOLEAN)
TAGS = Column("tags", SqlType(STRING.base, is_array=True))
ONE, TWO, TEXT = Literal(1, INT), Literal(2, INT), Literal("x", STRING)
IS_ONE = Call("equals", (A, ONE), BOOLEAN)
SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "a", "type": "INT"},
            {"name": "s", "type": "STRING"},
            {"name": "b", "type": "BOOLEAN"},
            {"name": "tags", "type": "STRING", "multiValue": True},
        ]
    }
)


def nested(depth: int) -> Expr:
    found: Expr = A
    for _ in range(depth):
        found = Call("plus", (found, A), LONG)
    return found


WRONG: dict[str, Expr] = {
    "length of lpad": Call("lpad", (S, Literal(2_000_000_000, INT), TEXT), STRING),
    "length of rpad": Call("rpad", (S, Literal(10_001, INT), TEXT), STRING),
    "times of repeat": Call("repeat", (S, Literal("", STRING), Literal(10_001, INT)), STRING),
    "a length that is no constant": Call("lpad", (S, A, TEXT), STRING),
    "an unknown function": Call("nothing", (S,), STRING),
    "a function that binding writes out": Call("coalesce", (S, S), STRING),
    "too few arguments": Call("lpad", (S,), STRING),
    "too many arguments": Call("upper", (S, S), STRING),
    "a number for a text": Call("upper", (A,), STRING),
    "another result": Call("length", (S,), DOUBLE),
    "an unknown unit": Call("timestampadd", (Literal("AEON", STRING), ONE, ONE), LONG),
    "a unit as queries write it": Call("timestampadd", (Literal("days", STRING), ONE, ONE), LONG),
    "a pattern that is none": Call("regexplike", (S, Literal("(", STRING)), BOOLEAN),
    "a group that the pattern has not": Call("regexpextract", (S, TEXT, Literal("g1", STRING), TEXT), STRING),
    "a replacement by no group": Call(
        "regexpreplace", (S, TEXT, Literal("\\1", STRING), Literal(0, INT), Literal(-1, INT)), STRING
    ),
    "a list for a value": Call("upper", (TAGS,), STRING),
    "an aggregate within": Call("plus", (Aggregate("count", (), LONG), ONE), LONG),
    "a virtual column that there is not": Column("$nothing", INT),
    "a virtual column of another type": Column("$docId", STRING),
    "cast of a list": Call("cast", (TAGS,), STRING),
    "cast to nothing": Call("cast", (A,), SqlType.parse("UNKNOWN")),
    "cast of bytes to a number": Call("cast", (Column("d", SqlType.parse("BYTES")),), INT),
    "case without a rest": Call("case", (IS_ONE, ONE), INT),
    "case of a value": Call("case", (B, ONE, ONE), INT),
    "case of several types": Call("case", (IS_ONE, ONE, TEXT), INT),
    "deeper than any text": nested(limits.MAX_DEPTH + 1),
    "a constant that is a list": Literal(None, SqlType.parse("INT_ARRAY")),
}
WRONG_FILTERS: dict[str, Expr] = {
    "no predicate": B,
    "a text": S,
    "a comparison of several types": Call("equals", (A, TEXT), BOOLEAN),
    "a comparison with NULL": Call("equals", (A, Literal(None, INT)), BOOLEAN),
    "a constant on the left": Call("equals", (ONE, A), BOOLEAN),
    "a comparison of one": Call("equals", (A,), BOOLEAN),
    "a comparison that answers a number": Call("equals", (A, ONE), INT),
    "a list beside a column": Call("equals", (TAGS, S), BOOLEAN),
    "between columns": Call("between", (A, A, A), BOOLEAN),
    "between one": Call("between", (A, ONE), BOOLEAN),
    "in of one": Call("in", (A, ONE), BOOLEAN),
    "in of nothing": Call("in", (), BOOLEAN),
    "in of columns": Call("in", (A, A, A), BOOLEAN),
    "in of several types": Call("in", (A, ONE, TEXT), BOOLEAN),
    "in of NULL": Call("in", (A, ONE, Literal(None, INT)), BOOLEAN),
    "in of too many": Call("in", (A, *[ONE] * (limits.MAX_IN_VALUES + 1)), BOOLEAN),
    "like of a number": Call("like", (A, TEXT), BOOLEAN),
    "like a column": Call("like", (S, S), BOOLEAN),
    "and of a value": Call("and", (IS_ONE, B), BOOLEAN),
    "and of nothing": Call("and", (), BOOLEAN),
    "not of a value": Call("not", (B,), BOOLEAN),
    "not of two": Call("not", (IS_ONE, IS_ONE), BOOLEAN),
    "null test of a constant": Call("is_null", (ONE,), BOOLEAN),
    "an aggregate": Call("greater_than", (Aggregate("count", (), LONG), ONE), BOOLEAN),
    "within and": Call("and", (IS_ONE, Call("equals", (Call("upper", (A,), STRING), TEXT), BOOLEAN)), BOOLEAN),
}
WRONG_AGGREGATES: dict[str, Aggregate] = {
    "unknown": Aggregate("nothing", (A,), LONG),
    "by another name": Aggregate("COUNT", (), LONG),
    "of a text": Aggregate("sum", (S,), DOUBLE),
    "of nothing": Aggregate("sum", (), DOUBLE),
    "of too much": Aggregate("sum", (A, A), DOUBLE),
    "with another answer": Aggregate("sum", (A,), STRING),
    "of a list": Aggregate("sum", (TAGS,), DOUBLE),
    "of lists, of a value": Aggregate("summv", (A,), DOUBLE),
    "with a constant that is none": Aggregate("percentile", (A, A), DOUBLE),
    "with a constant out of range": Aggregate("percentile", (A, Literal(101, INT)), DOUBLE),
    "with a constant that says which": Aggregate("exprmin", (Literal(9, INT), Literal(9, INT), A, A), INT),
    "of an aggregate": Aggregate("sum", (Aggregate("count", (), LONG),), DOUBLE),
    "with a filter that is a value": Aggregate("count", (), LONG, B),
    "with a filter of an aggregate": Aggregate(
        "count", (), LONG, Call("greater_than", (Aggregate("count", (), LONG), ONE), BOOLEAN)
    ),
}


def assert_refused(query: BoundQuery) -> None:
    with pytest.raises(InvalidPlanError) as caught:
        check(query)
    assert caught.value.code == QueryErrorCode.QUERY_PLANNING
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("name", WRONG)
def test_expression_that_binding_would_refuse_is_refused(name: str) -> None:
    check(BoundQuery("t", (Output("a", A),)))
    if name != "an aggregate within":
        assert_refused(BoundQuery("t", (Output("x", WRONG[name]),)))
    assert_refused(BoundQuery("t", (Output("a", A),), group_by=(WRONG[name],)))
    assert_refused(BoundQuery("t", (Output("x", Aggregate("distinctcount", (WRONG[name],), INT)),)))


@pytest.mark.parametrize("name", WRONG_FILTERS)
def test_filter_that_binding_would_refuse_is_refused(name: str) -> None:
    check_filter(IS_ONE)
    with pytest.raises(InvalidPlanError):
        check_filter(WRONG_FILTERS[name])
    assert_refused(BoundQuery("t", (Output("a", A),), where=WRONG_FILTERS[name]))
    assert_refused(BoundQuery("t", (Output("x", Aggregate("count", (), LONG, WRONG_FILTERS[name])),)))


@pytest.mark.parametrize("name", WRONG_AGGREGATES)
def test_aggregate_that_binding_would_refuse_is_refused(name: str) -> None:
    assert_refused(BoundQuery("t", (Output("x", WRONG_AGGREGATES[name]),)))


@pytest.mark.parametrize(
    "clauses",
    [
        {"limit": -1},
        {"limit": limits.MAX_ROWS + 1},
        {"offset": -1},
        {"options": (("maxServerResponseSizeBytes", "x"),)},
        {"options": (("timeoutMs", "1.5"),)},
        {"select": ()},
        {"select": (Output("x", Call("plus", (A,) * (limits.MAX_NODES + 1), LONG)),)},
    ],
)
def test_clause_out_of_bounds_is_refused(clauses: dict[str, object]) -> None:
    assert_refused(BoundQuery("t", **{"select": (Output("a", A),), **clauses}))  # type: ignore[arg-type]


def test_plan_that_is_too_long_is_refused_unread() -> None:
    check_length(limits.MAX_PLAN_BYTES)
    with pytest.raises(InvalidPlanError):
        check_length(limits.MAX_PLAN_BYTES + 1)


def test_every_function_is_checked_by_its_parameters_or_by_a_rule() -> None:
    without = {one.name for one in FUNCTIONS if not one.parameters and one.rewrite is None}
    assert set(RULES) == {one.name for one in FUNCTIONS if one.syntax}
    assert without <= set(RULES)


def test_the_longest_texts_are_plans() -> None:
    values = ", ".join(map(str, range(limits.MAX_IN_VALUES)))
    for text in (
        f"SELECT a FROM t WHERE a IN ({values})",
        f"SELECT a, {'+'.join(['a'] * 99)} FROM t LIMIT 2147483647 OFFSET 2147483647",
        f"SELECT {'UPPER(' * 24}s{')' * 24} FROM t",
        f"SELECT a FROM t WHERE {' AND '.join(f's <> {chr(39)}{number}{chr(39)}' for number in range(9_000))}",
        f"SELECT SUM(a) FROM t WHERE {' OR '.join(f'a > {number}' for number in range(9_000))} GROUP BY s",
    ):
        check(bind(parse(text), SCHEMA))


def test_decimal_beside_a_double_is_a_plan() -> None:
    value = Column("d", BIG_DECIMAL)
    check_filter(Call("less_than", (Call("cast", (A,), BIG_DECIMAL), value), BOOLEAN))
