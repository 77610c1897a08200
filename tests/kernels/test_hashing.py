"""XXH64 against its published values and its plain twin, and the bits of a filter one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlot.kernels import hashing


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_published_values(data: bytes, expected: int) -> None:
    assert hashing.xxh64(data) == expected


@given(texts=st.lists(st.binary(max_size=100), max_size=10))
@settings(deadline=None)
def test_spans_hash_as_the_plain_twin_does(texts: list[bytes]) -> None:
    data = np.frombuffer(b"".join(texts), np.uint8).view()
    data.flags.writeable = False
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    hashes = np.empty(len(texts), np.uint64)
    hashing.hash_spans(data, offsets, hashes)
    assert hashes.tolist() == [hashing.xxh64(text) for text in texts]


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_fixed_values_hash_by_their_eight_bytes(values: list[int]) -> None:
    found = hashing.hash_fixed(np.array(values, np.int64).view(np.uint64))
    assert found.tolist() == [hashing.xxh64(value.to_bytes(8, "little", signed=True)) for value in values]


@given(hashes=st.lists(st.integers(0, 2**64 - 1), max_size=30), num_blocks=st.integers(1, 9))
@settings(deadline=None)
def test_a_hash_sets_one_bit_in_each_word_of_its_block(hashes: list[int], num_blocks: int) -> None:
    words = np.zeros(8 * num_blocks, np.uint32)
    hashing.set_bits(np.array(hashes, np.uint64), hashing.SALTS, words)
    expected = [0] * (8 * num_blocks)
    for hash_ in hashes:
        block = ((hash_ >> 32) * num_blocks) >> 32
        for place, salt in enumerate(hashing.SALTS.tolist()):
            expected[8 * block + place] |= 1 << (((hash_ % 2**32) * salt % 2**32) >> 27)
    assert words.tolist() == expected
