"""MurmurHash3's kernel beside Python's own integers, and beside hashes that DataSketches made."""

import random

import numpy as np
import pytest
from datasketches import update_theta_sketch

from merlot.kernels import murmur3

WORD = (1 << 64) - 1
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
RANDOM = random.Random(9)
BYTES = [RANDOM.randbytes(length) for length in range(1, 50)]
LONGS = [0, 1, -1, 2**63 - 1, -(2**63), *(RANDOM.randrange(-(2**63), 2**63) for _ in range(50))]


def rotated(word, bits):
    return (word << bits | word >> (64 - bits)) & WORD


def final(word):
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & WORD
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & WORD
    return word ^ word >> 33


def twin(data):
    first = second = murmur3.SEED
    whole = len(data) // 16 * 16
    for start in range(0, whole, 16):
        one, other = (int.from_bytes(data[at : at + 8], "little") for at in (start, start + 8))
        first ^= rotated(one * C1 & WORD, 31) * C2 & WORD
        first = ((rotated(first, 27) + second) * 5 + 0x52DCE729) & WORD
        second ^= rotated(other * C2 & WORD, 33) * C1 & WORD
        second = ((rotated(second, 31) + first) * 5 + 0x38495AB5) & WORD
    one, other = (int.from_bytes(data[at : at + 8], "little") for at in (whole, whole + 8))
    second ^= rotated(other * C2 & WORD, 33) * C1 & WORD
    first ^= rotated(one * C1 & WORD, 31) * C2 & WORD
    first, second = first ^ len(data), second ^ len(data)
    first = (first + second) & WORD
    return (final(first) + final((second + first) & WORD) & WORD) >> 1


def test_bytes_have_the_hashes_of_the_twin():
    offsets = np.cumsum([0, 0, *map(len, BYTES)])
    out = np.zeros(len(BYTES) + 1, np.uint64)
    murmur3.hash_bytes(offsets, np.frombuffer(b"".join(BYTES), np.uint8), out)
    assert out.tolist() == [0, *map(twin, BYTES)]


def test_words_have_the_hashes_of_their_eight_bytes():
    out = np.zeros(len(LONGS), np.uint64)
    murmur3.hash_words(np.array(LONGS, np.int64).view(np.uint64), out)
    assert out.tolist() == [twin(number.to_bytes(8, "little", signed=True)) for number in LONGS]


@pytest.mark.parametrize("value", [5, -5, "text", "a longer text of more than sixteen bytes"])
def test_the_twin_hashes_as_the_library_does(value):
    sketch = update_theta_sketch(5)
    sketch.update(value)
    data = value.encode() if isinstance(value, str) else value.to_bytes(8, "little", signed=True)
    assert list(sketch) == [twin(data)]
