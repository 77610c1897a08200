"""Random queries over random tables of the values that go wrong, on every kind of layout.

With DuckDB as the oracle: answers. Without one: the rows for which a condition is true, false and unknown are all rows;
groups add up to the total; a query fails on all layouts or on none; pruning changes nothing.

The seed is printed with every failure: `MERLOT_SEED=… pytest tests/oracle/test_wild_queries.py` repeats it.
`MERLOT_WILD_TABLES` sets how many tables. Tests share them while they ask about the same ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from tests import budget
from tests.oracle.rounds import rounds
from tests.oracle.wild_queries import WildGenerator
from tests.oracle.wild_table import WildTable, wild
from tests.sql.slt_answers import Answer, Row, first_difference, normalize, sort_rows
from tests.sql.slt_layouts import LAYOUTS, Layout
from tests.sql.slt_oracle import Oracle

_SIZES = (1500, 70, 1, 3000, 400)
_CHECKS_PER_TABLE = 16 if budget.IS_QUICK else 40
_MAX_PROBLEMS = 5
_NEAR = ("one-segment", "twelve-segments", "upserted")
_FAR = ("embedded-node",) if budget.IS_QUICK else ("embedded-node", "zookeeper-two-servers")
pytestmark = pytest.mark.timeout(0)


class Bench:
    """A random table, DuckDB with it, and layouts of it, each made when it is first asked."""

    def __init__(self, table: WildTable, folder: Path) -> None:
        self.table = table
        self.oracle = Oracle([table])
        self._folder = folder
        self._layouts: dict[str, Layout] = {}
        self._stack = ExitStack()

    def layout(self, name: str) -> Layout:
        if name not in self._layouts:
            folder = self._folder / name
            folder.mkdir()
            self._layouts[name] = self._stack.enter_context(LAYOUTS[name]([self.table], folder))
        return self._layouts[name]

    @property
    def near(self) -> list[Layout]:
        return [self.layout(name) for name in _NEAR]

    def close(self) -> None:
        self._stack.close()


class Benches:
    """The bench of each number; the last one stays open."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self._folder = folder
        self._number = -1
        self._bench: Bench | None = None

    def numbered(self, number: int) -> Bench:
        if self._bench is None or number != self._number:
            self.close()
            table = wild(random.Random(f"{self.seed} {number}"), _SIZES[number % len(_SIZES)])
            self._number, self._bench = number, Bench(table, Path(mkdtemp(dir=self._folder)))
        return self._bench

    def close(self) -> None:
        if self._bench is not None:
            self._bench.close()


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Benches]:
    made = Benches(tmp_path_factory.mktemp("wild"), budget.seed())
    yield made
    made.close()


Check = Callable[[Bench, WildGenerator], list[str]]


def _look(benches: Benches, check: Check, test: str, checks: int = _CHECKS_PER_TABLE) -> None:
    """Check one query after the other, over one table after the other."""
    for number in rounds("MERLOT_WILD_TABLES", quick=1, every=5, share=0.1):
        bench = benches.numbered(number)
        queries = WildGenerator(bench.table, random.Random(f"{benches.seed} {number} {test}"))
        problems: list[str] = []
        for _ in range(checks):
            problems += check(bench, queries)
            if len(problems) >= _MAX_PROBLEMS:
                break
        assert not problems, f"MERLOT_SEED={benches.seed}, table {number}:\n" + "\n".join(problems)


@pytest.mark.parametrize("name", [*_NEAR, *_FAR])
def test_wild_queries_have_duckdbs_answers(benches: Benches, name: str) -> None:
    def check(bench: Bench, queries: WildGenerator) -> list[str]:
        query = queries.query()
        try:
            answer = bench.layout(name).query(query.sql)
        except Exception as error:  # noqa: BLE001 (whatever is raised is the finding)
            return [f"{type(error).__name__}: {error}\n    {query.sql}\n    {query.duckdb_sql}"]
        got = normalize(answer.rows, answer.types)
        wanted = normalize(bench.oracle.rows(query.duckdb_sql, nulls=query.nulls), answer.types)
        if not query.is_ordered:
            got, wanted = sort_rows(got), sort_rows(wanted)
        problem = first_difference(got, wanted)
        return [] if problem is None else [f"{problem}\n    {query.sql}\n    {query.duckdb_sql}"]

    _look(benches, check, f"answers of {name}")


def test_a_query_fails_on_all_layouts_or_on_none(benches: Benches) -> None:
    def check(bench: Bench, queries: WildGenerator) -> list[str]:
        sql = queries.fallible()
        outcomes = [_outcome(layout, sql) for layout in bench.near]
        is_same = all(_agree(outcomes[0], other) for other in outcomes[1:])
        return [] if is_same else [f"{outcomes}\n    {sql}"]

    _look(benches, check, "failures")


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


def test_rows_where_true_false_and_unknown_are_all_rows(benches: Benches) -> None:
    def check(bench: Bench, queries: WildGenerator) -> list[str]:
        whole, thirds = queries.thirds()
        problems = []
        for layout in bench.near:
            parts = [layout.query(sql) for sql in thirds]
            problem = total_problem(layout.query(whole), [row for part in parts for row in part.rows])
            problems += [] if problem is None else [f"{problem}\n    {thirds[0]}"]
        return problems

    _look(benches, check, "thirds", _CHECKS_PER_TABLE // 2)


def test_groups_add_up_to_the_total(benches: Benches) -> None:
    def check(bench: Bench, queries: WildGenerator) -> list[str]:
        whole, groups = queries.groups()
        problems = []
        for layout in bench.near:
            problem = total_problem(layout.query(whole), layout.query(groups).rows)
            problems += [] if problem is None else [f"{problem}\n    {groups}"]
        return problems

    _look(benches, check, "groups", _CHECKS_PER_TABLE // 2)


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


def test_a_broker_that_prunes_gives_the_answers_of_one_that_does_not(benches: Benches) -> None:
    def check(bench: Bench, queries: WildGenerator) -> list[str]:
        query = queries.query()
        outcomes = [_outcome(bench.layout("embedded-node"), sql) for sql in (query.sql, _unpruned(query.sql))]
        return [] if _agree(*outcomes) else [f"{outcomes}\n    {query.sql}"]

    _look(benches, check, "pruning")


def _unpruned(sql: str) -> str:
    return f"SET skipSegmentPruning=true; {sql}"
