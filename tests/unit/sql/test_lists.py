"""Long lists of constants, which are one token: they mean, are called and fail as they do when they are parsed."""

import random
import re
from collections.abc import Callable

import pytest

from merlot.errors import InvalidInputError
from merlot.query.plan.binding import bind
from merlot.spec.schema import TableSchema
from merlot.sql import lexer, parse
from merlot.sql.syntax import Constants, walk
from merlot.tree import tree_json

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "i", "type": "INT"},
            {"name": "l", "type": "LONG"},
            {"name": "d", "type": "DOUBLE"},
            {"name": "f", "type": "FLOAT"},
            {"name": "b", "type": "BIG_DECIMAL"},
            {"name": "s", "type": "STRING"},
            {"name": "at", "type": "TIMESTAMP"},
            {"name": "js", "type": "JSON"},
            {"name": "flag", "type": "BOOLEAN"},
            {"name": "is", "type": "INT", "multiValue": True},
        ]
    }
)


NO_LISTS = re.compile(lexer._TOKEN.pattern.replace("[iI][nN]", "[^\\s\\S]", 1))


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of three values are long ones."""
    pattern = lexer._TOKEN.pattern.replace(f"{{{lexer.MIN_VALUES - 1},}}", "{2,}")
    monkeypatch.setattr(lexer, "_TOKEN", re.compile(pattern))
    monkeypatch.setattr(lexer, "MIN_LIST_CHARS", 5)


def answer_of(sql: str) -> str:
    """The bound query and its bytes, or the error."""
    try:
        query = bind(parse.parse(sql), SCHEMA)
    except InvalidInputError as error:
        return f"{type(error).__name__} {error}"
    encoded = tree_json.to_json(query)
    assert repr(tree_json.from_json(encoded)) == repr(query)
    return f"{query!r}"


def both(sql: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    listed = answer_of(sql)
    with monkeypatch.context() as plain:
        plain.setattr(lexer, "_TOKEN", NO_LISTS)
        return listed, answer_of(sql)


def num_lists(sql: str) -> int:
    """Long lists of the tree; 0 if there is none."""
    try:
        return sum(isinstance(node, Constants) for node in walk(parse.parse_statement(sql).tree))
    except InvalidInputError:
        return 0


NUMBERS = ["1", "-2", "007", "2147483648", "-9223372036854775809", "1.5", "-0.0", "0", "12345678901234567890.125", "2"]
TEXTS = ["'a'", "'it''s'", "''", "'x,y)'", "'IN (1,2,3)'", "'-- 5'", "'é'", "'2020-01-01 00:00:00'", "'3'", "'a\nb'"]
ODD = ["NULL", "1e5", ".5", "1.", "x'00'", "i", "1 + 1", "- 5", "--c\n4", "/* c */ 4", '"s"', "true", "1_0", "0x1", ""]


def some_list(rng: random.Random) -> str:
    pools = [NUMBERS[:5], NUMBERS, TEXTS, [*NUMBERS, *TEXTS], [*NUMBERS, *ODD]]
    pool = rng.choices(pools, [9, 3, 7, 1, 1])[0]
    space: Callable[[], str] = lambda: rng.choice(["", "", " ", "\n", "\t "])  # noqa: E731
    values = [f"{space()}{rng.choice(pool)}{space()}" for _ in range(rng.randrange(1, 9))]
    return f"({','.join(values)})"


def some_condition(rng: random.Random) -> str:
    column = rng.choice(
        ["i", "l", "d", "f", "b", "s", "at", "js", "flag", '"is"', "i + 1", "1", "'a'", "nosuch"][: rng.choice([7, 14])]
    )
    word = rng.choice(
        ["IN ", "in", "NOT IN\n", "not In", "IN", "begin", '"IN"', "t.in", "IN IN"][: rng.choice([5, 5, 5, 9])]
    )
    return rng.choice(["{0} {1}{2}", "NOT ({0} {1}{2})", "CASE WHEN {0} {1}{2} THEN true ELSE false END"]).format(
        column, word, some_list(rng)
    )


def some_query(rng: random.Random) -> str:
    conditions = f" {rng.choice(['AND', 'OR'])} ".join(some_condition(rng) for _ in range(rng.randrange(1, 4)))
    select = rng.choice(
        ["i", f"{some_condition(rng)}", "COUNT(*)", "'", '"', "/* IN (1,2,3) */ i", "-- IN (1,2,3)\n l"]
    )
    end = (
        ""
        if rng.random() < 0.7
        else rng.choice([" LIMIT 5", " LIMIT 'x'", " ORDER BY", ") x", " = = 1", " OPTION(a=1)", ";"])
    )
    start = rng.choice(["", "", "", "SET a=1;", "SET enableNullHandling=true;", "/* /* */ ", "EXPLAIN PLAN FOR "])
    return f"{start}SELECT {select} FROM t WHERE {conditions}{end}"


@pytest.mark.usefixtures("low_limits")
def test_long_lists_mean_what_they_mean_when_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    num_long = num_bound = 0
    for _ in range(3_000):
        sql = some_query(rng)
        listed, plain = both(sql, monkeypatch)
        assert listed == plain, sql
        num_long += bool(num_lists(sql))
        num_bound += listed.startswith("BoundQuery")
    assert num_long > 300
    assert num_bound > 300


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT i FROM t IN (1,2,3)",
        "SELECT IN (1,2,3) FROM t",
        "SELECT i FROM t WHERE i IN IN (1,2,3)",
        "SELECT i IN (1,2,3), s NOT IN ('a', 'b''', 'c'), d IN (1.5, 007, -2) FROM t",
    ],
)
def test_a_list_out_of_place_fails_as_ever(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, plain = both(sql, monkeypatch)
    assert listed == plain


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("a IN (1,2,3)", 1),
        ("a IN (1,2)", 0),
        ("a IN (1,2,3) OR b NOT IN ('x','y','z')", 2),
        ("a = 'a IN (1,2,3)'", 0),
        ('a = "a IN (1,2,3)"', 0),
        ("a = `a IN (1,2,3)`", 0),
        ("a -- a IN (1,2,3)", 0),
        ("/* a IN (1,2,3) */ a = 1", 0),
        ("/* /* ' */ a IN (1,2,3) */ a IN (1,2,3)", 1),
        ("begIN (1,2,3)", 0),
        ("a IN (1,2,3,'x')", 0),
        ("a IN (1,2,3 + 4)", 0),
        ("a in(1 , -2\n,3.5 )", 1),
    ],
)
def test_a_list_is_read_as_one_where_it_follows_in(condition: str, count: int) -> None:
    sql = f"SELECT a FROM t WHERE {condition}"
    assert parse.parse_statement(sql)
    assert num_lists(sql) == count


def test_errors_after_a_long_list_name_the_place_in_the_text() -> None:
    values = ",\n".join(map(str, range(200)))
    with pytest.raises(InvalidInputError, match=r"line 201, column 10 near \"= b\": expected an expression"):
        parse.parse(f"SELECT a FROM t\nWHERE a IN ({values}) AND = b")


def test_a_long_list_counts_as_all_of_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ",".join(map(str, range(1_001)))
    monkeypatch.setattr(parse.limits, "MAX_IN_VALUES", 1_000)
    with pytest.raises(InvalidInputError, match="too many values in IN got=1001 limit=1000"):
        parse.parse(f"SELECT a FROM t WHERE a IN ({values})")


def test_many_parentheses_are_refused_before_they_are_read() -> None:
    opening, closing = "(" * 100_000, ")" * 100_000
    with pytest.raises(InvalidInputError, match=r"line 2, column 39 near .*: nested deeper than 25 levels$"):
        parse.parse(f"SELECT a\nFROM t WHERE {opening}1{closing}")
