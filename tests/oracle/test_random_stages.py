"""Random queries of several stages, over several segments: DuckDB's rows. `MERLOT_RANDOM_STAGES` sets how many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.budget import count, seed
from tests.oracle.stage_generator import StageGenerator
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_data import datasets
from tests.sql.slt_layouts import InProcess, twelve_segments
from tests.sql.slt_oracle import Oracle

NUMBER = count("MERLOT_RANDOM_STAGES", quick=15, every=200, fuzz=5000)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    used = [dataset for dataset in datasets() if dataset.name in ("things", "edges")]
    with twelve_segments(used, tmp_path_factory.mktemp("stages")) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.mark.timeout(0)
def test_random_queries_of_stages_are_answered_as_duckdb_answers_them(layout: InProcess) -> None:
    oracle = Oracle(dataset for dataset in datasets() if dataset.name in ("things", "edges"))
    generator, problems = StageGenerator(seed(1)), []
    for number in range(NUMBER):
        sql, nulls = generator.query(), number % 3 == 0
        try:
            answer = layout.query(f"SET enableNullHandling = {str(nulls).lower()}; {sql}")
            wanted = sort_rows(normalize(oracle.rows(sql, nulls=nulls), answer.types))
            difference = first_difference(sort_rows(normalize(answer.rows, answer.types)), wanted)
        except Exception as error:  # noqa: BLE001 (a crash is one query's result: the others still run)
            difference = f"{type(error).__name__}: {error}"
        if difference is not None:
            problems.append(f"{sql}\n    {difference}")
    assert not problems, f"{len(problems)} of {NUMBER}, MERLOT_SEED={seed(1)}\n" + "\n".join(problems[:10])
