"""Text to syntax tree: options, tables, EXPLAIN, limits, and errors of one line."""

import random

import pytest

from merlot.errors import InvalidInputError
from merlot.query.plan.binding import bind
from merlot.spec.schema import TableSchema
from merlot.sql import limits
from merlot.sql.node_text import node_text
from merlot.sql.parse import parse
from merlot.sql.syntax import Column, In, walk
from merlot.tree.errors import SqlParseError, UnsupportedSqlError

_SCHEMA = TableSchema.model_validate({"fields": [{"name": "a", "type": "INT"}]})


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        ("SET timeoutMs=5000; SELECT a FROM t", {"timeoutMs": "5000"}),
        ("SET timeoutMs = 5000;\nSET k='v w';\nSELECT a FROM t;", {"timeoutMs": "5000", "k": "v w"}),
        ("SELECT a FROM t;\nSET useMultistageEngine=true;", {"useMultistageEngine": "true"}),
        ("SELECT a FROM t OPTION(preserveType='true')", {"preserveType": "true"}),
        ("SELECT a FROM t LIMIT 5 option(a=1, b = -2) OPTION(c=d)", {"a": "1", "b": "-2", "c": "d"}),
        ("SET a=1; SELECT a FROM t OPTION(a=2)", {"a": "1"}),
        ("SELECT a FROM t OPTION(a=1); SET A=2", {"A": "2"}),
        ("SET a=1; SET A=2; SET a=3; SELECT a FROM t", {"a": "3"}),
        ("SELECT a FROM t OPTION(a=1, A=2) OPTION(a=3)", {"a": "3"}),
        ("SELECT a FROM t", {}),
    ],
)
def test_options_stand_before_after_or_in_the_query(sql: str, options: dict[str, str]) -> None:
    parsed = parse(sql)
    assert dict(parsed.options) == options
    assert parsed.table == "t"


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("SELECT 1", None),
        ("SELECT a FROM flights", "flights"),
        ('SELECT a FROM "flights_OFFLINE" f', "flights_OFFLINE"),
        ("SELECT a FROM `flights` AS f", "flights"),
        ("SELECT a FROM default.flights", "flights"),
        ("SELECT a FROM other.flights", "other.flights"),
    ],
)
def test_table_is_named_before_binding(sql: str, table: str | None) -> None:
    assert parse(sql).table == table


@pytest.mark.parametrize(
    ("candidates", "texts"),
    [
        ("1, -2, 'x''y', 2.5", ["1", "-2", "'x''y'", "2.5"]),
        ("1, 1 + 1", ["1", "1 + 1"]),
        ("'a' || 'b', c", ["'a' || 'b'", "c"]),
        ("-(1), - -1", ["-(1)", "- -1"]),
    ],
)
def test_lists_of_constants_and_of_expressions_read_alike(candidates: str, texts: list[str]) -> None:
    select = parse(f"SELECT a FROM t WHERE a IN ({candidates}) AND b = 1").select
    (node,) = (node for node in walk(select) if isinstance(node, In))
    assert [node_text(item) for item in node.items] == texts


@pytest.mark.parametrize("candidates", ["", "1,", ",1", "1 2", "1, 2", "-", "'a' 1"])
def test_broken_lists_are_syntax_errors(candidates: str) -> None:
    closing = "" if candidates == "1, 2" else ")"
    with pytest.raises(InvalidInputError):
        bind(parse(f"SELECT a FROM t WHERE a IN ({candidates}{closing}"), _SCHEMA)


def test_explain_is_recognised() -> None:
    assert parse("EXPLAIN PLAN FOR SELECT a FROM t").explain
    assert not parse("SELECT a FROM t").explain
    assert parse("EXPLAIN IMPLEMENTATION PLAN FOR SELECT a FROM t").explain
    assert parse("explain plan including all attributes for SELECT a FROM t").explain
    for form in ("EXPLAIN PLAN WITHOUT IMPLEMENTATION FOR", "EXPLAIN PLAN AS JSON FOR", "EXPLAIN PLAN WITH TYPE FOR"):
        with pytest.raises(UnsupportedSqlError, match=f"{form}: write EXPLAIN PLAN FOR"):
            parse(f"{form} SELECT a FROM t")
    with pytest.raises(UnsupportedSqlError, match="EXPLAIN SELECT: write EXPLAIN PLAN FOR"):
        parse("EXPLAIN SELECT a FROM t")


def test_words_of_other_dialects_are_plain_column_names() -> None:
    parsed = parse("SELECT position, date, value, option, current_date, $docId, Year FROM t")
    assert [node.name for node in walk(parsed.select) if isinstance(node, Column)] == [
        "position",
        "date",
        "value",
        "option",
        "current_date",
        "$docId",
        "Year",
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT a FROM t WHERE", 'line 1, column 17 near "WHERE": expected an expression'),
        ("SELECT a\nFROM t\nWHERE b = = 1", 'line 3, column 11 near "= 1": expected an expression'),
        ("SELECT a frm t", 'line 1, column 14 near "t": unexpected token'),
        ("SELEC a", 'line 1, column 1 near "SELEC a": expected SELECT'),
        ("SELECT a,, b FROM t", 'line 1, column 10 near ", b FROM t": expected an expression after the comma'),
        ("SELECT , a FROM t", "expected an expression before the comma"),
        ("SELECT a FROM t GROUP BY a, ORDER BY a", "expected an expression after the comma"),
        ("SELECT a FROM t ORDER BY a,", "expected an expression after the comma"),
        ("SELECT 'abc", "unfinished string, name or comment"),
        ("SELECT a FROM t OPTION(a", "expected OPTION(name = value, …)"),
        ("SELECT a FROM t OPTION(a)", "expected OPTION(name = value, …)"),
        ("SET a; SELECT 1", "expected SET name = value"),
        ("", "no query found"),
        ("SET a = 1;", "no query found"),
        ("EXPLAIN PLAN FOR", "no query found"),
    ],
)
def test_syntax_errors_say_where_in_one_line(sql: str, message: str) -> None:
    with pytest.raises(SqlParseError) as caught:
        parse(sql)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.code == 150


def test_text_size_and_nesting_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SqlParseError, match="nested deeper"):
        parse("SELECT " + "(" * 100 + "1" + ")" * 100)
    with pytest.raises(SqlParseError, match="nested deeper"):
        parse("SELECT " + "NOT " * 500 + "a FROM t")
    with pytest.raises(SqlParseError, match="nested"):
        parse("SELECT " + "CASE WHEN a THEN " * 500 + "1" + " END" * 500 + " FROM t")
    with pytest.raises(SqlParseError, match="nested deeper than 100 levels"):
        parse("SELECT a" + " + a" * 500 + " FROM t")
    parse("SELECT " + "(" * 25 + "1" + ")" * 25)
    parse("SELECT a FROM t WHERE " + " AND ".join(f"a = {number}" for number in range(3000)))
    monkeypatch.setattr(limits, "MAX_SQL_CHARS", 20)
    with pytest.raises(SqlParseError, match="too long"):
        parse("SELECT a FROM t WHERE a = 1")


_WORDS = """SELECT a , b FROM t WHERE = < > ( ) 'x' 1 2.5 AND OR NOT IN BETWEEN LIKE CASE WHEN THEN ELSE END NULL IS *
 + - / GROUP BY ORDER LIMIT OFFSET HAVING AS DISTINCT count CAST OPTION SET ; . " ` ' -- /* */ JOIN ON UNION WITH OVER
 FILTER EXPLAIN PLAN FOR INTERVAL DATE TIMESTAMP [ ] { } ? : @ $ # % ^ & | ~ \\ é 日 0x1 1e 1e5 true"""


def test_garbage_never_raises_anything_but_an_input_error() -> None:
    words = _WORDS.split()
    generator = random.Random(7)
    for _ in range(1500):
        text = " ".join(generator.choices(words, k=generator.randrange(1, 25)))
        for sql in (text, f"SELECT a FROM t WHERE {text}", f"SELECT {text} FROM t"):
            message = ""
            try:
                parse(sql)
            except InvalidInputError as error:
                message = str(error)
            assert "\n" not in message, sql
