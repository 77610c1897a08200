"""Grouping by parts against numpy and plain Python."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from merlot.kernels import partition as kernels
from merlot.kernels.jit import read_only

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

U64 = st.integers(0, 2**64 - 1)
MIX = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def hash_of(key: tuple[int, ...]) -> int:
    mixed = 0
    for word in key:
        mixed = ((mixed ^ word) * MIX) & MASK
        mixed ^= mixed >> 32
    return (mixed * MIX) & MASK


def word_of(mixed: int) -> int:
    """The one word with that hash."""
    inverse = pow(MIX, -1, 2**64)
    mixed = (mixed * inverse) & MASK
    mixed ^= mixed >> 32
    return (mixed * inverse) & MASK


@given(st.lists(st.tuples(U64, st.integers(0, 2)), max_size=20))
def test_hashes_mix_all_words(pairs: list[tuple[int, int]]) -> None:
    words = np.array(pairs, np.uint64).reshape(-1, 2).T.copy()
    hashes = np.zeros(len(pairs), np.uint64)
    kernels.hash_words(words, hashes)
    assert hashes.tolist() == [hash_of(pair) for pair in pairs]


@given(U64)
def test_the_hash_of_one_word_is_of_no_other_word(word: int) -> None:
    hashes = np.zeros(1, np.uint64)
    kernels.hash_words(np.array([[word]], np.uint64), hashes)
    assert word_of(int(hashes[0])) == word


def parts_of(hashes: NDArray[np.uint64], bits: int) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int64]]:
    counts = np.zeros(1 << bits, np.int64)
    kernels.count_parts(hashes, 64 - bits, counts)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    scattered, rows = np.zeros_like(hashes), np.zeros(len(hashes), np.uint32)
    half = len(hashes) // 2
    starts = bounds[:-1].copy()
    kernels.scatter(hashes[:half], 0, 64 - bits, starts, scattered, rows)
    kernels.scatter(hashes[half:], half, 64 - bits, starts, scattered, rows)
    return scattered, rows, bounds


@given(st.lists(U64, max_size=40), st.integers(1, 3))
def test_rows_are_scattered_to_their_parts_in_order(values: list[int], bits: int) -> None:
    hashes = np.array(values, np.uint64)
    scattered, rows, bounds = parts_of(hashes, bits)
    order = np.argsort(hashes >> np.uint64(64 - bits), kind="stable")
    assert (rows.tolist(), scattered.tolist()) == (order.tolist(), hashes[order].tolist())
    assert bounds.tolist() == [sum(value >> (64 - bits) < part for value in values) for part in range((1 << bits) + 1)]


def grouped(hashes: NDArray[np.uint64], bits: int) -> tuple[list[int], list[int]]:
    """Group of each row, first row of each group."""
    scattered, rows, bounds = parts_of(hashes, bits)
    slots = np.zeros(1 << (2 * max(1, len(rows))).bit_length(), np.uint32)
    groups, firsts, found = np.zeros_like(rows), np.zeros_like(rows), np.zeros(1 << bits, np.int64)
    kernels.assign_parts(scattered, rows, bounds, slots, groups, np.zeros_like(hashes), firsts, found)
    bases = np.concatenate([[0], np.cumsum(found)])
    of_rows, first_rows = np.zeros_like(rows), np.zeros(int(bases[-1]), np.uint32)
    kernels.number_groups(rows, bounds, groups, firsts, bases, of_rows, first_rows)
    return of_rows.tolist(), first_rows.tolist()


def by_part(keys: list[Any], hashes: list[int], bits: int) -> tuple[list[int], list[int]]:
    """The same: groups by part of their hash, then by arrival."""
    first: dict[Any, int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key, row)
    ordered = sorted(first, key=lambda key: (hashes[first[key]] >> (64 - bits), first[key]))
    numbers = {key: number for number, key in enumerate(ordered)}
    return [numbers[key] for key in keys], [first[key] for key in ordered]


@given(st.lists(st.integers(0, 9) | U64, max_size=60), st.integers(1, 3))
def test_equal_hashes_are_groups_by_part_and_arrival(values: list[int], bits: int) -> None:
    hashes = [hash_of((value,)) for value in values]
    assert grouped(np.array(hashes, np.uint64), bits) == by_part(values, hashes, bits)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 1)), max_size=20))
def test_words_of_a_group_are_compared(triples: list[tuple[int, int, int]]) -> None:
    groups = [group for group, *_ in triples]
    pairs = [tuple(pair) for _, *pair in triples]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    firsts = [groups.index(group) for group in numbers]
    words = np.array(pairs, np.uint64).reshape(-1, 2).T.copy()
    of_rows = np.array([numbers[group] for group in groups], np.uint32)
    found = kernels.equal_words(words, of_rows, np.array(firsts, np.uint32), 0, len(triples))
    assert found == all(pair == pairs[groups.index(group)] for pair, group in zip(pairs, groups, strict=True))


@given(st.lists(st.tuples(st.text("ab", max_size=20), st.integers(0, 3)), max_size=20), st.booleans())
def test_texts_of_a_group_are_compared_in_full(pairs: list[tuple[str, int]], is_long: bool) -> None:
    texts = [text.encode() for text, _ in pairs]
    groups = [group for _, group in pairs]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64 if is_long else np.int32)
    firsts = [groups.index(group) for group in numbers]
    found = kernels.equal_texts(
        read_only(offsets),
        read_only(np.frombuffer(b"".join(texts), np.uint8)),
        np.array([numbers[group] for group in groups], np.uint32),
        np.array(firsts, np.uint32),
        0,
        len(pairs),
    )
    assert found == all(text == texts[groups.index(group)] for text, group in zip(texts, groups, strict=True))
