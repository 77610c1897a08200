"""Keys of rows and their groups against numpy and plain Python."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from merlot.kernels import group as kernels
from merlot.kernels.jit import read_only

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)


def words(values: list[int]) -> NDArray[np.uint64]:
    return np.array(values, np.uint64)


def by_arrival(keys: list[Any]) -> tuple[list[int], list[int]]:
    first: dict[Any, int] = {}
    groups = [first.setdefault(key, len(first)) for key in keys]
    return groups, [keys.index(key) for key in first]


def firsts(groups: NDArray[np.uint32], number: int) -> list[int]:
    rows = np.zeros(number, np.uint32)
    kernels.first_rows(groups, rows)
    return [int(row) for row in rows]


@given(st.lists(st.integers(0, 7), max_size=40))
def test_dense_groups_are_numbered_by_arrival(values: list[int]) -> None:
    groups = np.zeros(len(values), np.uint32)
    number = kernels.assign_dense(words(values), np.full(8, kernels.EMPTY, np.uint32), groups)
    assert (groups.tolist(), firsts(groups, number)) == by_arrival(values)


@given(st.lists(st.tuples(st.integers(0, 3), U64 | st.just(0)), max_size=40))
def test_wide_groups_are_numbered_by_arrival_across_a_table_that_grew(pairs: list[tuple[int, int]]) -> None:
    keys = words([one for pair in pairs for one in pair]).reshape(-1, 2).T.copy()
    groups = np.zeros(len(pairs), np.uint32)
    table = np.zeros((len(pairs), 2), np.uint64)
    half = len(pairs) // 2
    slots = np.full(128, kernels.EMPTY, np.uint32)
    number = kernels.assign_wide(keys, 0, half, 0, slots, table, groups)
    larger = np.full(256, kernels.EMPTY, np.uint32)
    kernels.fill_slots_wide(table[:number], larger)
    number = kernels.assign_wide(keys, half, len(pairs), number, larger, table, groups)
    assert (groups.tolist(), firsts(groups, number)) == by_arrival(pairs)
    assert [tuple(row) for row in table[:number].tolist()] == [pairs[row] for row in firsts(groups, number)]


@given(st.lists(I64 | st.integers(-3, 3), max_size=20), I64 | st.integers(-3, 3), U64, st.integers(0, 9))
def test_whole_numbers_append_their_distance_and_tell_of_those_out_of_bounds(
    values: list[int], low: int, last: int, radix: int
) -> None:
    keys = words(list(range(len(values))))
    is_within = kernels.append_whole(read_only(np.array(values, np.int64)), np.int64(low), np.uint64(last), radix, keys)
    # Distances wrap at 64 bits, and so a value below `low` is far beyond it.
    codes = [(value - low) % 2**64 for value in values]
    assert is_within == all(code <= last for code in codes)
    assert keys.tolist() == [(place * radix + code) % 2**64 for place, code in enumerate(codes)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3) | U64), max_size=40))
def test_distinct_pairs_are_told_by_the_first_row_of_each(pairs: list[tuple[int, int]]) -> None:
    owners, values = np.array([one for one, _ in pairs], np.uint32), words([value for _, value in pairs])
    rows = np.zeros(len(pairs), np.uint32)
    number = kernels.distinct_pairs(owners, values, np.full(128, kernels.EMPTY, np.uint32), rows)
    assert rows[:number].tolist() == by_arrival(pairs)[1]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=60))
def test_ids_are_put_by_group_and_kept_once_in_each(pairs: list[tuple[int, int]]) -> None:
    owners, ids = np.array([one for one, _ in pairs], np.uint32), np.array([two for _, two in pairs], np.uint32)
    ends = np.searchsorted(np.sort(owners), np.arange(5)).astype(np.int64)
    ordered = np.zeros(len(pairs), np.uint32)
    kernels.order_by_group(owners, ids, ends, ordered)
    by_group = [[two for one, two in pairs if one == group] for group in range(5)]
    assert ordered.tolist() == [one for some in by_group for one in some]
    assert ends.tolist() == np.cumsum([len(one) for one in by_group]).tolist()
    kept = np.zeros(5, np.int64)
    kernels.distinct_in_groups(ordered, ends, np.full(7, kernels.EMPTY, np.uint32), kept)
    distinct = [list(dict.fromkeys(one)) for one in by_group]
    assert ordered[: kept[-1]].tolist() == [one for some in distinct for one in some]
    assert kept.tolist() == np.cumsum([len(one) for one in distinct]).tolist()
