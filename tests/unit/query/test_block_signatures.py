"""A look for one value of a joined column finds what a scan does."""

from __future__ import annotations

import numpy as np
import pytest
from tests.budget import count

from merlot.query.shortcuts import block_signatures, coalesced_segments
from merlot.query.shortcuts.block_signatures import BlockSignatures

FIELDS = [
    {"name": "k", "type": "LONG"},
    {"name": "i", "type": "INT"},
    {"name": "s", "type": "STRING"},
]
NUM_ROWS = 20_000


@pytest.mark.parametrize("seed", range(count("MERLOT_PRINTS", quick=2, every=4)))
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint32, np.uint16])
def test_docs_are_those_of_the_value(seed, dtype):
    random = np.random.default_rng(seed)
    bounds = np.iinfo(dtype)
    numbers = random.integers(bounds.min, bounds.max, 400_000, dtype, endpoint=True)
    numbers[::40_000] = 7
    prints = BlockSignatures(numbers)
    for wanted in (*numbers[random.integers(0, len(numbers), 20)].tolist(), bounds.min, bounds.max, 12_345):
        docs = prints.docs(numbers, wanted)
        if docs is not None:
            assert (docs.dtype, docs.tolist()) == (np.dtype(np.uint32), np.flatnonzero(numbers == wanted).tolist())
    assert prints.docs(numbers, 7) is None, "about half of the blocks have it"


def test_hardly_a_block_is_looked_at_for_nothing():
    numbers = np.random.default_rng(5).integers(0, 1 << 40, 1 << 21)
    prints = BlockSignatures(numbers)
    wanted = [0, *range(1 << 41, (1 << 41) + 200)]
    assert all(prints.docs(numbers, one) is not None for one in wanted)


@pytest.fixture
def remembered(make_table, monkeypatch):
    """A table whose joined columns remember their blocks, however small, and what was printed so far."""
    made = []

    def kept(numbers, num_values):
        made.append(num_values)
        return BlockSignatures(numbers)

    monkeypatch.setattr(block_signatures, "worth_having", kept)
    monkeypatch.setattr(block_signatures, "MOST_SHARE", 1)
    rows = [
        {"k": (number * 7_919) % 100_003 - 50_000, "i": number % 97, "s": f"s{number % 5_000}"}
        for number in range(NUM_ROWS)
    ]
    return make_table(FIELDS, rows[:8_000], rows[8_000:]), rows, made


@pytest.mark.parametrize("layout", ["joined"], indirect=True)
def test_queries_answer_the_same_once_blocks_are_remembered(remembered):
    table, rows, made = remembered
    chosen = [rows[number] for number in (0, 7_999, 8_000, NUM_ROWS - 1, 4_321)]
    conditions = [
        *((f"k = {row['k']}", lambda other, row=row: other["k"] == row["k"]) for row in chosen),
        *((f"s = '{row['s']}'", lambda other, row=row: other["s"] == row["s"]) for row in chosen),
        ("k = 99999999", lambda other: False),
        ("k <> -50000", lambda other: other["k"] != -50_000),
        ("NOT s = 's17'", lambda other: other["s"] != "s17"),
        ("k = -50000 OR s = 's3'", lambda other: other["k"] == -50_000 or other["s"] == "s3"),
        ("s = 's20' AND i > 40", lambda other: other["s"] == "s20" and other["i"] > 40),
    ]
    for _ in range(2):
        for condition, holds in conditions:
            found = table.query(f"SELECT COUNT(*), SUM(i) FROM t WHERE {condition}")
            kept = [row["i"] for row in rows if holds(row)]
            assert found == [[len(kept), float(sum(kept))]], condition
    assert len(made) == 2, "of each column once"


@pytest.mark.parametrize("layout", ["joined"], indirect=True)
def test_what_is_remembered_counts_as_memory(remembered, monkeypatch):
    table, rows, made = remembered
    cache = coalesced_segments.BatchCache(1 << 30)
    monkeypatch.setattr(coalesced_segments, "BATCH_CACHE", cache)  # of the process's, batches of other tests may go now
    for _ in range(2):
        table.query(f"SELECT i FROM t WHERE k = {rows[0]['k']}")
    assert len(made) == 1
    assert cache.stats()["bytes"] > NUM_ROWS * (8 + 1) + 2 * 8 * 4_096 - 1


@pytest.mark.parametrize(
    ("numbers", "num_values"),
    [
        (np.zeros(1_000, np.int64), None),
        (np.zeros(300_000, np.uint8), 200),
        (np.zeros(300_000), None),
    ],
)
def test_few_docs_few_values_and_floats_are_scanned(numbers, num_values):
    assert block_signatures.worth_having(numbers, num_values) is None
    assert block_signatures.worth_having(np.zeros(300_000, np.uint32), 70_000) is not None
