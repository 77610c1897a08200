"""wyhash against its definition in Python's numbers and hash4j's answers, and registers against sets of bits."""

import random

import numpy as np
import pytest

from merlot.kernels import ultraloglog, wyhash

MASK = (1 << 64) - 1
SECRETS = (0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3)
TEXTS = {
    "": 0x14B83016DC460955,
    "a": 0x9011410874343FD8,
    "abc": 0xA20EB7EAA781D8D7,
    "abcdefgh": 0xE768BBC99767A1DA,
    "zoë €uro 😀 in a longer text": 0xFF7082C964AEF375,
    "x" * 22: 0xFC36B58E37E4405B,
    "y" * 23: 0x38D4FE1B070B0A78,
    "z" * 100: 0x73007C2433F467AD,
}
NUMBERS = {
    0: (0x14B83016DC460955, 0xE6B7875D0487A132),
    1: (0xD1451A1B34D5FB64, 0xAC3608194DDC6751),
    -1: (0x53AC8FA6824BCAD0, 0xE2146920409C1FC),
    123456: (0xA3622D4A0418AF6F, 0xA60DBC4822B3208F),
}
"""What hash4j 0.22 answers, of ints and longs."""


def mixed(one, other):
    product = one * other
    return product & MASK ^ product >> 64


def twin(data):
    size, seed = len(data), mixed(SECRETS[0], SECRETS[1])
    seeds, start = [seed, seed, seed], 0

    def word(place, width=8):
        return int.from_bytes(data[place : place + width], "little")

    if size <= 16:
        step = size // 8 * 4
        one = word(0, 4) << 32 | word(step, 4)
        other = word(size - 4, 4) << 32 | word(size - 4 - step, 4)
    else:
        while size - start > 48:
            for lane in range(3):
                place = start + 16 * lane
                seeds[lane] = mixed(word(place) ^ SECRETS[lane + 1], word(place + 8) ^ seeds[lane])
            start += 48
        seed = seeds[0] ^ seeds[1] ^ seeds[2]
        while size - start > 16:
            seed = mixed(word(start) ^ SECRETS[1], word(start + 8) ^ seed)
            start += 16
        one, other = word(size - 16), word(size - 8)
    product = (one ^ SECRETS[1]) * (other ^ seed)
    return mixed(product & MASK ^ SECRETS[0] ^ size, product >> 64 ^ SECRETS[1])


def hashes_of_texts(texts):
    cells = [text.encode() for text in texts]
    out = np.zeros(len(cells), np.uint64)
    wyhash.hash_texts(np.cumsum([0, *map(len, cells)]), np.frombuffer(b"".join(cells), np.uint8), out)
    return out.tolist()


def test_texts_are_hashed_as_java_holds_them():
    chance = random.Random(3)
    some = ["".join(chance.choices("ab\x7f\x80éß߿ࠀ€\uffff😀\U0010ffff", k=size)) for size in range(120)]
    units = [text.encode("utf-16-le") for text in some]
    assert hashes_of_texts(some) == [twin(data + (len(data) // 2).to_bytes(4, "little")) for data in units]
    assert hashes_of_texts(TEXTS) == list(TEXTS.values())


@pytest.mark.parametrize("is_wide", [False, True])
def test_numbers_are_hashed_by_their_bytes(is_wide):
    chance = random.Random(4)
    some = [*NUMBERS, *(chance.randrange(-(2**31), 2**31) for _ in range(50))]
    out = np.zeros(len(some), np.uint64)
    wyhash.hash_words(np.array(some, np.int64).view(np.uint64), is_wide, out)
    assert out.tolist() == [twin(number.to_bytes(8 if is_wide else 4, "little", signed=True)) for number in some]
    assert out.tolist()[: len(NUMBERS)] == [both[is_wide] for both in NUMBERS.values()]


def met_of(hashed, p):
    """A register's place, and the bit that a hash sets there."""
    rest = hashed & ((1 << (64 - p)) - 1)
    return hashed >> (64 - p), 64 - rest.bit_length() - 1


def registers_of(hashes, p):
    met = [set() for _ in range(1 << p)]
    for hashed in hashes:
        place, bit = met_of(hashed, p)
        met[place].add(bit)
    tops = [max(bits, default=0) for bits in met]
    return [4 * top + 2 * (top - 1 in bits) + (top - 2 in bits) for top, bits in zip(tops, met, strict=True)]


def some_hashes(number, seed=5):
    """Many of them with long runs of zeros."""
    chance = random.Random(seed)
    return [
        chance.getrandbits(64) & ~(((1 << chance.randrange(64)) - 1) << chance.randrange(60)) & MASK
        for _ in range(number)
    ]


@pytest.mark.parametrize("p", [3, 5, 12])
def test_registers_are_the_highest_bit_and_the_two_below(p):
    hashes = some_hashes(3000)
    groups = np.arange(3000, dtype=np.uint32) % 3
    out = np.zeros(3 << p, np.uint8)
    ultraloglog.offer(np.array(hashes, np.uint64), groups, p, out)
    assert out.tolist() == [one for group in range(3) for one in registers_of(hashes[group::3], p)]


@pytest.mark.parametrize("p", [3, 26])
def test_notes_of_a_place_join_to_its_register(p):
    hashes = some_hashes(500)
    alone = np.zeros(500, np.uint8)
    ultraloglog.registers_of(np.array(hashes, np.uint64), p, alone)
    notes = np.sort(np.array([met_of(hashed, p)[0] << 8 for hashed in hashes]) | alone)
    joined = notes[: ultraloglog.join_notes(notes)]
    places = [met_of(hashed, p)[0] for hashed in hashes]
    expected = (
        {
            place: max(
                registers_of(
                    [hashed & ((1 << 64 - p) - 1) for hashed, at in zip(hashes, places, strict=True) if at == place], p
                )
            )
            for place in places
        }
        if p == 3
        else None
    )
    assert sorted(set(places)) == (joined >> 8).tolist()
    if expected is not None:
        assert {note >> 8: note & 255 for note in joined.tolist()} == expected


@pytest.mark.parametrize("sizes", [(5, 5), (3, 9), (12, 4), (6, 7, 3)])
def test_sketches_unite_to_one_of_the_least_size(sizes):
    parts = [some_hashes(400, seed) for seed in range(len(sizes))]
    cells = [bytes([p, *registers_of(hashes, p)]) for p, hashes in zip(sizes, parts, strict=True)]
    united, unfit = unite(cells, min(sizes))
    assert unfit == -1
    assert united == [min(sizes), *registers_of([hashed for part in parts for hashed in part], min(sizes))]


def unite(cells, p):
    data = np.frombuffer(b"".join(cells), np.uint8)
    starts = np.cumsum([0, *map(len, cells)])[:-1]
    out = np.zeros(1 + (1 << p), np.uint8)
    out[0] = p
    facts = (data, starts, np.arange(len(cells)), np.array([0, len(cells)]))
    unfit = ultraloglog.unite(*facts, out, np.array([0, len(out)]))
    return out.tolist(), unfit


def test_registers_that_no_hash_leads_to_are_told():
    p = 4
    reached = {0} | {4 * p - 4, 4 * p, 4 * p + 2} | set(range(4 * p + 4, 256))
    sound = [register for register in range(256) if unite([bytes([p, register, *bytes(15)])], p)[1] == -1]
    assert set(sound) == reached
    assert set(registers_of(some_hashes(100_000, 9), p)) <= reached
