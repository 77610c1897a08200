"""TPC-H's 22 queries on generated rows, over several segments and servers' partial answers: as DuckDB answers them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.budget import count
from tests.oracle.tpch_data import tpch
from tests.oracle.tpch_queries import QUERIES
from tests.sql.slt_answers import first_difference, normalize
from tests.sql.slt_layouts import InProcess, twelve_segments
from tests.sql.slt_oracle import Oracle

SCALE = count("MERLOT_TPCH_ORDERS", quick=1_500, every=15_000) / 1_500_000


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(tpch(SCALE))


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with twelve_segments(tpch(SCALE), tmp_path_factory.mktemp("tpch")) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_is_answered_as_duckdb_answers_it(number: int, layout: InProcess, oracle: Oracle) -> None:
    sql = QUERIES[number]
    answer = layout.query(sql)
    wanted = normalize(oracle.rows(sql.replace("LEFTSUBSTR", "left"), nulls=False), answer.types)
    assert wanted, "a query without rows shows nothing"
    assert first_difference(normalize(answer.rows, answer.types), wanted) is None
