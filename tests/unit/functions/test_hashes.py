"""Hashes are those of Pinot's HashFunctionsTest, and of other code where there is some."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.kernels.murmur3 import SEED, hash_bytes
from merlot.values import byte_hashes, partition_hashes

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
TEXT = b"testString"


def test_hashes_are_those_that_pinot_tests() -> None:
    assert byte_hashes.crc32c(TEXT) - 2**32 == -1608760557
    assert byte_hashes.murmur2_64(TEXT) == 3907736674355139845
    assert byte_hashes.murmur2_64(TEXT, 12345) == -2138976126980760436
    assert byte_hashes.murmur3_64(TEXT, 0) == -3652179990542706350
    assert byte_hashes.murmur3_128(TEXT, 0).hex() == "5299e90fa6d950cd0f49afe46febb26c"
    assert partition_hashes.murmur3_x86_32(TEXT, 0) == -1435605585
    assert partition_hashes.murmur3_x64_32(TEXT, 0) == -1096986291
    assert partition_hashes.murmur3_x64_128(TEXT, 0).hex() == "be9d514df91d7c4c2a26ded6a4ad530d"


@given(st.binary(min_size=1, max_size=50))
def test_murmur3_is_that_of_sketches(value: bytes) -> None:
    out = np.zeros(1, np.uint64)
    hash_bytes(np.array([0, len(value)]), np.frombuffer(value, np.uint8), out)
    assert byte_hashes.murmur3_64(value, SEED) % 2**64 // 2 == out[0]


def test_crc32c_is_that_of_its_standard() -> None:
    assert byte_hashes.crc32c(b"123456789") == 0xE3069283
    assert byte_hashes.crc32c(bytes(32)) == 0x8A9136AA
