"""Leaves that group below joins, correlations and tests: DuckDB's rows, and those of the same query without the rules.

`MERLOT_GROUPED_LEAVES` sets how many queries, `MERLOT_SEED` which.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.budget import count, seed
from tests.oracle.join_generator import JoinGenerator
from tests.oracle.test_rewritten_stages import difference, options, problem
from tests.oracle.test_stage_nulls import _holes
from tests.sql.slt_answers import normalize, sort_rows
from tests.sql.slt_data import edges, things
from tests.sql.slt_layouts import InProcess, twelve_segments
from tests.sql.slt_oracle import Oracle

NUMBER = count("MERLOT_GROUPED_LEAVES", quick=40, every=600, fuzz=20_000)
SEED = seed(7)
USED = [things(), edges(), _holes()]
RULES = ("GroupBelowJoins", "DistinctBelowJoins", "KeyFilters")


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with twelve_segments(USED, tmp_path_factory.mktemp("grouped")) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.mark.timeout(0)
def test_groups_of_leaves_are_joined_as_their_rows_are(layout: InProcess) -> None:
    oracle, generator, problems = Oracle(USED), JoinGenerator(SEED), []
    for number in range(NUMBER):
        sql, nulls = generator.query(), number % 2 == 0
        try:
            answer = layout.query(options(nulls=nulls) + sql)
            wanted = sort_rows(
                normalize(
                    oracle.rows(sql.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI"), nulls=nulls),
                    answer.types,
                )
            )
        except Exception as error:  # noqa: BLE001 (a crash is one query's result: the others still run)
            problems.append(f"nulls={nulls} {sql}\n    {type(error).__name__}: {error}")
            continue
        skipped = ("", RULES[number % len(RULES)]) if number % 4 == 0 else ("",)
        for rule in skipped:
            text = options(nulls=nulls, skipped=rule) + sql
            problems += problem(lambda text=text, wanted=wanted: difference(layout, text, wanted), text)
    assert not problems, f"{len(problems)} of {NUMBER}, MERLOT_SEED={SEED}\n" + "\n".join(problems[:10])
