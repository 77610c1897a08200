"""GROUP BY of any number of columns of any type has DuckDB's groups, whether segments are joined or not.

The seed is printed with every failure: `MERLOT_SEED=… pytest tests/oracle/test_wide_keys.py` repeats it.
`MERLOT_FUZZ_SECONDS` sets how long to look.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from pathlib import Path

import pytest
from slt_answers import first_difference, normalize, sort_rows
from slt_data import Dataset
from slt_layouts import InProcess
from slt_oracle import Oracle
from wide_tables import random_keys, random_segments, random_table

from merlot.query.shortcuts import joined_segments

_SECONDS = float(os.environ.get("MERLOT_FUZZ_SECONDS", "4"))


@pytest.mark.parametrize("sightings", [1, 1 << 60], ids=["joined", "apart"])
def test_wide_keys_have_duckdbs_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sightings: int) -> None:
    monkeypatch.setattr(joined_segments, "SIGHTINGS", sightings)
    monkeypatch.setattr(joined_segments, "MIN_SEGMENTS", 1)
    seed = int(os.environ.get("MERLOT_SEED") or secrets.randbelow(1 << 32))
    generator = random.Random(seed)
    deadline = time.monotonic() + _SECONDS
    number = 0
    while number == 0 or time.monotonic() < deadline:
        folder = tmp_path / str(number)
        folder.mkdir()
        number += 1
        problem = _problem_of_a_table(random_table(generator), folder, generator)
        assert problem is None, f"seed {seed}, table {number}: {problem}"
    print(f"{number} random tables, seed {seed}")


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
