"""Gathers, groups, aggregates, top-k and checked arithmetic against their numpy twins."""

import math
from fractions import Fraction

import numpy as np
import pytest

from merlot.kernels import aggregate, arithmetic, group, take, topk

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")
"""Wrapping is meant; plain numpy scalars, under NUMBA_DISABLE_JIT=1, warn of it."""


@pytest.fixture
def random():
    return np.random.default_rng(11)


@pytest.mark.parametrize("ids_dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
def test_gathers_are_fancy_indexing(ids_dtype, dtype, random):
    dictionary = random.integers(-1000, 1000, 200).astype(dtype)
    ids = random.integers(0, 200, 5000).astype(ids_dtype)
    docs = random.integers(0, 5000, 300).astype(np.uint32)
    whole, chosen, taken = np.empty(5000, dtype), np.empty(300, dtype), np.empty(300, ids_dtype)
    take.look_up(ids, dictionary, whole)
    take.take_look_up(ids, dictionary, docs, chosen)
    take.take(ids, docs, taken)
    np.testing.assert_array_equal(whole, dictionary[ids])
    np.testing.assert_array_equal(chosen, dictionary[ids[docs]])
    np.testing.assert_array_equal(taken, ids[docs])


def test_bits_are_taken_by_doc(random):
    bits = random.random(1000) < 0.5
    words = np.zeros(16, np.uint64)
    words.view(np.uint8)[:125] = np.packbits(bits, bitorder="little")
    docs = random.integers(0, 1000, 300).astype(np.uint32)
    out = np.empty(300, np.bool_)
    take.take_bits(words, docs, out)
    np.testing.assert_array_equal(out, bits[docs])


@pytest.mark.parametrize("wide", [np.uint32, np.uint64])
def test_keys_are_packed_in_mixed_radix(wide, random):
    first, second = random.integers(0, 7, 1000).astype(np.uint8), random.integers(0, 999, 1000).astype(np.uint16)
    docs = random.integers(0, 1000, 400).astype(np.uint32)
    keys, taken = np.full(1000, 99, wide), np.full(400, 99, wide)
    for ids, radix in ((first, 0), (second, 999)):
        group.append_key(ids, radix, keys)
        group.take_append_key(ids, radix, docs, taken)
    np.testing.assert_array_equal(keys, first.astype(wide) * 999 + second)
    np.testing.assert_array_equal(taken, keys[docs])


def test_groups_are_numbered_by_first_appearance_and_survive_growth(random):
    keys = random.integers(0, 500, 2000).astype(np.uint64) * np.uint64(1 << 40)
    slots, group_keys, groups = (
        np.full(4096, group.EMPTY, np.uint32),
        np.empty(2000, np.uint64),
        np.empty(2000, np.uint32),
    )
    found = group.assign_groups(keys[:1000], 0, slots, group_keys, groups[:1000])
    slots = np.full(8192, group.EMPTY, np.uint32)
    group.fill_slots(group_keys[:found], slots)
    found = group.assign_groups(keys[1000:], found, slots, group_keys, groups[1000:])
    assert found == len(np.unique(keys))
    np.testing.assert_array_equal(group_keys[groups], keys)
    _, first = np.unique(keys, return_index=True)
    np.testing.assert_array_equal(group_keys[:found], keys[np.sort(first)])


def test_mark_sets_what_occurs():
    present = np.zeros(5, np.uint8)
    group.mark(np.array([3, 1, 3], np.uint8), present)
    assert present.tolist() == [0, 1, 0, 1, 0]


def test_whole_number_sums_are_exact_beyond_64_bits(random):
    values = random.integers(-(2**63), 2**63 - 1, 3000, dtype=np.int64)
    values[:100] = 2**63 - 1
    groups = random.integers(0, 5, 3000).astype(np.uint32)
    halves, highs, lows = np.zeros(2, np.int64), np.zeros(5, np.int64), np.zeros(5, np.int64)
    aggregate.sum_halves(values, halves)
    aggregate.sum_halves_groups(groups, values, highs, lows)
    assert int(halves[0]) * 2**32 + int(halves[1]) == sum(values.tolist())
    for number in range(5):
        assert int(highs[number]) * 2**32 + int(lows[number]) == sum(values[groups == number].tolist())


@pytest.mark.parametrize("ids", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_through_a_dictionary_are_those_of_its_values(ids, dtype, random):
    bounds = np.iinfo(dtype)
    dictionary = np.sort(random.integers(bounds.min, bounds.max, 200, dtype=dtype, endpoint=True))
    dict_ids = random.integers(0, 200, 3000).astype(ids)
    halves = np.array([3, -7])
    aggregate.sum_looked_up(dict_ids, dictionary, halves)
    assert int(halves[0] - 3) * 2**32 + int(halves[1]) + 7 == sum(dictionary[dict_ids].tolist())


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_narrow_sums_and_counts(dtype, random):
    values, groups = random.integers(-1000, 1000, 3000).astype(dtype), random.integers(0, 9, 3000).astype(np.uint32)
    sums, counts = np.zeros(9, np.int64), np.zeros(9, np.int64)
    magnitude = aggregate.sum_int_groups(groups, values, sums)
    assert magnitude == np.bitwise_or.reduce(np.where(values < 0, ~values, values))
    aggregate.count_groups(groups, counts)
    assert aggregate.sum_int(values) == values.sum()
    np.testing.assert_array_equal(sums, [values[groups == number].sum() for number in range(9)])
    np.testing.assert_array_equal(counts, np.bincount(groups, minlength=9))


def test_float_sums_keep_what_rounding_loses(random):
    values = random.normal(size=5000) * 10.0 ** random.integers(-10, 15, 5000)
    groups = random.integers(0, 3, 5000).astype(np.uint32)
    state, sums, errors = np.zeros(2), np.zeros(3), np.zeros(3)
    aggregate.sum_float(values, state)
    aggregate.sum_float_groups(groups, values, sums, errors)
    assert state[0] + state[1] == float(sum(map(Fraction, values.tolist())))
    for number in range(3):
        assert sums[number] + errors[number] == math.fsum(values[groups == number])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [1, 63, 64, 65, 640, 1000])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98, 1.0])
def test_extremes_of_values_whose_bits_are_set(dtype, size, share, random):
    bounds = np.iinfo(dtype)
    for values in (
        random.integers(-1000, 1000, size).astype(dtype),
        np.arange(size, dtype=dtype),
        -np.arange(size, dtype=dtype),
        random.choice(np.array([bounds.min, 0, bounds.max], dtype), size),
        np.full(size, bounds.max, dtype),
    ):
        chosen = random.random(size) < share
        words = np.zeros((size + 63) // 64, np.uint64)
        words.view(np.uint8)[: (size + 7) // 8] = np.packbits(chosen, bitorder="little")
        nothing = [np.iinfo(np.int64).max, np.iinfo(np.int64).min]
        found = np.array(nothing)
        aggregate.extremes_where(values, words, found)
        assert found.tolist() == ([values[chosen].min(), values[chosen].max()] if chosen.any() else nothing)
        before = np.array([-5, 5])
        aggregate.extremes_where(values, words, before)
        assert before.tolist() == [min(-5, found[0]), max(5, found[1])]


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_extremes_by_group(dtype, random):
    values, groups = random.integers(-99, 99, 500).astype(dtype), random.integers(0, 4, 500).astype(np.uint32)
    low, high = np.full(4, 1000, dtype), np.full(4, -1000, dtype)
    aggregate.min_groups(groups, values, low)
    aggregate.max_groups(groups, values, high)
    np.testing.assert_array_equal(low, [values[groups == number].min() for number in range(4)])
    np.testing.assert_array_equal(high, [values[groups == number].max() for number in range(4)])


def test_nan_is_the_largest_number():
    groups, values = np.zeros(3, np.uint32), np.array([2.0, np.nan, 1.0])
    low, high = np.array([np.nan]), np.array([-np.inf])
    aggregate.min_groups(groups, values, low)
    aggregate.max_groups(groups, values, high)
    assert low[0] == 1.0
    assert np.isnan(high[0])


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1000])
def test_the_heap_keeps_what_a_stable_sort_puts_first(size, random):
    keys = random.integers(0, 50, 700)
    heap, positions = np.empty(size, np.int64), np.empty(size, np.int64)
    used = topk.smallest(keys, heap, positions)
    assert used == min(size, 700)
    expected = np.sort(np.argsort(keys, kind="stable")[:size])
    np.testing.assert_array_equal(np.sort(positions[:used]), expected)
    np.testing.assert_array_equal(keys[positions[:used]], heap[:used])


EDGES = [0, 1, -1, 2**31, -(2**31), 2**32, 3_037_000_500, 2**62, -(2**62), 2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    ("kernel", "exact"),
    [
        (arithmetic.add_checked, lambda left, right: left + right),
        (arithmetic.subtract_checked, lambda left, right: left - right),
        (arithmetic.multiply_checked, lambda left, right: left * right),
    ],
)
def test_arithmetic_is_exact_or_says_that_it_is_not(kernel, exact):
    for left in EDGES:
        for right in EDGES:
            out = np.zeros(1, np.int64)
            overflowed = kernel(np.array([left]), np.array([right]), out)
            wanted = exact(left, right)
            assert overflowed == (not -(2**63) <= wanted < 2**63), (left, right)
            if not overflowed:
                assert out[0] == wanted


def test_warm_calls_every_kernel():
    from merlot.kernels import warm

    assert warm.warm() > 100
