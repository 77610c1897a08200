"""Somebody who sees a part of the tables gets DuckDB's answers over views of that part: random queries of one table, of
several stages, of leaves that group below joins, and of the functions' registry, in both null modes.

`MERLOT_VIEWED_QUERIES`, `MERLOT_VIEWED_STAGES` and `MERLOT_VIEWED_JOINS` set how many queries, `MERLOT_SEED` which.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.budget import count, seed
from tests.oracle.join_generator import JoinGenerator
from tests.oracle.query_generator import QueryGenerator
from tests.oracle.stage_generator import StageGenerator
from tests.oracle.test_stage_nulls import _holes
from tests.oracle.viewed_tables import IDENTITIES, ViewedTables, oracle_of, viewer
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_data import edges, things
from tests.sql.slt_layouts import InProcess, twelve_segments

USED = [things(), edges()]
JOINED = [*USED, _holes()]
QUERIES = count("MERLOT_VIEWED_QUERIES", quick=30, every=700, fuzz=7_000)
JOINS = count("MERLOT_VIEWED_JOINS", quick=8, every=120, fuzz=2_000)
STAGES = count("MERLOT_VIEWED_STAGES", quick=6, every=120, fuzz=2_000)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewedTables]:
    with twelve_segments(JOINED, tmp_path_factory.mktemp("viewed")) as made:
        assert isinstance(made, InProcess)
        yield ViewedTables(made, JOINED)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", IDENTITIES)
def test_random_queries_see_what_the_identity_sees(tables: ViewedTables, name: str) -> None:
    asker, oracle = viewer(IDENTITIES[name]), oracle_of(USED, IDENTITIES[name])
    generator, problems = QueryGenerator(things().rows, seed(11)), []
    for _ in range(QUERIES):
        query = generator.query()
        try:
            answer = tables.query(query.sql, asker)
            wanted = normalize(oracle.rows(query.duckdb_sql, nulls=query.nulls), answer.types)
            got = normalize(answer.rows, answer.types)
            if not query.is_ordered:
                got, wanted = sort_rows(got), sort_rows(wanted)
            difference = first_difference(got, wanted)
        except Exception as error:  # noqa: BLE001 (a crash is one query's result: the others still run)
            difference = f"{type(error).__name__}: {error}"
        if difference is not None:
            problems.append(f"{difference}\n    {query.sql}\n    {query.duckdb_sql}")
    assert not problems, f"{len(problems)} of {QUERIES}, MERLOT_SEED={seed(11)}\n" + "\n".join(problems[:5])


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", IDENTITIES)
def test_random_queries_of_stages_see_what_the_identity_sees(tables: ViewedTables, name: str) -> None:
    asker, oracle = viewer(IDENTITIES[name]), oracle_of(USED, IDENTITIES[name])
    generator, problems = StageGenerator(seed(5)), []
    for number in range(STAGES):
        sql, nulls = generator.query(), number % 3 == 0
        try:
            answer = tables.query(f"SET enableNullHandling = {str(nulls).lower()}; {sql}", asker)
            wanted = sort_rows(normalize(oracle.rows(sql, nulls=nulls), answer.types))
            difference = first_difference(sort_rows(normalize(answer.rows, answer.types)), wanted)
        except Exception as error:  # noqa: BLE001 (a crash is one query's result: the others still run)
            difference = f"{type(error).__name__}: {error}"
        if difference is not None:
            problems.append(f"{sql}\n    {difference}")
    assert not problems, f"{len(problems)} of {STAGES}, MERLOT_SEED={seed(5)}\n" + "\n".join(problems[:5])


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", IDENTITIES)
def test_groups_of_leaves_below_joins_are_those_of_rows_that_the_identity_sees(tables: ViewedTables, name: str) -> None:
    asker, oracle = viewer(IDENTITIES[name]), oracle_of(JOINED, IDENTITIES[name])
    generator, problems = JoinGenerator(seed(5)), []
    for number in range(JOINS):
        sql, nulls = generator.query(), number % 2 == 0
        try:
            answer = tables.query(f"SET enableNullHandling = {str(nulls).lower()}; {sql}", asker)
            words = sql.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
            wanted = sort_rows(normalize(oracle.rows(words, nulls=nulls), answer.types))
            difference = first_difference(sort_rows(normalize(answer.rows, answer.types)), wanted)
        except Exception as error:  # noqa: BLE001 (a crash is one query's result: the others still run)
            difference = f"{type(error).__name__}: {error}"
        if difference is not None:
            problems.append(f"{sql}\n    {difference}")
    assert not problems, f"{len(problems)} of {JOINS}, MERLOT_SEED={seed(5)}\n" + "\n".join(problems[:5])
