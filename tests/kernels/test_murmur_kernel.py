"""The murmur2 kernel against the function that partitions single values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.kernels.murmur import murmur2
from merlot.values import partition_hashes

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


@given(st.lists(st.binary(max_size=13)))
def test_murmur2_is_that_of_kafka(values: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int64)
    out = np.zeros(len(values), np.uint32)
    murmur2(offsets, np.frombuffer(b"".join(values), np.uint8), out)
    assert out.view(np.int32).tolist() == [partition_hashes.murmur2(value) for value in values]
