"""ClickBench's 43 queries on generated rows of its schema, over several segments: as DuckDB answers them.

Literals are of a seed, printed with a failure: `MERLOT_SEED=… pytest tests/oracle/test_clickbench.py` repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests import budget
from tests.bench import clickbench_data, ssb
from tests.bench.clickbench import literals
from tests.bench.clickbench_queries import Query
from tests.sql.slt_answers import Row, first_difference, normalize, sort_rows
from tests.sql.slt_data import Dataset
from tests.sql.slt_layouts import Layout, twelve_segments

SEED = budget.seed()
ROWS = budget.count("MERLOT_CLICKBENCH_ROWS", quick=6_000, every=20_000)


@pytest.fixture(scope="module")
def hits() -> pa.Table:
    return clickbench_data.generate(ROWS, SEED)


@pytest.fixture(scope="module")
def layout(hits: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    dataset = Dataset(name="hits", schema=ssb.schema_of(hits), rows=hits, time_column="EventTime")
    with twelve_segments([dataset], tmp_path_factory.mktemp("clickbench")) as made:
        yield made


@pytest.fixture(scope="module")
def oracle(hits: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
    with ssb.duckdb_over(hits, "hits") as connection:
        yield connection


@pytest.fixture(scope="module")
def queries(hits: pa.Table) -> dict[str, Query]:
    return literals(hits, SEED)


@pytest.mark.parametrize("name", [f"Q{number}" for number in range(43)])
def test_a_query_is_answered_as_duckdb_answers_it(
    name: str, layout: Layout, oracle: duckdb.DuckDBPyConnection, queries: dict[str, Query]
) -> None:
    query = queries[name]
    answer = layout.query(query.sql)
    decided = range(len(answer.types)) if query.compared is None else query.compared

    def kept(rows: Sequence[Sequence[Any]]) -> list[Row]:
        cut = [tuple(row[place] for place in decided) for row in rows]
        return sort_rows(normalize(cut, [answer.types[place] for place in decided]))

    problem = first_difference(kept(answer.rows), kept(oracle.execute(query.duckdb).fetchall()))
    assert problem is None, f"seed={SEED} {problem}\n{query.sql}"
