"""GROUP BY of any number of columns of any type has DuckDB's groups, whether segments are joined or not.

The seed is printed with every failure: `MERLOT_SEED=… pytest tests/oracle/test_wide_keys.py` repeats it.
`MERLOT_WIDE_TABLES` sets how many tables.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests import budget
from tests.oracle.rounds import rounds
from tests.oracle.wide_tables import random_keys, random_segments, random_table
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_data import Dataset
from tests.sql.slt_layouts import InProcess
from tests.sql.slt_oracle import Oracle

from merlot.query.shortcuts import coalesced_segments


@pytest.mark.timeout(0)
@pytest.mark.parametrize("sightings", [1, 1 << 60], ids=["joined", "apart"])
def test_wide_keys_have_duckdbs_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sightings: int) -> None:
    monkeypatch.setattr(coalesced_segments, "SIGHTINGS", sightings)
    monkeypatch.setattr(coalesced_segments, "MIN_SEGMENTS", 1)
    seed = budget.seed()
    generator = random.Random(seed)
    for number in rounds("MERLOT_WIDE_TABLES", quick=3, every=40):
        folder = tmp_path / str(number)
        folder.mkdir()
        problem = _problem_of_a_table(random_table(generator), folder, generator)
        assert problem is None, f"MERLOT_SEED={seed}, table {number}: {problem}"


def _problem_of_a_table(dataset: Dataset, folder: Path, generator: random.Random) -> str | None:
    oracle = Oracle([dataset])
    segments = random_segments(dataset, folder, generator)
    layout = InProcess({"wide": dataset.schema}, {"wide": segments}, parts=generator.choice((1, 3)))
    try:
        for _ in range(6):
            ours, theirs = random_keys(generator)
            nulls = generator.random() < 0.4
            answer = layout.query(("SET enableNullHandling=true; " if nulls else "") + ours)
            got = sort_rows(normalize(answer.rows, answer.types))
            wanted = sort_rows(normalize(oracle.rows(theirs, nulls=nulls), answer.types))
            difference = first_difference(got, wanted)
            if difference is not None:
                return f"nulls={nulls}: {difference}\n    {ours}"
    finally:
        layout.close()
        for segment in segments:
            segment.close()
    return None
