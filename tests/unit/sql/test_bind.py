"""Binding: names, types, rewrites and the rules of grouping. Answers are tested by tests/sql."""

# ruff: noqa: E501 (a case is a line)
from decimal import Decimal

import pytest

from merlot.query.plan.binding import bind
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse
from merlot.tree.errors import SqlValidationError, UnknownColumnError, UnsupportedSqlError
from merlot.tree.nodes import Aggregate, BoundQuery, Call, Column, Expr, Literal
from merlot.tree.tree_json import from_json, to_json
from merlot.tree.types import INT

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "carrier", "type": "STRING"},
            {"name": "delay", "type": "INT"},
            {"name": "distance", "type": "LONG"},
            {"name": "ratio", "type": "FLOAT"},
            {"name": "price", "type": "DOUBLE"},
            {"name": "exact", "type": "BIG_DECIMAL"},
            {"name": "flag", "type": "BOOLEAN"},
            {"name": "ts", "type": "TIMESTAMP"},
            {"name": "payload", "type": "JSON"},
            {"name": "digest", "type": "BYTES"},
            {"name": "tags", "type": "STRING", "multiValue": True},
            {"name": "Mixed", "type": "INT"},
            {"name": "mIXED", "type": "INT"},
        ]
    }
)


def bound(sql: str, **options: str) -> BoundQuery:
    query = bind(parse(sql), SCHEMA, options)
    assert repr(from_json(to_json(query))) == repr(query)
    return query


def show(expr: Expr | None) -> str:
    """An expression as a test reads it: `and(equals(carrier,'AA'),greater_than(delay,5))`."""
    if expr is None:
        return "-"
    if isinstance(expr, Column):
        return expr.name
    if isinstance(expr, Literal):
        return str(expr.value) if isinstance(expr.value, Decimal) else repr(expr.value)
    name = f"{expr.function}<{expr.type}>" if isinstance(expr, Call) and expr.function == "cast" else expr.function
    text = f"{name}({','.join(show(arg) for arg in expr.args)})"
    return f"{text}[{show(expr.filter)}]" if isinstance(expr, Aggregate) and expr.filter is not None else text


def where(condition: str, **options: str) -> str:
    return show(bound(f"SELECT carrier FROM flights WHERE {condition}", **options).where)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("delay < 5.1", "less_than_or_equal(delay,5)"),
        ("delay > 5.1", "greater_than_or_equal(delay,6)"),
        ("delay >= -5.1", "greater_than_or_equal(delay,-5)"),
        ("delay <= -5.1", "less_than_or_equal(delay,-6)"),
        ("delay = 5.0", "equals(delay,5)"),
        ("delay = 5.5", "False"),
        ("delay <> 5.5", "-"),
        ("delay < 3000000000", "-"),
        ("delay > 3000000000", "False"),
        ("delay >= -3000000000", "-"),
        ("delay < -2147483648", "False"),
        ("distance = 9223372036854775808", "False"),
        ("distance < 9223372036854775807.5", "-"),
        ("delay = '7'", "equals(delay,7)"),
        ("5 < delay", "greater_than(delay,5)"),
        ("5 = delay", "equals(delay,5)"),
        ("delay BETWEEN 5 AND 1", "False"),
        ("delay BETWEEN 1.5 AND 3.5", "between(delay,2,3)"),
        ("delay BETWEEN -3000000000 AND 3", "less_than_or_equal(delay,3)"),
        ("delay NOT BETWEEN 1 AND 3", "not(between(delay,1,3))"),
        ("delay BETWEEN 1 AND distance", "and(greater_than_or_equal(delay,1),less_than_or_equal(cast<LONG>(delay),distance))"),
        ("delay IN (1, 1.0, 2.5, 2)", "in(delay,1,2)"),
        ("delay IN (1)", "equals(delay,1)"),
        ("delay IN (1.5)", "False"),
        ("delay NOT IN (1.5)", "-"),
        ("delay NOT IN (1, 2)", "not_in(delay,1,2)"),
        ("NOT delay IN (1, 2)", "not_in(delay,1,2)"),
        ("NOT (delay = 1)", "not_equals(delay,1)"),
        ("NOT delay > 1", "not(greater_than(delay,1))"),
        ("delay = 1 OR delay IN (2, 3) OR flag", "or(in(delay,1,2,3),equals(flag,True))"),
        ("delay <> 1 AND delay <> 2", "not_in(delay,1,2)"),
        ("delay = 1 AND delay = 2", "and(equals(delay,1),equals(delay,2))"),
        ("(delay > 1 AND flag) AND (flag AND price > 2)", "and(greater_than(delay,1),equals(flag,True),greater_than(price,2.0))"),
        ("delay > 1 AND 1 = 1", "greater_than(delay,1)"),
        ("delay > 1 OR 1 = 1", "-"),
        ("delay > 1 AND 1 > 2", "False"),
        ("ratio = 5.1", "equals(ratio,5.099999904632568)"),
        ("ratio < 1e300", "less_than(ratio,inf)"),
        ("ratio > 1e300", "greater_than_or_equal(ratio,inf)"),
        ("ratio = 1e300", "False"),
        ("price IN (1, 2)", "in(price,1.0,2.0)"),
        ("exact > 1.5", "greater_than(exact,1.5)"),
        ("exact = 12345678901234567890.123456789", "equals(exact,12345678901234567890.123456789)"),
        ("flag", "equals(flag,True)"),
        ("NOT flag", "not_equals(flag,True)"),
        ("flag = 1", "equals(flag,True)"),
        ("flag = 'false'", "equals(flag,False)"),
        ("flag IS NOT TRUE", "not_equals(flag,True)"),
        ("ts >= '2013-01-01'", "greater_than_or_equal(ts,1356998400000)"),
        ("ts >= '2013-01-01 00:00:00.25'", "greater_than_or_equal(ts,1356998400250)"),
        ("ts >= '2013-01-01T00:00:00+01:00'", "greater_than_or_equal(ts,1356994800000)"),
        ("ts >= 1356998400000", "greater_than_or_equal(ts,1356998400000)"),
        ("ts >= '1356998400000'", "greater_than_or_equal(ts,1356998400000)"),
        ("ts > TIMESTAMP '2013-01-01 00:00:00'", "greater_than(ts,1356998400000)"),
        ("carrier = 5", "equals(carrier,'5')"),
        ("digest = 'ab01'", "equals(digest,b'\\xab\\x01')"),
        ("carrier LIKE 'a!%_!!' ESCAPE '!'", "like(carrier,'a\\\\%_!')"),
        ("carrier NOT LIKE 'a%'", "not(like(carrier,'a%'))"),
        ("carrier = NULL", "False"),
        ("NOT carrier = NULL", "-"),
        ("carrier IS NULL OR delay IS NOT NULL", "or(is_null(carrier),is_not_null(delay))"),
        ("delay > distance", "greater_than(cast<LONG>(delay),distance)"),
        ("price > distance", "greater_than(price,cast<DOUBLE>(distance))"),
        ("delay - 5 > 0", "greater_than(minus(delay,5),0)"),
        ("tags = 'x'", "equals(tags,'x')"),
        ("tags NOT IN ('x', 'y')", "not_in(tags,'x','y')"),
        ("CASE WHEN flag THEN delay = 1 ELSE false END", "equals(case(equals(flag,True),equals(delay,1),False),True)"),
        ("CARRIER = 'x' AND flights.Delay = 1", "and(equals(carrier,'x'),equals(delay,1))"),
    ],
)  # fmt: skip
def test_conditions_are_rewritten_to_like_types(condition: str, expected: str) -> None:
    assert where(condition) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("delay = 5.5", "less_than(delay,-2147483648)"),
        ("delay <> 5.5", "greater_than_or_equal(delay,-2147483648)"),
        ("delay BETWEEN 5 AND 1", "between(delay,5,1)"),
        ("carrier = NULL", "False"),
        ("NOT carrier = NULL", "False"),
        ("delay IN (1, 2, NULL)", "in(delay,1,2)"),
        ("delay NOT IN (1, 2, NULL)", "False"),
    ],
)
def test_null_handling_keeps_the_verdict_null_for_nulls(condition: str, expected: str) -> None:
    assert where(condition, enableNullHandling="true") == expected


@pytest.mark.parametrize(
    ("item", "label", "type_", "expected"),
    [
        ("COUNT(*)", "count(*)", "LONG", "count()"),
        ("COUNT(carrier)", "count(*)", "LONG", "count()"),
        ("COUNT(DISTINCT carrier)", "distinctcount(carrier)", "INT", "distinctcount(carrier)"),
        ("SUM(DISTINCT delay)", "distinctsum(delay)", "DOUBLE", "distinctsum(delay)"),
        ("PERCENTILE95(delay)", "percentile95(delay)", "DOUBLE", "percentile(delay,95)"),
        ("distinct_count(carrier)", "distinctcount(carrier)", "INT", "distinctcount(carrier)"),
        ("SUM(delay)", "sum(delay)", "DOUBLE", "sum(delay)"),
        ("MIN(distance)", "min(distance)", "DOUBLE", "min(distance)"),
        ("MAX(ts)", "max(ts)", "DOUBLE", "max(ts)"),
        ("AVG(exact)", "avg(exact)", "DOUBLE", "avg(exact)"),
        ("SumLong(delay)", "sumlong(delay)", "LONG", "sumlong(delay)"),
        ("SUM(delay + 1)", "sum(plus(delay,'1'))", "DOUBLE", "sum(plus(delay,1))"),
        ("PERCENTILE(delay, 50)", "percentile(delay, 50.0)", "DOUBLE", "percentile(delay,50)"),
        ("PERCENTILE(delay, 50) + 1", "plus(percentile(delay,'50'),'1')", "DOUBLE", "plus(percentile(delay,50),1)"),
        ("MODE(delay, 'MAX')", "mode(delay)", "DOUBLE", "mode(delay,'MAX')"),
        (
            "SUM(delay) FILTER (WHERE flag)",
            "sum(delay) FILTER(WHERE flag = 'true')",
            "DOUBLE",
            "sum(delay)[equals(flag,True)]",
        ),
        ("1", "1", "INT", "1"),
        ("1 + 2", "3", "LONG", "3"),
        ("7 / 2", "3.5", "DOUBLE", "3.5"),
        ("-7 % 4", "-3", "LONG", "-3"),
        ("-2147483648", "-2147483648", "INT", "-2147483648"),
        ("3000000000", "3000000000", "LONG", "3000000000"),
        ("9223372036854775808", "9223372036854775808", "BIG_DECIMAL", "9223372036854775808"),
        ("0.5", "0.5", "DOUBLE", "0.5"),
        ("'x'", "'x'", "STRING", "'x'"),
        ("upper('x') || 'y'", "'Xy'", "STRING", "'Xy'"),
        ("CAST('5' AS INT)", "5", "INT", "5"),
        ("CAST(5.7 AS LONG)", "5", "LONG", "5"),
        ("1e400 % 5", "NaN", "DOUBLE", "nan"),
        ("1 / 0", "Infinity", "DOUBLE", "inf"),
    ],
)
def test_select_items_have_pinots_labels_and_types(item: str, label: str, type_: str, expected: str) -> None:
    (output,) = bound(f"SELECT {item} FROM flights").select
    assert (output.label, str(output.expr.type), show(output.expr)) == (label, type_, expected)


@pytest.mark.parametrize(
    ("item", "label", "type_", "expected"),
    [
        ("delay + delay", "plus(delay,delay)", "LONG", "plus(delay,delay)"),
        ("delay * price", "times(delay,price)", "DOUBLE", "times(delay,price)"),
        ("exact + 1", "plus(exact,'1')", "BIG_DECIMAL", "plus(exact,1)"),
        ("delay / 2", "divide(delay,'2')", "DOUBLE", "divide(delay,2)"),
        ("-delay", "negate(delay)", "LONG", "negate(delay)"),
        ("Delay", "delay", "INT", "delay"),
        ("delay AS x", "x", "INT", "delay"),
        ("delay AS 'a b'", "a b", "INT", "delay"),
        ("CAST(delay AS INT)", "cast(delay,'INTEGER')", "INT", "delay"),
        ("CAST(delay AS VARCHAR)", "cast(delay,'VARCHAR')", "STRING", "cast<STRING>(delay)"),
        ("length(carrier)", "length(carrier)", "INT", "length(carrier)"),
        ("DATE_TRUNC('day', ts)", "datetrunc('day',ts)", "LONG", "datetrunc('DAY',ts,'MILLISECONDS','UTC','MILLISECONDS')"),
        ("datetrunc('week', distance, 'SECONDS', 'Europe/Berlin')", "datetrunc('week',distance,'SECONDS','Europe/Berlin')", "LONG", "datetrunc('WEEK',distance,'SECONDS','Europe/Berlin','SECONDS')"),
        ("CASE WHEN flag THEN 1 ELSE price END", "case(flag,'1',price)", "DOUBLE", "case(equals(flag,True),1.0,price)"),
        ("CASE WHEN flag THEN 'x' END", "case(flag,'x','null')", "STRING", "case(equals(flag,True),'x','')"),
        ("CASE delay WHEN 1 THEN 'x' ELSE 'y' END", "case(equals(delay,'1'),'x','y')", "STRING", "case(equals(delay,1),'x','y')"),
        ("CASE WHEN 1 = 2 THEN 1 WHEN 1 = 1 THEN delay ELSE 5 END", "case('false','1','true',delay,'5')", "INT", "delay"),
        ("delay + (1 + 2)", "plus(delay,'3')", "LONG", "plus(delay,3)"),
        ("carrier NOT IN ('a')", "not_in(carrier,'a')", "BOOLEAN", "not_equals(carrier,'a')"),
        ("carrier NOT LIKE 'a%'", "not(like(carrier,'a%'))", "BOOLEAN", "not(like(carrier,'a%'))"),
        ("delay IS NOT NULL", "is_not_null(delay)", "BOOLEAN", "is_not_null(delay)"),
        ("REGEXP_LIKE(carrier, 'a')", "regexp_like(carrier,'a')", "BOOLEAN", "regexplike(carrier,'a')"),
        ("TRIM(carrier)", "trim('BOTH',' ',carrier)", "STRING", "trim(carrier)"),
        ("flag AND delay > 1 AND price < 2", "and(flag,greater_than(delay,'1'),less_than(price,'2'))", "BOOLEAN", "and(equals(flag,True),greater_than(delay,1),less_than(price,2.0))"),
        ("tags", "tags", "STRING_ARRAY", "tags"),
        ("ARRAYDISTINCTSTRING(tags)", "arraydistinctstring(tags)", "STRING_ARRAY", "arraydistinctint(tags)"),
        ("array_sort_string(tags)", "arraysortstring(tags)", "STRING_ARRAY", "arraysortint(tags)"),
        ("$docId", "$docId", "INT", "$docId"),
    ],
)  # fmt: skip
def test_expressions_have_labels_and_types(item: str, label: str, type_: str, expected: str) -> None:
    (output,) = bound(f"SELECT {item} FROM flights").select
    assert (output.label, str(output.expr.type), show(output.expr)) == (label, type_, expected)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("carrier = 'AA'", "carrier = 'AA'"),
        ("5 < delay", "delay > '5'"),
        ("delay <> 1 + 1", "delay != '2'"),
        ("delay > price", "minus(delay,price) > '0'"),
        ("delay BETWEEN 1 AND 5 AND flag AND carrier IN ('a', 'b')", "(delay BETWEEN '1' AND '5' AND flag = 'true' AND carrier IN ('a','b'))"),
        ("carrier NOT IN ('a') OR NOT delay = 1", "(carrier NOT IN ('a') OR (NOT delay = '1'))"),
        ("delay IS NULL OR carrier IS NOT NULL", "(delay IS NULL OR carrier IS NOT NULL)"),
        ("carrier LIKE 'a.b%'", "regexp_like(carrier,'^a\\.b')"),
        ("carrier NOT LIKE '%_x'", "(NOT regexp_like(carrier,'.x$'))"),
        ("REGEXP_LIKE(upper(carrier), 'a')", "regexp_like(upper(carrier),'a')"),
        ("startsWith(carrier, 'a')", "startswith(carrier,'a') = 'true'"),
    ],
)  # fmt: skip
def test_filters_of_aggregates_are_labelled_as_pinot_prints_them(condition: str, expected: str) -> None:
    (output,) = bound(f"SELECT COUNT(*) FILTER (WHERE {condition}) FROM flights").select
    assert output.label == f"count(*) FILTER(WHERE {expected})"


def test_star_is_every_column_in_the_schemas_order() -> None:
    assert tuple(output.label for output in bound("SELECT * FROM flights").select) == SCHEMA.names


def test_aliases_and_positions_stand_for_select_items() -> None:
    query = bound("SELECT upper(carrier) AS c, SUM(delay) AS s FROM flights GROUP BY c HAVING s > 5 ORDER BY 2 DESC, c")
    assert [show(key) for key in query.group_by] == ["upper(carrier)"]
    assert show(query.having) == "greater_than(sum(delay),5.0)"
    assert [(show(key.expr), key.ascending, key.nulls_last) for key in query.order_by] == [
        ("sum(delay)", False, False),
        ("upper(carrier)", True, True),
    ]


def test_alias_hides_a_column_after_select_but_not_in_where_and_not_inside_aggregates() -> None:
    query = bound("SELECT upper(carrier) AS carrier, SUM(delay) AS delay FROM flights WHERE delay > 1 GROUP BY carrier HAVING SUM(delay) > 2")  # fmt: skip
    assert show(query.where) == "greater_than(delay,1)"
    assert [show(key) for key in query.group_by] == ["upper(carrier)"]
    assert show(query.having) == "greater_than(sum(delay),2.0)"


def test_nulls_can_be_placed_by_word() -> None:
    query = bound("SELECT delay FROM flights ORDER BY delay NULLS FIRST, price DESC NULLS LAST")
    assert [(key.ascending, key.nulls_last) for key in query.order_by] == [(True, False), (False, True)]


def test_limit_is_ten_unless_stated() -> None:
    assert (bound("SELECT delay FROM flights").limit, bound("SELECT delay FROM flights LIMIT 3, 7").offset) == (10, 3)
    assert bound("SELECT delay FROM flights OFFSET 4 LIMIT 2").offset == 4


def test_options_of_the_text_win_over_those_of_the_request() -> None:
    query = bound("SET TIMEOUTMS=5; SELECT delay FROM flights OPTION(b=2)", timeoutMs="9", a="1")
    assert query.options == (("TIMEOUTMS", "5"), ("a", "1"), ("b", "2"))
    assert query.option("timeoutMs") == "5"


def test_select_without_from_is_constants() -> None:
    query = bind(parse("SELECT 1, 'x' AS y"), None)
    assert (query.table, query.select[0].expr) == ("", Literal(1, INT))
    with pytest.raises(UnknownColumnError):
        bind(parse("SELECT a"), None)


def test_the_nearest_name_is_suggested_for_an_unknown_one_of_usual_length() -> None:
    with pytest.raises(UnknownColumnError, match=r"name=delai.*; did you mean delay\?$"):
        bound("SELECT delai FROM flights")
    long = "a" * 100
    with pytest.raises(UnknownColumnError) as caught:
        bound(f"SELECT delay AS {long}1 FROM flights WHERE {long}2 = 1")
    assert "did you mean" not in str(caught.value)


def test_column_is_found_by_exact_name_first_then_by_the_only_one_that_differs_in_case() -> None:
    assert show(bound("SELECT Mixed FROM flights").select[0].expr) == "Mixed"
    assert show(bound("SELECT mIXED FROM flights").select[0].expr) == "mIXED"
    with pytest.raises(UnknownColumnError, match="name=mixed"):
        bound("SELECT mixed FROM flights")


def test_count_of_a_column_counts_values_with_null_handling() -> None:
    (output,) = bound("SELECT COUNT(delay) FROM flights", enableNullHandling="true").select
    assert (output.label, show(output.expr)) == ("count(delay)", "count(delay)")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT $partitionId FROM flights", UnsupportedSqlError),
        ("SELECT tags + 1 FROM flights", UnsupportedSqlError),
        ("SELECT delay FROM flights WHERE tags = carrier", UnsupportedSqlError),
        ("SELECT delay FROM flights WHERE carrier ILIKE 'a'", UnsupportedSqlError),
        ("SELECT delay FROM flights WHERE carrier = ?", UnsupportedSqlError),
        ("SELECT tags[1:2] FROM flights", UnsupportedSqlError),
        ("SELECT CAST(delay AS DATE) FROM flights", UnsupportedSqlError),
        ("SELECT * EXCEPT(delay) FROM flights", UnsupportedSqlError),
        ("SELECT delay FROM flights FOR UPDATE", UnsupportedSqlError),
        ("SELECT SUM(delay) FILTER (WHERE COUNT(*) > 1) FROM flights", SqlValidationError),
        ("SELECT upper(carrier) FILTER (WHERE flag) FROM flights", SqlValidationError),
        ("SELECT delay FROM flights WHERE digest = 'xyz'", SqlValidationError),
        ("SELECT delay FROM flights WHERE flag = 5", SqlValidationError),
        ("SELECT CAST(delay AS BYTES) FROM flights", SqlValidationError),
        ("SELECT delay FROM flights WHERE carrier LIKE 'a!' ESCAPE '!'", SqlValidationError),
        ("SELECT delay FROM flights LIMIT 99999999999", SqlValidationError),
        ("SELECT nope.delay FROM flights", UnknownColumnError),
        ("SELECT DISTINCTCOUNTRAWHLLPLUS(delay, CAST(NULL AS INT)) FROM flights", SqlValidationError),
        ("SELECT LISTAGG(carrier, CAST(NULL AS STRING)) FROM flights", SqlValidationError),
    ],
)
def test_what_makes_no_sense_is_refused(sql: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        bound(sql)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["$docId", "$segmentName", "carrier"])
def test_without_a_table_there_are_no_columns(name: str) -> None:
    with pytest.raises(UnknownColumnError, match="unknown column"):
        bind(parse(f"SELECT {name}"), None)
