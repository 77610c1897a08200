"""Moments by group, beside numpy's own."""

import numpy as np
import pytest

from merlot.kernels import moments

NUM_GROUPS = 5
RANDOM = np.random.default_rng(11)
GROUPS = RANDOM.integers(0, NUM_GROUPS, 500).astype(np.uint32)
FIRST = RANDOM.normal(1e9, 1.0, 500)
SECOND = FIRST * 0.5 + RANDOM.normal(0, 3.0, 500)


def twin_of_one(values):
    return [len(values), values.mean(), ((values - values.mean()) ** 2).sum()]


def twin_of_two(first, second):
    one, two = twin_of_one(first), twin_of_one(second)
    products = ((first - first.mean()) * (second - second.mean())).sum()
    return [len(first), one[1], two[1], one[2], two[2], products]


def twin_of_four(values):
    deviations = values - values.mean()
    return [len(values), values.mean(), *((deviations**power).sum() for power in (2, 3, 4))]


def test_powers_of_deviations_are_numpys_by_group_and_merged():
    values = FIRST - 1e9 + 3.0
    whole, joined = np.zeros((NUM_GROUPS, 5)), np.zeros((NUM_GROUPS, 5))
    moments.add_four(GROUPS, values, whole)
    for start, stop in ((0, 1), (1, 120), (120, 120), (120, 500)):
        part = np.zeros((NUM_GROUPS, 5))
        moments.add_four(GROUPS[start:stop], values[start:stop], part)
        moments.merge_four(np.arange(NUM_GROUPS, dtype=np.uint32), part, joined)
    for group in range(NUM_GROUPS):
        expected = twin_of_four(values[group == GROUPS])
        np.testing.assert_allclose(whole[group], expected, rtol=1e-9)
        np.testing.assert_allclose(joined[group], expected, rtol=1e-9)


def parts():
    state = np.zeros((NUM_GROUPS, 3)), np.zeros((NUM_GROUPS, 6))
    for start, stop in ((0, 120), (120, 120), (120, 500)):
        one, two = np.zeros((NUM_GROUPS, 3)), np.zeros((NUM_GROUPS, 6))
        moments.add_one(GROUPS[start:stop], FIRST[start:stop], one)
        moments.add_two(GROUPS[start:stop], FIRST[start:stop], SECOND[start:stop], two)
        every = np.arange(NUM_GROUPS, dtype=np.uint32)
        moments.merge_one(every, one, state[0])
        moments.merge_two(every, two, state[1])
    return state


@pytest.mark.parametrize("group", range(NUM_GROUPS))
def test_rows_by_group_and_merged_parts_have_numpys_moments(group):
    whole = np.zeros((NUM_GROUPS, 3)), np.zeros((NUM_GROUPS, 6))
    moments.add_one(GROUPS, FIRST, whole[0])
    moments.add_two(GROUPS, FIRST, SECOND, whole[1])
    first, second = FIRST[group == GROUPS], SECOND[group == GROUPS]
    for one, two in (whole, parts()):
        np.testing.assert_allclose(one[group], twin_of_one(first), rtol=1e-6)
        np.testing.assert_allclose(two[group], twin_of_two(first, second), rtol=1e-6)
