"""Malformed texts are refused where they go wrong; what is taken has the meaning that it has in DuckDB."""

import json
import os
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests import budget
from tests.sql.slt_data import datasets
from tests.sql.slt_reader import read_file
from tests.sql.slt_stages import bind_stages, is_staged

from merlot.errors import MerlotError
from merlot.query.plan.binding import bind
from merlot.sql.node_text import node_text
from merlot.sql.parse import ParsedStatement, one_stage, parse_statement
from merlot.tree.errors import SqlParseError, UnsupportedSqlError

CASES = budget.count("MERLOT_MALFORMED_CASES", quick=600, every=15_000, fuzz=100_000)
SEED = budget.seed(62)
DATA = os.environ.get("MERLOT_TEST_DATA", "")
SLT = Path(__file__).parents[2] / "sql"

_TOKEN = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|`[^`]*`|[0-9][\w.]*|[A-Za-z_$][\w$]*|<>|!=|<=|>=|\|\||[^\s\w]""")
_CLAUSES = frozenset(
    {
        *("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT"),
        *("JOIN", "LEFT", "ON", "USING", "QUALIFY", "WINDOW", "OVER", "PARTITION", "FILTER"),
    }
)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT a FROM t JOIN u ON", 'near "ON": expected an expression'),
        ("SELECT a FROM t JOIN u USING", 'near "USING": expected ('),
        ("SELECT a FROM t JOIN u USING ()", 'near ")": expected a name'),
        ("SELECT a FROM t JOIN u", 'near "u": JOIN needs ON or USING'),
        ("SELECT a FROM t LEFT JOIN u ON WHERE a = 1", 'near "WHERE a = 1": expected an expression'),
        ("SELECT a FROM t JOIN u JOIN v ON a = b", "JOIN needs ON or USING"),
        ("SELECT a FROM t GROUP BY", "expected an expression"),
        ("SELECT a FROM t GROUP BY ORDER BY a", "expected an expression"),
        ("SELECT a FROM t LIMIT 2 WHERE a = 3", 'near "WHERE a = 3": unexpected token'),
        ("SELECT a FROM t ORDER BY a HAVING a > 1 GROUP BY a", "unexpected token"),
        ("SELECT a FROM t LIMIT 1 GROUP BY a", "unexpected token"),
        ("SELECT a FROM t ORDER BY a LIMIT 2 UNION ALL SELECT a FROM t", "unexpected token"),
        ("SELECT a FROM t WHERE a BETWEEN 1 5", "expected AND"),
        ("SELECT a FROM t WHERE a BETWEEN (1) (5)", "expected AND"),
        ("SELECT a FROM t * WHERE a = 1", "unexpected token"),
        ("SELECT a FROM t AS", "expected a name after AS"),
        ("SELECT a AS, b FROM t", "expected a name after AS"),
        ("SELECT SUM(a) OVER (PARTITION BY ORDER BY a) FROM t", "expected an expression"),
        ("SELECT ROW_NUMBER() OVER FROM t", "expected a name"),
        ("SELECT COUNT(*) FILTER (a > 1) FROM t", "expected WHERE"),
        ("SELECT SUM(a) OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING) FROM t", "expected AND"),
        ("SELECT a FROM t ORDER BY a ASC DESC", "unexpected token"),
        ("SELECT a FROM t FETCH FIRST 3", "expected ROWS"),
        ("SELECT a FROM t WHERE a = b IS NULL", "a comparison of a comparison needs parentheses"),
        ("SELECT a FROM t WHERE a < 1 < 2", "a comparison of a comparison needs parentheses"),
        ("SELECT a FROM t WHERE a = NOT b", "expected an expression"),
        ("SELECT 'a' 'b' FROM t", "expected an operator between texts"),
        ("SELECT a 'x' FROM t", "unexpected token"),
        ("SELECT a FROM t CAST", 'near "CAST": unexpected token'),
        ("SELECT a BOTH FROM t", 'near "BOTH FROM t": unexpected token'),
        ("SELECT 1a FROM t", "expected a space before a name"),
        ("SELECT f(DISTINCT) FROM t", "expected an expression"),
        ("SELECT a FROM t LEFT", "expected JOIN"),
        ('SELECT CAST(a AS "INTEGER") FROM t', "expected a type"),
        ("SELECT CAST(a AS \"INTEGER) FROM read_text('x') --\") FROM t", "expected a type"),
        ("SELECT CAST(a AS `INT`) FROM t JOIN u ON t.a = u.a", "expected a type"),
    ],
)
def test_malformed_text_is_refused_where_it_goes_wrong(sql: str, problem: str) -> None:
    with pytest.raises(SqlParseError, match=re.escape(problem)):
        parse_statement(sql)


def test_mutated_texts_are_refused_or_mean_what_they_mean_to_duckdb() -> None:
    rng = random.Random(SEED)
    num_refused = num_taken = 0
    for text in _mutants(rng, CASES):
        statement = _taken(text)
        if statement is None:
            num_refused += 1
        else:
            num_taken += 1
            assert _meaning(_written(statement)) == _meaning(text) is not None, text
    assert num_refused > CASES // 2
    assert num_taken > CASES // 50


def _mutants(rng: random.Random, number: int) -> list[str]:
    """Texts that differ in a token or a clause, or in two, from queries which both engines read alike."""
    sources, found = _sources(), dict[str, None]()
    while len(found) < number:
        source = rng.choice(sources)
        if not _is_read_alike(source):
            continue
        tokens = _mutated(rng, _TOKEN.findall(source))
        if rng.random() < 0.3:
            tokens = _mutated(rng, tokens)
        found[" ".join(tokens)] = None
    return list(found)


@cache
def _sources() -> list[str]:
    """Short texts without options, which DuckDB has not, and without units of time, which are no aliases there."""
    texts = {case.sql for path in SLT.glob("*.slt") for case in read_file(path) if case.error is None}
    left_out = re.compile(
        r"\b(SET|OPTION|(YEAR|QUARTER|MONTH|WEEK|DAY|HOUR|MINUTE|(MILLI|MICRO|)SECOND)S?)\b", re.IGNORECASE
    )
    return sorted(text for text in texts if len(text) < 400 and not left_out.search(text))


@cache
def _is_read_alike(sql: str) -> bool:
    statement = _taken(sql)
    return statement is not None and _meaning(_written(statement)) == _meaning(sql) is not None


def _mutated(rng: random.Random, tokens: list[str]) -> list[str]:
    kind, place = rng.choice(("drop", "double", "swap", "move", "clause", "clause")), rng.randrange(len(tokens))
    others = [*tokens[:place], *tokens[place + 1 :]]
    if kind == "clause":
        return _with_other_clauses(rng, tokens)
    if kind == "drop" and others:
        return others
    if kind == "double":
        return [*tokens[:place], tokens[place], *tokens[place:]]
    to = place + 1 if kind == "swap" else rng.randrange(len(tokens))
    return [*others[:to], tokens[place], *others[to:]]


def _with_other_clauses(rng: random.Random, tokens: list[str]) -> list[str]:
    """A clause left out, or at the place of another one."""
    starts = [place for place, token in enumerate(tokens) if token.upper() in _CLAUSES]
    if len(starts) < 2:
        return tokens
    start = rng.choice(starts)
    end = next((place for place in starts if place > start), len(tokens))
    others = [*tokens[:start], *tokens[end:]]
    if others and rng.random() < 0.4:
        return others
    to = rng.choice([*(place for place, token in enumerate(others) if token.upper() in _CLAUSES), len(others)])
    return [*others[:to], *tokens[start:end], *others[to:]]


@cache
def _schemas() -> dict[str, Any]:
    return {dataset.name: dataset.schema for dataset in datasets()}


def _taken(sql: str) -> ParsedStatement | None:
    """The statement, if it is read and its names are found."""
    try:
        statement = parse_statement(sql)
        if is_staged(statement):
            bind_stages(statement, _schemas())
        else:
            parsed = one_stage(statement)
            bind(parsed, _schemas().get(parsed.table or ""))
    except MerlotError:
        return None
    return statement


def _written(statement: ParsedStatement) -> str:
    return node_text(statement.tree)


def _meaning(sql: str) -> Any:
    """DuckDB's tree of a text, None if it refuses it."""
    row = _duckdb().execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    assert row is not None
    answer = json.loads(row[0])
    return None if answer["error"] else _plain(answer["statements"])


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def _plain(tree: Any) -> Any:
    """A tree without places, and without plus signs before an operand."""
    if isinstance(tree, list):
        return list(map(_plain, tree))
    if not isinstance(tree, dict):
        return tree
    if tree.get("function_name") == "+" and len(tree["arguments"]) == 1:
        return _plain(tree["arguments"][0]["expression"])
    return {name: _plain(value) for name, value in tree.items() if not name.startswith("query_location")}


@pytest.mark.skipif(not DATA, reason="set MERLOT_TEST_DATA to a folder with pinot_stages, queries that Pinot takes")
def test_queries_of_pinots_own_tests_are_taken() -> None:
    refused = []
    for sql in _pinots_queries(Path(DATA) / "pinot_stages"):
        try:
            parse_statement(sql)
        except UnsupportedSqlError:
            continue
        except SqlParseError as error:
            refused.append(f"{sql} => {error}")
    assert refused == []


def _pinots_queries(folder: Path) -> set[str]:
    """Those that Pinot answers, with its templates filled in."""
    found: set[str] = set()
    pending: list[Any] = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending.extend(one)
        elif isinstance(one, dict):
            pending.extend(one.values())
            if isinstance(one.get("sql"), str) and not one.get("ignored") and "expectedException" not in one:
                found.add(re.sub(r"\{(\w+)\}", r"\1", one["sql"]))
    return found
