"""MurmurHash2 of 64 bits against its definition in Python's numbers, and ranks against binary digits."""

import random

import numpy as np

from merlot.kernels import murmur64

MASK = (1 << 64) - 1
MULTIPLIER = 0xC6A4A7935BD1E995


def murmur(data: bytes) -> int:
    hashed = 0xE17A1465 ^ (len(data) * MULTIPLIER & MASK)
    whole = len(data) // 8 * 8
    for place in range(0, whole, 8):
        word = int.from_bytes(data[place : place + 8], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 47) * MULTIPLIER & MASK
        hashed = (hashed ^ word) * MULTIPLIER & MASK
    if len(data) > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 47) * MULTIPLIER & MASK
    return hashed ^ hashed >> 47


def test_hashes_are_those_of_the_definition():
    chance = random.Random(5)
    cells = [chance.randbytes(length % 30) for length in range(200)]
    bounds = np.cumsum([0, *map(len, cells)])
    out = np.zeros(len(cells), np.uint64)
    murmur64.hash_bytes(bounds, np.frombuffer(b"".join(cells), np.uint8), out)
    assert out.tolist() == [murmur(cell) for cell in cells]
    assert hex(murmur(b"abcdefghijk")) == "0xe46948818f21a8a0"  # what clearspring's class answers


def test_ranks_are_leading_zeros_after_the_first_bits():
    chance = random.Random(6)
    hashes = [chance.getrandbits(64) >> chance.randrange(64) for _ in range(300)]
    for p in (4, 14, 16):
        out = np.zeros(len(hashes), np.uint8)
        murmur64.ranks(np.array(hashes, np.uint64), p, out)
        rests = [f"{one:064b}"[p:] for one in hashes]
        assert out.tolist() == [min(31, len(rest) - len(rest.lstrip("0")) + 1) for rest in rests]
