"""Counts of values: states of others are looked at before they are taken in."""

import numpy as np
import pyarrow as pa
import pytest

from merlot.aggregates.frequencies import FrequencyState
from merlot.errors import CorruptionError
from merlot.tree.types import LONG


@pytest.mark.parametrize("counts", [[[1]], [[1, 1, 1]], [[]]])
def test_a_state_with_more_values_than_counts_or_fewer_is_refused(counts: list[list[int]]) -> None:
    state = FrequencyState(LONG, 1)
    columns = [pa.array([[5, 6]], pa.list_(pa.int64())), pa.array(counts, pa.list_(pa.int64()))]
    with pytest.raises(CorruptionError, match="a state counts"):
        state.merge(columns, np.zeros(1, np.uint32))
