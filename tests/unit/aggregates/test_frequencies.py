"""Counts of values: states of others are looked at before they are taken in."""

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from merlot.aggregates.frequencies import FrequencyState
from merlot.errors import CorruptionError
from merlot.tree.types import DOUBLE, LONG


@pytest.mark.parametrize("counts", [[[1]], [[1, 1, 1]], [[]]])
def test_a_state_with_more_values_than_counts_or_fewer_is_refused(counts: list[list[int]]) -> None:
    state = FrequencyState(LONG, 1)
    columns = [pa.array([[5, 6]], pa.list_(pa.int64())), pa.array(counts, pa.list_(pa.int64()))]
    with pytest.raises(CorruptionError, match="a state counts"):
        state.merge(columns, np.zeros(1, np.uint32))


def test_pairs_are_sorted_again_only_when_they_have_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    lexsort = np.lexsort

    def counted(keys: tuple[NDArray[np.float64], ...]) -> NDArray[np.int64]:
        sizes.append(len(keys[0]))
        return lexsort(keys)

    monkeypatch.setattr(np, "lexsort", counted)
    state = FrequencyState(DOUBLE, 1, min_pending=1000)
    for chunk in range(100):
        state.add([np.arange(100 * chunk, 100 * chunk + 100, dtype=np.float64)], None, 100)
    # Each chunk is sorted alone first.
    assert 10_000 + 1_000 < sum(sizes) < 3 * 10_000
    values, counts = state.columns(np.zeros(1, np.int64))
    assert values.to_pylist() == [list(range(10_000))]
    assert counts.to_pylist() == [[1] * 10_000]
