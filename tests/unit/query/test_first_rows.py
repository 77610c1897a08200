"""The rows that come first by several keys, each made only of rows that those before it leave undecided."""

from __future__ import annotations

import numpy as np
import pytest

from merlot.query.operators import order
from merlot.query.operators.order import Keys, KeysOf, Rows, first_rows


def _keys_of(parts: list[Keys], asked: list[int]) -> KeysOf:
    def make(rows: Rows | None) -> list[Keys]:
        asked.append(len(parts[0]) if rows is None else len(rows))
        return [part if rows is None else part[rows] for part in parts]

    return make


@pytest.mark.parametrize("most_in_heap", [order.HEAP_ROWS, 0])
@pytest.mark.parametrize("seed", range(8))
def test_rows_are_those_of_a_whole_sort(seed: int, most_in_heap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "HEAP_ROWS", most_in_heap)
    draw = np.random.default_rng(seed)
    for _ in range(200):
        num_rows = int(draw.integers(1, 60))
        keys = [
            [draw.integers(0, int(draw.integers(1, 12)), num_rows) for _ in range(int(draw.integers(1, 3)))]
            for _ in range(int(draw.integers(1, 4)))
        ]
        limit = int(draw.integers(0, num_rows + 3))
        every = [part for parts in keys for part in parts]
        wanted = np.lexsort(every[::-1])[:limit]
        found = first_rows([_keys_of(parts, []) for parts in keys], num_rows, limit)
        assert found.tolist() == wanted.tolist()


def test_later_keys_are_made_of_few_rows() -> None:
    first, second = np.arange(10_000) // 3, np.arange(10_000)[::-1].copy()
    asked: list[list[int]] = [[], []]
    found = first_rows([_keys_of([key], of) for key, of in zip((first, second), asked, strict=True)], 10_000, 10)
    assert found.tolist() == [2, 1, 0, 5, 4, 3, 8, 7, 6, 11]
    assert asked == [[10_000, 10], [3, 10]]


def test_rows_come_as_they_are_without_a_key() -> None:
    assert first_rows([], 5, 3).tolist() == [0, 1, 2]
