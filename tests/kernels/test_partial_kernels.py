"""Recurrences over chains of rows against plain Python; `tests/unit/upsert` has the mergers that they make up."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from merlot.kernels import partial as kernels

Longs = NDArray[np.int64]


@st.composite
def chains(draw: st.DrawFn) -> tuple[int, Longs]:
    """Rows that were there, and the row that each of a batch is merged into, each taken once at most."""
    num_previous = draw(st.integers(0, 4))
    free, prior = list(range(num_previous)), []
    for number in range(draw(st.integers(1, 8))):
        before = draw(st.sampled_from([-1, *free]))
        if before >= 0:
            free.remove(before)
        prior.append(before)
        free.append(num_previous + number)
    return num_previous, np.array(prior)


def members(num_previous: int, prior: Longs, row: int) -> list[int]:
    """A row and all before it, oldest first."""
    before = int(prior[row - num_previous]) if row >= num_previous else -1
    return [*(members(num_previous, prior, before) if before >= 0 else []), row]


@given(chains(), st.data())
def test_sources_are_rows_of_the_chain(found: tuple[int, Longs], data: st.DataObject) -> None:
    num_previous, prior = found
    rows = num_previous + len(prior)
    flags = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    ranks = data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    valid, ranked = np.array(flags, np.uint8), np.array(ranks)
    results: dict[str, Longs] = {name: np.arange(rows) for name in ("last", "first", "largest", "smallest")}
    kernels.last_values(prior, valid, results["last"])
    kernels.first_values(prior, valid, results["first"])
    kernels.extremes(prior, valid, ranked, True, results["largest"])
    kernels.extremes(prior, valid, ranked, False, results["smallest"])
    depths = np.zeros(rows, np.int64)
    assert kernels.depths(prior, depths) == depths.max()
    for row in range(num_previous, rows):
        chain = members(num_previous, prior, row)
        assert depths[row] == sum(member >= num_previous for member in chain) - 1
        known = [member for member in chain if flags[member]]
        if known:
            assert (results["last"][row], results["first"][row]) == (known[-1], known[0])
            assert ranks[results["largest"][row]] == max(ranks[member] for member in known)
            assert ranks[results["smallest"][row]] == min(ranks[member] for member in known)
        else:
            assert all(not flags[sources[row]] for sources in results.values())


@given(chains(), st.data())
def test_sums_lists_and_sets_of_the_chain(found: tuple[int, Longs], data: st.DataObject) -> None:
    num_previous, prior = found
    rows = num_previous + len(prior)
    lists: list[list[int]] = data.draw(st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=rows, max_size=rows))
    sums, valid = np.array([sum(values) for values in lists]), np.array([bool(values) for values in lists], np.uint8)
    kernels.sums(prior, valid, sums)
    ordered = [sorted(values) for values in lists]
    starts = np.cumsum([0, *map(len, lists)])
    lengths = np.diff(starts)
    kernels.append_lengths(prior, lengths)
    offsets = np.cumsum([0, *lengths.tolist()])
    elements = np.zeros(offsets[-1], np.int64)
    kernels.append_lists(prior, starts, offsets, elements)
    ends, merged = np.zeros(rows + 1, np.int64), np.zeros(0, np.int64)
    row, ranks = 0, flat(ordered)
    while (row := kernels.unite(prior, starts, ranks, row, ends, merged)) < rows:
        merged = np.concatenate([merged, np.zeros(2, np.int64)])
    for row in range(num_previous, rows):
        chain = members(num_previous, prior, row)
        values = [value for member in chain for value in lists[member]]
        assert (sums[row], bool(valid[row])) == (sum(values), bool(values))
        assert flat(lists)[elements[offsets[row] : offsets[row + 1]]].tolist() == values
        assert merged[ends[row] : ends[row + 1]].tolist() == sorted(set(values))


def flat(lists: list[list[Any]]) -> Longs:
    return np.array([value for values in lists for value in values], np.int64)
