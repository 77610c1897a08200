"""Long lists of constants, cut out of the text: they mean, are called and fail as they do when they are parsed."""

import random
from collections.abc import Callable

import pytest

from merlot.errors import InvalidInputError
from merlot.query.plan.binding import bind
from merlot.spec.schema import TableSchema
from merlot.sql import lists, parse
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


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of three values are long ones."""
    pattern = lists._PIECES.pattern.replace(f"{{{lists.MIN_VALUES - 1},}}", "{2,}")
    monkeypatch.setattr(lists, "_PIECES", lists.re.compile(pattern))
    monkeypatch.setattr(lists, "MIN_CHARS", 0)


def whole(sql: str) -> lists.CutText:
    return lists.CutText(sql, sql)


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
    cut = answer_of(sql)
    with monkeypatch.context() as plain:
        plain.setattr(parse, "cut", whole)
        return cut, answer_of(sql)


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
def test_cut_lists_mean_what_they_mean_when_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    num_cut = num_bound = 0
    for _ in range(3_000):
        sql = some_query(rng)
        cut, plain = both(sql, monkeypatch)
        assert cut == plain, sql
        num_cut += bool(lists.cut(sql).lists)
        num_bound += cut.startswith("BoundQuery")
    assert num_cut > 1_000
    assert num_bound > 300


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize(
    "sql",
    [
        "SET a=IN (1,2,3);SELECT i FROM t",
        "SELECT i FROM t OPTION(a=IN (1,2,3))",
        "SELECT i FROM t IN (1,2,3)",
        "SELECT IN (1,2,3) FROM t",
        "SELECT i FROM t WHERE i IN IN (1,2,3)",
        "SELECT i IN (1,2,3), s NOT IN ('a', 'b''', 'c'), d IN (1.5, 007, -2) FROM t",
    ],
)
def test_a_list_out_of_place_fails_as_ever(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cut, plain = both(sql, monkeypatch)
    assert cut == plain


@pytest.mark.usefixtures("low_limits")
def test_a_list_is_found_only_where_the_tokenizer_would_find_it() -> None:
    for text, num_lists in [
        ("a IN (1,2,3)", 1),
        ("a IN (1,2)", 0),
        ("a IN (1,2,3) OR b NOT IN ('x','y','z')", 2),
        ("'a IN (1,2,3)'", 0),
        ('"a IN (1,2,3)"', 0),
        ("`a IN (1,2,3)`", 0),
        ("-- a IN (1,2,3)", 0),
        ("/* a IN (1,2,3) */ 1", 0),
        ("/* /* */ a IN (1,2,3)", 0),
        ("t.IN (1,2,3)", 0),
        ("begIN (1,2,3)", 0),
        ("a IN (1,2,3,'x')", 0),
        ("a IN (1,2,3 + 4)", 0),
    ]:
        assert len(lists.cut(text).lists) == num_lists, text


def test_tokens_of_a_cut_text_stand_where_those_of_the_whole_one_do() -> None:
    values = ",\n".join(map(str, range(200)))
    sql = f"SELECT 'a\nb' FROM t\nWHERE a IN ({values}) AND s IN ({','.join(['2'] * 100)}) AND\n 'x\ny' = b"
    text = lists.cut(sql)
    found, tokens = parse._tokenize(text), parse._tokenize(whole(sql))
    assert found
    assert tokens
    wanted = {token.start: token for token in tokens}
    assert len(found) < 30
    for token in found:
        other = wanted[token.start]
        assert (token.text, token.end, token.line, token.col) == (other.text, other.end, other.line, other.col)


def test_a_cut_list_counts_as_all_of_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ",".join(map(str, range(1_001)))
    monkeypatch.setattr(parse.limits, "MAX_IN_VALUES", 1_000)
    with pytest.raises(InvalidInputError, match="too many values in IN got=1001 limit=1000"):
        parse.parse(f"SELECT a FROM t WHERE a IN ({values})")


def test_many_parentheses_are_refused_before_they_are_tokens() -> None:
    sql = "SELECT a\nFROM t WHERE " + "(" * 500_000 + "1" + ")" * 500_000
    with pytest.raises(InvalidInputError, match=r"line 2, column 39 near .*: nested deeper than 25 levels$"):
        parse.parse(sql)
