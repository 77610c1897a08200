"""Hashes and ranks of HyperLogLog beside Python's own integers."""

import random

import numpy as np
import pytest

from merlot.kernels import hll

WORD = 0xFFFFFFFF
MULTIPLIER = 0x5BD1E995
RANDOM = random.Random(5)
LONGS = [0, 1, -1, 2**63 - 1, -(2**63), *(RANDOM.randrange(-(2**63), 2**63) for _ in range(50))]
TEXTS = [RANDOM.randbytes(length) for length in range(30)]


def mixed(block):
    product = block * MULTIPLIER & WORD
    return (product ^ product >> 24) * MULTIPLIER & WORD


def finished(hashed):
    product = (hashed ^ hashed >> 13) * MULTIPLIER & WORD
    return product ^ product >> 15


def twin_of_longs(value):
    return finished(mixed(value & WORD) * MULTIPLIER & WORD ^ mixed(value >> 32 & WORD))


def twin_of_bytes(data):
    hashed = WORD ^ len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        hashed = hashed * MULTIPLIER & WORD ^ mixed(int.from_bytes(data[start : start + 4], "little"))
    for place, byte in enumerate(reversed(data[whole:])):
        hashed ^= ((byte ^ 0x80) - 0x80) << 8 * place & WORD
    return finished(hashed * MULTIPLIER & WORD if whole < len(data) else hashed)


def twin_of_rank(hashed, log2m):
    rest = (hashed << log2m & WORD) | (1 << log2m - 1) + 1
    return 33 - rest.bit_length()


def hashes():
    out = np.empty(len(LONGS), np.uint32)
    hll.hash_longs(np.array(LONGS, np.int64), out)
    return out


def test_longs_are_hashed_by_halves():
    assert hashes().tolist() == [twin_of_longs(value) for value in LONGS]


def test_bytes_are_hashed_by_words_and_signed_ends():
    offsets = np.cumsum([0, *map(len, TEXTS)])
    out = np.empty(len(TEXTS), np.uint32)
    hll.hash_bytes(offsets, np.frombuffer(b"".join(TEXTS), np.uint8), out)
    assert out.tolist() == [twin_of_bytes(text) for text in TEXTS]


@pytest.mark.parametrize("log2m", [1, 4, 8, 16])
def test_a_register_keeps_the_greatest_rank_of_its_group(log2m):
    given = np.concatenate([hashes(), np.array([0, 1, WORD], np.uint32)])
    groups = (np.arange(len(given)) % 3).astype(np.uint32)
    registers = np.zeros(3 << log2m, np.uint8)
    hll.offer(given, groups, log2m, registers)
    wanted = np.zeros(3 << log2m, np.uint8)
    for hashed, group in zip(given.tolist(), groups.tolist(), strict=True):
        place = (group << log2m) + (hashed >> 32 - log2m)
        wanted[place] = max(wanted[place], twin_of_rank(hashed, log2m))
    assert registers.tolist() == wanted.tolist()
    out = np.zeros(len(given), np.uint8)
    hll.ranks(given, log2m, out)
    assert out.tolist() == [twin_of_rank(hashed, log2m) for hashed in given.tolist()]
