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
