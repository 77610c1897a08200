"""Random queries over random tables of the values that go wrong, on every kind of layout.

With DuckDB as the oracle: answers. Without one: the rows for which a condition is true, false and unknown are all rows;
groups add up to the total; a query fails on all layouts or on none; pruning changes nothing.

The seed is printed with every failure: `MERLOT_SEED=… pytest tests/oracle/test_wild_queries.py` repeats it.
`MERLOT_FUZZ_SECONDS` sets how long to look, here and in `test_wild_large` together.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from slt_answers import Answer, Row, first_difference, normalize, sort_rows
from slt_layouts import LAYOUTS, Layout
from slt_oracle import Oracle
from wild_queries import WildGenerator
from wild_table import WildTable, wild

_SECONDS = float(os.environ.get("MERLOT_FUZZ_SECONDS", "20"))
_SECONDS_PER_TABLE = 10.0
_MAX_PROBLEMS = 5
_NEAR = ("one-segment", "twelve-segments", "upserted")
_FAR = ("embedded-node", "zookeeper-two-servers") if "MERLOT_FUZZ_SECONDS" in os.environ else ("embedded-node",)


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("MERLOT_SEED") or secrets.randbelow(1 << 32))


class Bench:
    """A random table, DuckDB with it, and layouts of it."""

    def __init__(self, table: WildTable, layouts: dict[str, Layout], generator: random.Random) -> None:
        self.table = table
        self.layouts = layouts
        self.oracle = Oracle([table])
        self.queries = WildGenerator(table, generator)


@contextmanager
def _bench(folder: Path, generator: random.Random, names: Sequence[str]) -> Iterator[Bench]:
    num_rows = generator.choice((1, 70, 400, 1500, 3000))
    table = wild(generator, num_rows)
    with ExitStack() as stack:
        layouts = {}
        for name in names:
            (folder / name).mkdir(parents=True)
            layouts[name] = stack.enter_context(LAYOUTS[name]([table], folder / name))
        yield Bench(table, layouts, generator)


def _look(tmp_path: Path, seed: int, names: Sequence[str], seconds: float, check: Callable[[Bench], list[str]]) -> None:
    """Check one query after the other, over one table after the other, until the time is over."""
    deadline = time.monotonic() + seconds
    count = 0
    problems: list[str] = []
    for number in range(1_000_000):
        generator = random.Random(f"{seed} {number}")
        with _bench(tmp_path / str(number), generator, names) as bench:
            until = min(deadline, time.monotonic() + _SECONDS_PER_TABLE)
            while time.monotonic() < until and len(problems) < _MAX_PROBLEMS:
                problems += check(bench)
                count += 1
        if time.monotonic() >= deadline or problems:
            break
    print(f"{count} random checks, seed {seed}")
    assert not problems, f"seed {seed}, after {count} checks, table {number}:\n" + "\n".join(problems)


@pytest.mark.parametrize("name", [*_NEAR, *_FAR])
@pytest.mark.timeout(0)
def test_wild_queries_have_duckdbs_answers(tmp_path: Path, seed: int, name: str) -> None:
    def check(bench: Bench) -> list[str]:
        query = bench.queries.query()
        try:
            answer = bench.layouts[name].query(query.sql)
        except Exception as error:  # noqa: BLE001 (whatever is raised is the finding)
            return [f"{type(error).__name__}: {error}\n    {query.sql}\n    {query.duckdb_sql}"]
        got = normalize(answer.rows, answer.types)
        wanted = normalize(bench.oracle.rows(query.duckdb_sql, nulls=query.nulls), answer.types)
        if not query.is_ordered:
            got, wanted = sort_rows(got), sort_rows(wanted)
        problem = first_difference(got, wanted)
        return [] if problem is None else [f"{problem}\n    {query.sql}\n    {query.duckdb_sql}"]

    _look(tmp_path, seed, [name], _SECONDS / 10, check)


@pytest.mark.timeout(0)
def test_a_query_fails_on_all_layouts_or_on_none(tmp_path: Path, seed: int) -> None:
    def check(bench: Bench) -> list[str]:
        sql = bench.queries.fallible()
        outcomes = [_outcome(layout, sql) for layout in bench.layouts.values()]
        is_same = all(_agree(outcomes[0], other) for other in outcomes[1:])
        return [] if is_same else [f"{outcomes}\n    {sql}"]

    _look(tmp_path, seed, _NEAR, _SECONDS / 10, check)


def _outcome(layout: Layout, sql: str) -> str | list[Row]:
    """The error's code, or the rows."""
    try:
        answer = layout.query(sql)
    except Exception as error:  # noqa: BLE001 (one without a code is the finding)
        return f"{getattr(error, 'code', None) or error!r}"
    return sort_rows(normalize(answer.rows, answer.types))


def _agree(left: str | list[Row], right: str | list[Row]) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    return first_difference(left, right) is None


@pytest.mark.timeout(0)
def test_rows_where_true_false_and_unknown_are_all_rows(tmp_path: Path, seed: int) -> None:
    def check(bench: Bench) -> list[str]:
        whole, thirds = bench.queries.thirds()
        problems = []
        for layout in bench.layouts.values():
            parts = [layout.query(sql) for sql in thirds]
            problem = total_problem(layout.query(whole), [row for part in parts for row in part.rows])
            problems += [] if problem is None else [f"{problem}\n    {thirds[0]}"]
        return problems

    _look(tmp_path, seed, _NEAR, _SECONDS / 10, check)


@pytest.mark.timeout(0)
def test_groups_add_up_to_the_total(tmp_path: Path, seed: int) -> None:
    def check(bench: Bench) -> list[str]:
        whole, groups = bench.queries.groups()
        problems = []
        for layout in bench.layouts.values():
            problem = total_problem(layout.query(whole), layout.query(groups).rows)
            problems += [] if problem is None else [f"{problem}\n    {groups}"]
        return problems

    _look(tmp_path, seed, _NEAR, _SECONDS / 10, check)


def total_problem(whole: Answer, parts: Sequence[Sequence[Any]]) -> str | None:
    """Whether counts and sums of parts add up, and their extremes are those of the whole."""
    wanted = [_number(cell) for cell in whole.rows[0]]
    got: list[float | None] = []
    # COUNT, SUMLONG, SUM, MINLONG, MAXLONG, MIN, MAX
    for place, combine in enumerate((sum, sum, math.fsum, min, max, min, max)):
        cells = [number for row in parts if (number := _number(row[place])) is not None]
        got.append(combine(cells) if cells else 0 if combine is sum and place == 0 else None)
    known = [(left, right) for left, right in zip(got, wanted, strict=True) if left is not None and right is not None]
    return None if all(left == right for left, right in known) and got[0] == wanted[0] else f"{got} of {wanted}"


def _number(cell: Any) -> Any:
    return float(cell) if isinstance(cell, str) else cell


@pytest.mark.timeout(0)
def test_a_broker_that_prunes_gives_the_answers_of_one_that_does_not(tmp_path: Path, seed: int) -> None:
    def check(bench: Bench) -> list[str]:
        query = bench.queries.query()
        outcomes = [_outcome(bench.layouts["embedded-node"], sql) for sql in (query.sql, _unpruned(query.sql))]
        return [] if _agree(*outcomes) else [f"{outcomes}\n    {query.sql}"]

    _look(tmp_path, seed, ["embedded-node"], _SECONDS / 10, check)


def _unpruned(sql: str) -> str:
    return f"SET skipSegmentPruning=true; {sql}"
