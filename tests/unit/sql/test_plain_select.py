"""Plain texts are read as the dialect's parser reads them, to the last part of each node, or are left to it."""

import random
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp
from tests.bench.clickbench_queries import queries
from tests.bench.ssb_data import MORE_QUERIES, QUERIES
from tests.sql.slt_reader import read_file

from merlot.errors import InvalidInputError
from merlot.sql import limits
from merlot.sql.budget import Budget
from merlot.sql.chains import Chain, joined
from merlot.sql.parse import parse_statement, read_any
from merlot.sql.plain_select import MAX_CHARS, read_plain

SLT = Path(__file__).parents[2] / "sql"


def parts(node: Any) -> Any:
    """A tree as plain values, without parts that are not there."""
    if isinstance(node, Chain):
        return parts(joined(node.this, node.args["parts"], is_labelled=True))
    if isinstance(node, exp.Expr):
        return type(node), {name: parts(value) for name, value in node.args.items() if value not in (None, [], False)}
    return [parts(one) for one in node] if isinstance(node, list) else node


def is_read(sql: str) -> bool:
    """Whether a text is plain, and then read as by the dialect's parser."""
    plain = read_plain(sql)
    if plain is None:
        return False
    statement = read_any(sql, Budget())
    assert parts(plain) == parts(statement.tree), sql
    assert (statement.options, statement.explain, statement.has_stages) == ((), False, False), sql
    return True


def test_all_queries_of_the_tests_read_alike() -> None:
    texts = {case.sql for path in SLT.glob("*.slt") for case in read_file(path) if case.error is None}
    assert sum(map(is_read, sorted(texts))) > 400


def test_errors_of_the_tests_are_left_to_the_parser() -> None:
    for case in (case for path in SLT.glob("*.slt") for case in read_file(path) if case.error is not None):
        if read_plain(case.sql) is not None:
            assert is_read(case.sql)


def test_benchmarks_read_alike() -> None:
    clickbench = [query.sql for query in queries(5, 62, (3, 4), -7).values()]
    assert sum(map(is_read, clickbench)) > 35
    assert sum(map(is_read, [*QUERIES.values(), *MORE_QUERIES.values()])) > 10


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM t",
        "select count (*), Sum ( a+1 ), f() from T where a<>-3 and not b>=2.5 or c in (1,-2,'x')",
        "SELECT DISTINCT a, *, (a) FROM t LIMIT 5 OFFSET 3",
        "SELECT a AS b, -a * (b - 1) / 2 - -3 FROM t ORDER BY 1, b DESC, a ASC",
        "SELECT COUNT(DISTINCT a, b) FROM t GROUP BY a, b + 1, 2 HAVING COUNT(*) > 3 AND a = 'é\n'",
        "SELECT a FROM t WHERE a NOT LIKE 'x%' AND b LIKE c AND b NOT IN ('') AND c IS NOT NULL AND d IS NULL",
        "SELECT a FROM t WHERE NOT (a = 1 OR NOT b = 2) AND c NOT BETWEEN 1 AND b + 1 AND f(a > 1, b)",
        "SELECT a > 1 AND b FROM t WHERE a\t=\r\n1",
        "SELECT a FROM t OFFSET 3",
        "SELECT 'it''s', '''' FROM t WHERE a = '''x''''y' AND b IN ('', '''')",
        f"SELECT a FROM t WHERE a = '{MAX_CHARS * 'x'}'",
    ],
)
def test_plain_texts_are_read(sql: str) -> None:
    assert is_read(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELECT 1",
        "SELECT a FROM t;",
        "SELECT a b FROM t",
        "SELECT a FROM t AS x",
        "SELECT a FROM t x",
        "SELECT x.a FROM x",
        "SELECT a FROM d.t",
        "SELECT a, FROM t",
        "SELECT FROM t",
        "SELECT a FROM t WHERE",
        "SELECT a FROM t WHERE a = b = c",
        "SELECT a FROM t WHERE a < 1 < 2",
        "SELECT a FROM t WHERE a = NOT b",
        "SELECT a FROM t WHERE NOT NOT a = 1",
        "SELECT a FROM t WHERE a IN ()",
        "SELECT a FROM t WHERE a IN (1, b)",
        "SELECT a FROM t WHERE a IN (SELECT 1)",
        "SELECT a FROM t WHERE (a, b) = (1, 2)",
        "SELECT a FROM t WHERE a = 'it''s",
        "SELECT a FROM t WHERE a = 'x\\y'",
        "SELECT a FROM t WHERE a = 'open",
        "SELECT a FROM t WHERE a = 1e5",
        "SELECT a FROM t WHERE a = 12e5",
        "SELECT a FROM t WHERE a = 1.",
        "SELECT a FROM t WHERE a = .5",
        "SELECT a FROM t WHERE a = 12x",
        "SELECT a FROM t WHERE a = x'ab'",
        "SELECT a FROM t WHERE a LIKE 'x!%' ESCAPE '!'",
        "SELECT a -- b\n FROM t",
        "SELECT a /* b */ FROM t",
        "SELECT 5 --3 FROM t",
        'SELECT "a" FROM t',
        "SELECT `a` FROM t",
        "SELECT $docId FROM t",
        "SELECT é FROM t",
        "SELECT a\u00a0FROM t",
        "SELECT a\fFROM t",
        "SELECT CASE WHEN a = 1 THEN 2 END FROM t",
        "SELECT CAST(a AS INT) FROM t",
        "SELECT TRIM(a) FROM t",
        "SELECT SUM(a) FILTER (WHERE b = 1) FROM t",
        "SELECT SUM(a) OVER (ORDER BY b) FROM t",
        "SELECT a FROM t GROUP BY ROLLUP(a)",
        "SELECT a FROM t ORDER BY a NULLS LAST",
        "SELECT a FROM t LIMIT 5, 10",
        "SELECT a FROM t LIMIT -1",
        "SELECT a FROM t UNION SELECT a FROM t",
        "SELECT a FROM t JOIN s",
        "SELECT a FROM t OPTION(timeoutMs=5)",
        "SET timeoutMs=5; SELECT a FROM t",
        "EXPLAIN PLAN FOR SELECT a FROM t",
        "SELECT TOP 5 a FROM t",
        f"SELECT {'a' * 101} FROM t",
        f"SELECT {'(' * 11}a{')' * 11} FROM t",
        f"SELECT {'+'.join('a' * 60)} FROM t",
        f"SELECT a FROM t WHERE a IN ({', '.join(map(str, range(64)))})",
        f"SELECT a FROM t WHERE a IN ({', '.join(map(str, range(MAX_CHARS // 5)))})",
        f"SELECT a FROM t WHERE {' OR '.join(['a = 1'] * (limits.MAX_PREDICATES + 2))}",
        f"SELECT {', '.join(['a'] * (limits.MAX_ITEMS + 1))} FROM t",
    ],
)
def test_other_texts_are_left_to_the_parser(sql: str) -> None:
    assert read_plain(sql) is None


def test_long_texts_of_many_conditions_are_plain() -> None:
    assert read_plain(f"SELECT a FROM t WHERE {' OR '.join(['a = 1'] * (limits.MAX_PREDICATES + 1))}") is not None
    listed = ", ".join(map(str, range(100_000, 100_060)))
    assert is_read(f"SELECT a FROM t WHERE {' OR '.join(f'a IN ({listed})' for _ in range(100))}")


WORDS = (
    "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET AND OR NOT IN BETWEEN LIKE IS NULL AS ASC DESC DISTINCT "
    "a b t f COUNT ( ) ( ) , , * + - / = <> < >= 1 25 3.5 'x' '' ; . END CASE date left"
)
SHAPES = (
    "SELECT {} FROM t",
    "SELECT a FROM t WHERE {}",
    "SELECT a FROM t GROUP BY {}",
    "SELECT a FROM t ORDER BY {}",
    "SELECT f({}) FROM t",
    "{}",
)


def test_random_words_read_alike_or_not_at_all() -> None:
    rng = random.Random(7)
    num_read = 0
    for _ in range(20_000):
        words = [rng.choice(WORDS.split(" ")) for _ in range(rng.randint(1, 7))]
        sql = rng.choice(SHAPES).format(" ".join(words))
        if read_plain(sql) is None:
            continue
        try:
            num_read += is_read(sql)
        except InvalidInputError as error:
            pytest.fail(f"{sql} is read, but refused: {error}")
    assert num_read > 200


NAMES, CONSTANTS = ("a", "A", "b", "t"), ("1", "-2", "007", "2.5", "-0.0", "'x'", "''", "'it''s'", "9" * 20)
TESTS = (
    "{0} = {1}",
    "{0} <> {1}",
    "{0} >= {1}",
    "{0}<{1}",
    "{0} LIKE {1}",
    "{0} = {1} + 1",
    "NOT {0} = {1}",
    "f({0}, {1}) = 3",
)
"""Of which most are a column compared with a constant."""


def random_filter(rng: random.Random, depth: int = 0) -> str:
    word = rng.choice((" OR ", " AND "))
    tests = TESTS if rng.random() < 0.5 else rng.choices(TESTS, k=2)
    found = []
    for _ in range(rng.choice((1, 2, 3, 20))):
        if depth < 3 and rng.random() < 0.1:
            found.append(rng.choice(("({})", "NOT ({})", "{}", "({}) = 1")).format(random_filter(rng, depth + 1)))
        else:
            found.append(rng.choice(tests).format(rng.choice(NAMES), rng.choice(CONSTANTS)))
    return word.join(found)


def test_random_filters_read_alike() -> None:
    rng = random.Random(11)
    texts = [f"SELECT a FROM t WHERE {random_filter(rng)} LIMIT 5" for _ in range(200)]
    assert sum(map(is_read, texts)) > 120


def test_plain_texts_are_parsed_by_it() -> None:
    statement = parse_statement("SELECT a FROM t")
    assert parts(statement.tree) == parts(read_plain("SELECT a FROM t"))
