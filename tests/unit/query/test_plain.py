"""One row of sums in plain numbers equals the same row by Arrow tables, on every kind of column."""

import random
from dataclasses import replace
from typing import Any

import pytest

from merlot.query.answer.partial import Partial, PlainRows
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import to_pinot_rows
from merlot.query.context import TooMuchWorkError
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.query.plan.nodes import Reduce
from merlot.query.shortcuts import scalar_aggregates
from merlot.sql.parse import parse

FIELDS: list[dict[str, Any]] = [
    {"name": "k", "type": "INT"},
    {"name": "day", "type": "TIMESTAMP", "role": "dateTime", "format": "TIMESTAMP"},
    {"name": "i", "type": "INT"},
    {"name": "l", "type": "LONG"},
    {"name": "d", "type": "DOUBLE"},
    {"name": "f", "type": "FLOAT"},
    {"name": "tags", "type": "INT", "multiValue": True},
]
OF_FILES = pytest.mark.parametrize("layout", ["apart", "joined"], indirect=True)
"""What is looked at is how files are read."""
SELECTED = [
    "COUNT(*)",
    "COUNT(*), SUM(l), MIN(l), MAX(i), AVG(i), SUM(i)",
    "SUMLONG(i), MINLONG(day), MAXLONG(day)",
    "SUM(d), AVG(f), COUNT(d)",
    "SUM(l), SUM(l) AS again, MIN(day)",
    "SUM(i), SUM(i + 3), AVG(i - 7), AVG(i), SUM(536870912 + i), COUNT(*)",
]
FILTERS = [
    "k >= 0",
    "k >= 40 AND k < 160",
    "k BETWEEN 50 AND 50",
    "k > 90 AND l > 0",
    "i = 3",
    "i = 3 OR l < 0",
    "k > 1000",
    "NOT (k > 100 AND i <> 2)",
]


def rows(seed: int, *, start: int, huge: bool = False) -> list[dict[str, Any]]:
    """k ascends, so that it is found by search; `huge` sums leave 64 bits."""
    rng = random.Random(seed)
    bound = 1 << 62 if huge else 1000
    return [
        {
            "k": start + number // 2,
            "day": 86_400_000 * (start + number),
            "i": rng.randrange(-5, 6),
            "l": rng.randrange(-bound, bound),
            "d": rng.randrange(-1000, 1000) / 8,
            "f": rng.randrange(-1000, 1000) / 4,
            "tags": [1, 2],
        }
        for number in range(100)
    ]


def one_row_of(logical: Reduce, partials: list[Partial]) -> list[Any] | None:
    taken_over = scalar_aggregates.answer(logical, partials)
    return None if taken_over is None else taken_over[2]


def both(table: Any, sql: str, num_servers: int) -> tuple[list[Any] | None, list[list[Any]]]:
    """The row by plain numbers, and the rows by tables."""
    logical = plan(bind(parse(sql), table.schema, {}))
    shares = [table.segments[start::num_servers] for start in range(num_servers)]
    partials = [execute(logical.leaf, share, table.context) for share in shares]
    assert all(isinstance(partial.content, PlainRows) for partial in partials)
    by_tables = [Partial(partial.data, partial.stats) for partial in partials]
    return one_row_of(logical, partials), to_pinot_rows(reduce(logical, by_tables, table.schema))


@pytest.mark.parametrize("huge", [False, True])
@pytest.mark.parametrize("num_servers", [1, 3])
def test_plain_numbers_and_tables_agree(make_table: Any, num_servers: int, *, huge: bool) -> None:
    table = make_table(FIELDS, *(rows(seed, start=50 * seed, huge=huge) for seed in range(4)))
    for selected in SELECTED:
        for where in FILTERS:
            got, expected = both(table, f"SELECT {selected} FROM t WHERE {where}", num_servers)
            if got is not None:
                assert [got] == expected, (selected, where)
                assert [type(one) for one in got] == [type(one) for one in expected[0]]
            else:
                # Float sums of several servers are added with their errors by tables.
                assert num_servers > 1
                assert "d" in selected or "f" in selected


def test_a_sum_of_a_column_and_a_constant_is_one_of_the_column(make_table: Any) -> None:
    data = [rows(seed, start=50 * seed) for seed in range(3)]
    table = make_table(FIELDS, *data)
    numbers = [row["i"] for some in data for row in some]
    asked = "SUM(i), SUM(i + 3), AVG(i - 7), SUM(536870912 + i)"
    got, _ = both(table, f"SELECT {asked} FROM t", 2)
    total, many = sum(numbers), len(numbers)
    assert got == [total, total + 3 * many, (total - 7 * many) / many, total + 536870912 * many]
    got, _ = both(table, f"SELECT {asked} FROM t WHERE k > 1000", 2)
    assert got == [0.0, 0.0, "-Infinity", 0.0]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(l + 1) FROM t",
        "SELECT SUM(i + 1073741824) FROM t",
        "SELECT SUM(i * 2) FROM t",
        "SELECT DISTINCTCOUNT(l) FROM t",
        "SELECT COUNT(*) FILTER (WHERE k > 5) FROM t",
        "SELECT MIN(d) FROM t",
        "SELECT k, COUNT(*) FROM t GROUP BY k",
        "SELECT k FROM t",
        "SELECT SUM(l) FROM t OPTION(enableNullHandling=true)",
    ],
)
def test_other_queries_are_not_plain(make_table: Any, sql: str) -> None:
    table = make_table(FIELDS, rows(1, start=0))
    assert not scalar_aggregates.takes(plan(bind(parse(sql), table.schema, {})).leaf.work)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(l) / COUNT(*) FROM t",
        "SELECT SUM(l) FROM t HAVING COUNT(*) > 5",
        "SELECT SUM(l) FROM t LIMIT 0",
        "SELECT SUM(l) FROM t LIMIT 5 OFFSET 1",
    ],
)
def test_answers_that_take_more_than_sums_are_made_by_tables(make_table: Any, sql: str) -> None:
    table = make_table(FIELDS, rows(1, start=0), rows(2, start=100))
    got, _ = both(table, sql, 1)
    assert got is None


def test_an_answer_whose_columns_are_others_is_left_to_tables(make_table: Any) -> None:
    table = make_table(FIELDS, rows(1, start=0))
    logical = plan(bind(parse("SELECT SUM(l) FROM t"), table.schema, {}))
    other = execute(
        plan(bind(parse("SELECT SUM(l), COUNT(*) FROM t"), table.schema, {})).leaf, table.segments, table.context
    )
    assert scalar_aggregates.answer(logical, [other]) is None


@OF_FILES
def test_sorted_columns_are_searched_and_not_scanned(make_table: Any) -> None:
    table = make_table(FIELDS, rows(1, start=0), rows(2, start=100))
    stats = table.partial("SELECT COUNT(*) FROM t WHERE k >= 10 AND k < 20").stats
    assert (stats.num_docs_scanned, stats.num_entries_scanned_in_filter) == (20, 0)


@OF_FILES
def test_a_query_that_looks_at_more_docs_than_the_caller_wants_is_left_to_somebody_else(make_table: Any) -> None:
    table = make_table(FIELDS, rows(1, start=0), rows(2, start=100))
    context = replace(table.context, most_docs=50)

    def ask(sql: str) -> Partial:
        return execute(plan(bind(parse(sql), table.schema, {})).leaf, table.segments, context)

    assert ask("SELECT COUNT(*) FROM t WHERE k >= 10 AND k < 20").stats.num_docs_scanned == 20
    with pytest.raises(TooMuchWorkError):
        ask("SELECT COUNT(*) FROM t WHERE i = 3")
    for sql in ("SELECT SUM(l) FROM t", "SELECT COUNT(*) FILTER (WHERE i = 3) FROM t"):
        with pytest.raises(TooMuchWorkError):
            ask(sql)


def test_counting_all_rows_looks_at_none_of_them(make_table: Any) -> None:
    table = make_table(FIELDS, rows(1, start=0), rows(2, start=100))
    logical = plan(bind(parse("SELECT COUNT(*) FROM t"), table.schema, {}))
    partial = execute(logical.leaf, table.segments, replace(table.context, most_docs=0))
    assert scalar_aggregates.answer(logical, [partial]) == (("count(*)",), ("LONG",), [200])
