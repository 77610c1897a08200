"""Random queries over tables of many rows: tasks split over threads, many groups, dictionaries of every width.

`MERLOT_SEED` repeats a run. In `make fuzz` the table has 2.5 million rows, for which threads are worth waking; else
150,000, and threads are woken for fewer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest
from tests import budget
from tests.oracle.rounds import rounds
from tests.oracle.test_wild_queries import total_problem
from tests.oracle.wild_queries import WildGenerator
from tests.oracle.wild_table import WildTable, wild
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_layouts import LAYOUTS, Layout
from tests.sql.slt_oracle import Oracle

from merlot.query import execute
from merlot.query.context import ExecutionContext

_SEED = budget.seed()
_ROWS = budget.count("MERLOT_WILD_ROWS", quick=150_000, every=150_000, fuzz=2_500_000)
pytestmark = pytest.mark.timeout(0)


@pytest.fixture(scope="module")
def table() -> WildTable:
    return wild(random.Random(_SEED), _ROWS)


@pytest.fixture(scope="module")
def oracle(table: WildTable) -> Oracle:
    return Oracle([table])


@pytest.fixture(scope="module", params=["one-segment", "twelve-segments"])
def layout(
    request: pytest.FixtureRequest, table: WildTable, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Layout]:
    with pytest.MonkeyPatch.context() as patch:
        if not budget.IS_FUZZ:
            patch.setattr(execute, "ExecutionContext", partial(ExecutionContext, docs_per_thread=1))
        with LAYOUTS[request.param]([table], tmp_path_factory.mktemp("large")) as made:
            yield made


def test_queries_over_many_rows_have_duckdbs_answers(layout: Layout, table: WildTable, oracle: Oracle) -> None:
    generator = WildGenerator(table, random.Random(_SEED), nulled=False)
    for _ in rounds("MERLOT_WILD_LARGE_QUERIES", quick=8, every=100, share=0.1):
        query = generator.query()
        answer = layout.query(query.sql)
        got = normalize(answer.rows, answer.types)
        wanted = normalize(oracle.rows(query.duckdb_sql, nulls=query.nulls), answer.types)
        if not query.is_ordered:
            got, wanted = sort_rows(got), sort_rows(wanted)
        assert first_difference(got, wanted) is None, f"MERLOT_SEED={_SEED}: {query.sql}\n    {query.duckdb_sql}"


def test_groups_of_many_rows_add_up_to_the_total(layout: Layout, table: WildTable) -> None:
    generator = WildGenerator(table, random.Random(_SEED), nulled=False)
    for _ in rounds("MERLOT_WILD_LARGE_GROUPS", quick=4, every=50, share=0.05):
        whole, groups = generator.groups()
        problem = total_problem(layout.query(whole), layout.query(groups).rows)
        assert problem is None, f"MERLOT_SEED={_SEED}: {problem}\n    {groups}"
