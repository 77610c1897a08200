"""Means and squared deviations by group, of one variable or of two (Welford; merged as Chan, Golub and LeVeque do).

A row of `state` is a group's count, mean and sum of squared deviations. For two variables it is the count, both means,
both sums of squared deviations, and the sum of products of deviations. For four moments it is the count, the mean, and
the sums of the second, third and fourth powers of deviations (Pébay's formulas). Nothing is subtracted that is as large
as the values' own squares, so values far from 0 and close together keep their digits. `groups` u32, one per row.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Groups = NDArray[np.uint32]
Doubles = NDArray[np.float64]


@kernel
def add_one(groups: Groups, values: Doubles, state: Doubles) -> None:
    """Add values to the states (G, 3) of their groups."""
    for row in range(groups.shape[0]):
        group = groups[row]
        count = state[group, 0] + 1.0
        delta = values[row] - state[group, 1]
        mean = state[group, 1] + delta / count
        state[group, 0] = count
        state[group, 1] = mean
        state[group, 2] += delta * (values[row] - mean)


@kernel
def merge_one(groups: Groups, others: Doubles, state: Doubles) -> None:
    """Merge states (N, 3) into the states (G, 3) of their groups."""
    for row in range(groups.shape[0]):
        theirs = others[row, 0]
        if theirs == 0.0:
            continue
        group = groups[row]
        ours = state[group, 0]
        count = ours + theirs
        delta = others[row, 1] - state[group, 1]
        state[group, 0] = count
        state[group, 1] = others[row, 1] if ours == 0.0 else state[group, 1] + delta * theirs / count
        state[group, 2] += others[row, 2] + (0.0 if ours == 0.0 else delta * delta * ours * theirs / count)


@kernel
def add_two(groups: Groups, first: Doubles, second: Doubles, state: Doubles) -> None:
    """Add pairs of values to the states (G, 6) of their groups."""
    for row in range(groups.shape[0]):
        group = groups[row]
        count = state[group, 0] + 1.0
        delta_first = first[row] - state[group, 1]
        delta_second = second[row] - state[group, 2]
        mean_first = state[group, 1] + delta_first / count
        mean_second = state[group, 2] + delta_second / count
        state[group, 0] = count
        state[group, 1] = mean_first
        state[group, 2] = mean_second
        state[group, 3] += delta_first * (first[row] - mean_first)
        state[group, 4] += delta_second * (second[row] - mean_second)
        state[group, 5] += delta_first * (second[row] - mean_second)


@kernel
def merge_two(groups: Groups, others: Doubles, state: Doubles) -> None:
    """Merge states (N, 6) into the states (G, 6) of their groups."""
    for row in range(groups.shape[0]):
        theirs = others[row, 0]
        if theirs == 0.0:
            continue
        group = groups[row]
        ours = state[group, 0]
        count = ours + theirs
        if ours == 0.0:
            for place in range(6):
                state[group, place] = others[row, place]
            continue
        delta_first = others[row, 1] - state[group, 1]
        delta_second = others[row, 2] - state[group, 2]
        weight = ours * theirs / count
        state[group, 0] = count
        state[group, 1] += delta_first * theirs / count
        state[group, 2] += delta_second * theirs / count
        state[group, 3] += others[row, 3] + delta_first * delta_first * weight
        state[group, 4] += others[row, 4] + delta_second * delta_second * weight
        state[group, 5] += others[row, 5] + delta_first * delta_second * weight


@kernel
def add_four(groups: Groups, values: Doubles, state: Doubles) -> None:
    """Add values to the states (G, 5) of their groups."""
    for row in range(groups.shape[0]):
        group = groups[row]
        before = state[group, 0]
        count = before + 1.0
        delta = values[row] - state[group, 1]
        share = delta / count
        square = share * share
        term = delta * share * before
        second, third = state[group, 2], state[group, 3]
        state[group, 0] = count
        state[group, 1] += share
        state[group, 2] = second + term
        state[group, 3] = third + term * share * (count - 2.0) - 3.0 * share * second
        state[group, 4] += term * square * (count * count - 3.0 * count + 3.0) + 6.0 * square * second
        state[group, 4] -= 4.0 * share * third


@kernel
def merge_four(groups: Groups, others: Doubles, state: Doubles) -> None:
    """Merge states (N, 5) into the states (G, 5) of their groups."""
    for row in range(groups.shape[0]):
        theirs = others[row, 0]
        if theirs == 0.0:
            continue
        group = groups[row]
        ours = state[group, 0]
        if ours == 0.0:
            for place in range(5):
                state[group, place] = others[row, place]
            continue
        count = ours + theirs
        share = (others[row, 1] - state[group, 1]) / count
        second, third = state[group, 2], state[group, 3]
        product = ours * theirs
        state[group, 0] = count
        state[group, 1] += share * theirs
        state[group, 2] += others[row, 2] + share * share * product * count
        state[group, 3] += others[row, 3] + share**3 * product * (ours - theirs) * count
        state[group, 3] += 3.0 * share * (ours * others[row, 2] - theirs * second)
        state[group, 4] += others[row, 4] + share**4 * product * (ours * ours - product + theirs * theirs) * count
        state[group, 4] += 6.0 * share * share * (ours * ours * others[row, 2] + theirs * theirs * second)
        state[group, 4] += 4.0 * share * (ours * others[row, 3] - theirs * third)
