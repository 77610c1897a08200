"""Random queries give DuckDB's answers; three-valued logic splits a table into three parts that add up, the
first of as many rows as have its condition without a filter.

The seed is printed with every failure: `MERLOT_SEED=… pytest tests/oracle/test_random_queries.py` repeats it.
`make fuzz` looks for a tenth of its time on each of the layouts of index sets.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests import budget
from tests.oracle.query_generator import QueryGenerator, RandomQuery
from tests.oracle.rounds import rounds
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_data import things
from tests.sql.slt_index_sets import INDEXED, IS_WANTED
from tests.sql.slt_layouts import LAYOUTS, Layout
from tests.sql.slt_oracle import Oracle

_MAX_PROBLEMS = 5
_INDEXED = INDEXED if IS_WANTED else {}
_PLAIN = ("one-segment", "twelve-segments", "consuming", "half-sealed", "indexed-later")


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle([things()])


_NAMES = (*_PLAIN, *(("upserted", "star-tree") if _INDEXED else ()), *_INDEXED)


@pytest.fixture(scope="module", params=_NAMES)
def layout(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    with {**LAYOUTS, **_INDEXED}[request.param]([things()], tmp_path_factory.mktemp("random")) as made:
        yield made


@pytest.fixture
def share(request: pytest.FixtureRequest) -> float:
    """How much of the time to look."""
    return 0.1 if request.node.callspec.params["layout"] in _INDEXED else 1.0


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Each layout has queries of its own."""
    return budget.seed() + _NAMES.index(request.node.callspec.params["layout"])


@pytest.mark.timeout(0)
def test_random_queries_have_duckdbs_answers(layout: Layout, oracle: Oracle, seed: int, share: float) -> None:
    generator = QueryGenerator(things().rows, seed)
    problems: list[str] = []
    for _ in rounds("MERLOT_RANDOM_QUERIES", quick=40, every=1000, share=share):
        query = generator.query()
        problem = _problem(query, layout, oracle)
        if problem is not None:
            problems.append(f"{problem}\n    {query.sql}\n    {query.duckdb_sql}")
        if len(problems) == _MAX_PROBLEMS:
            break
    assert not problems, f"MERLOT_SEED={budget.seed()}\n" + "\n".join(problems)


@pytest.mark.timeout(0)
def test_rows_where_true_false_and_null_are_all_rows(layout: Layout, seed: int, share: float) -> None:
    generator = QueryGenerator(things().rows, seed)
    total = things().rows.num_rows
    for _ in rounds("MERLOT_RANDOM_CONDITIONS", quick=10, every=150, share=share / 4):
        condition = generator.condition(3)[0]
        negated = f"NOT ({condition})"
        unknown = f"CASE WHEN {condition} THEN false WHEN {negated} THEN false ELSE true END"
        counts = [_count(layout, part) for part in (condition, negated, unknown)]
        assert sum(counts) == total, f"seed {seed}: {counts} of {total} rows: {condition}"
        sql = f"SET enableNullHandling=true; SELECT SUM(CASE WHEN {condition} THEN 1 ELSE 0 END) FROM things"
        assert layout.query(sql).rows[0][0] == counts[0], f"seed {seed}: no filter finds {counts[0]} rows: {condition}"


def _count(layout: Layout, condition: str) -> int:
    answer = layout.query(f"SET enableNullHandling=true; SELECT COUNT(*) FROM things WHERE {condition}")
    return int(answer.rows[0][0])


def _problem(query: RandomQuery, layout: Layout, oracle: Oracle) -> str | None:
    try:
        answer = layout.query(query.sql)
    except Exception as error:  # noqa: BLE001 (whatever is raised is the finding)
        return f"{type(error).__name__}: {error}"
    got = normalize(answer.rows, answer.types)
    wanted = normalize(oracle.rows(query.duckdb_sql, nulls=query.nulls), answer.types)
    if not query.is_ordered:
        got, wanted = sort_rows(got), sort_rows(wanted)
    return first_difference(got, wanted)
