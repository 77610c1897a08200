"""Each packing kernel against its numpy twin."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from merlot.kernels import bits

WIDTHS = st.integers(1, 63)


def random_values(width: int, count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 1 << width, count, dtype=np.int64)


def packed_by_numpy(values: NDArray[np.int64], width: int) -> NDArray[np.uint64]:
    """The words of FORMAT.md §4.1, one bit at a time."""
    each = (values[:, None] >> np.arange(width)) & 1
    stream = np.packbits(each.astype(np.uint8).ravel(), bitorder="little")
    words = np.zeros(bits.packed_words(len(values), width), dtype=np.uint64)
    words.view(np.uint8)[: len(stream)] = stream
    return words


@given(width=WIDTHS, count=st.integers(0, 200), seed=st.integers(0, 99), base=st.integers(-(2**40), 2**40))
@settings(deadline=None)
def test_pack_writes_the_bits_that_numpy_writes(width: int, count: int, seed: int, base: int) -> None:
    base = base if width < 62 else 0
    values = random_values(width, count, seed)
    words = np.zeros(bits.packed_words(count, width), dtype=np.uint64)
    bits.pack(values + base, base, width, words)
    assert np.array_equal(words, packed_by_numpy(values, width))


@given(width=WIDTHS, count=st.integers(1, 200), seed=st.integers(0, 99), base=st.integers(-(2**40), 2**40))
@settings(deadline=None)
def test_unpack_and_unpack_at_read_what_numpy_packed(width: int, count: int, seed: int, base: int) -> None:
    base = base if width < 62 else 0
    values = random_values(width, count, seed)
    words = packed_by_numpy(values, width)
    start = seed % count
    out = np.empty(count - start, dtype=np.int64)
    bits.unpack(words, width, start, base, out)
    assert np.array_equal(out, values[start:] + base)
    docs = np.random.default_rng(seed).integers(0, count, 20).astype(np.uint32)
    taken = np.empty(20, dtype=np.int64)
    bits.unpack_at(words, width, docs, base, taken)
    assert np.array_equal(taken, values[docs] + base)


@pytest.mark.parametrize(("dtype", "width"), [(np.uint8, 8), (np.uint16, 16), (np.uint32, 32), (np.int32, 31)])
def test_narrow_types_keep_their_largest_value(dtype: type, width: int) -> None:
    values = np.array([0, (1 << width) - 1, 1, (1 << width) - 1], dtype=dtype)
    words = np.zeros(bits.packed_words(4, width), dtype=np.uint64)
    bits.pack(values, 0, width, words)
    out = np.empty(4, dtype=dtype)
    bits.unpack(words, width, 0, 0, out)
    assert np.array_equal(out, values)


def test_negative_numbers_pack_from_their_minimum() -> None:
    values = np.array([-(2**31), 2**31 - 1, 0], dtype=np.int32)
    words = np.zeros(bits.packed_words(3, 32), dtype=np.uint64)
    bits.pack(values, -(2**31), 32, words)
    out = np.empty(3, dtype=np.int32)
    bits.unpack(words, 32, 0, -(2**31), out)
    assert np.array_equal(out, values)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20))
@settings(deadline=None)
def test_runs_are_numpys_repeat_and_back(lengths: list[int]) -> None:
    ids = np.repeat(np.arange(len(lengths)), lengths).astype(np.uint8)
    starts = np.zeros(len(lengths) + 1, dtype=np.uint32)
    bits.run_starts_of(ids, starts)
    assert starts.tolist() == [0, *np.cumsum(lengths).tolist()]
    out = np.empty(len(ids), dtype=np.uint8)
    bits.expand_runs(starts, out)
    assert np.array_equal(out, ids)


@given(st.lists(st.integers(-50, 50), max_size=40))
@settings(deadline=None)
def test_sortedness_and_bounds_are_numpys(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=np.int32)
    assert bits.is_sorted(values) == bool((np.diff(values) >= 0).all())
    if numbers:
        out = np.empty(2, dtype=np.int32)
        bits.min_max(values, out)
        assert out.tolist() == [values.min(), values.max()]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=40))
@settings(deadline=None)
def test_ranks_by_marks_are_numpys_unique(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=np.int64)
    low = int(values.min())
    slots = np.zeros(int(values.max()) - low + 1, dtype=np.uint32)
    bits.mark_present(values, low, slots)
    cardinality = bits.rank_present(slots)
    ids = np.empty(len(values), dtype=np.uint8)
    bits.lookup_ranks(values, low, slots, ids)
    distinct, inverse = np.unique(values, return_inverse=True)
    assert cardinality == len(distinct)
    assert np.array_equal(ids, inverse)
    assert np.array_equal(np.flatnonzero(slots) + low, distinct)


def test_gather_is_numpys_take() -> None:
    table = np.array([5, 7, 9], dtype=np.uint8)
    ids = np.array([2, 0, 2, 1], dtype=np.int32)
    out = np.empty(4, dtype=np.uint8)
    bits.gather(table, ids, out)
    assert np.array_equal(out, table[ids])


@given(st.lists(st.integers(0, 6), max_size=60))
@settings(deadline=None)
def test_docs_by_group_are_a_stable_argsort(numbers: list[int]) -> None:
    ids = np.array(numbers, dtype=np.uint8)
    starts = np.zeros(8, dtype=np.uint32)
    docs = np.empty(len(ids), dtype=np.uint32)
    bits.group_docs(ids, starts, docs)
    assert np.array_equal(docs, np.argsort(ids, kind="stable"))
    assert starts.tolist() == [0, *np.cumsum(np.bincount(ids, minlength=7)).tolist()]


def test_block_bounds_are_numpys_reduceat() -> None:
    values = np.random.default_rng(1).integers(-99, 99, 50).astype(np.int32)
    starts = np.array([0, 7, 8, 30, 50])
    lows, highs = np.empty(4, np.int32), np.empty(4, np.int32)
    bits.block_min_max(values, starts, lows, highs)
    assert np.array_equal(lows, np.minimum.reduceat(values, starts[:-1]))
    assert np.array_equal(highs, np.maximum.reduceat(values, starts[:-1]))


def test_bit_counts_are_numpys() -> None:
    words = np.random.default_rng(2).integers(0, 2**64 - 1, 11, dtype=np.uint64)
    out = np.zeros(3, dtype=np.uint32)
    bits.count_bits(words, 4, out)
    counts = np.bitwise_count(words).astype(int)
    assert out.tolist() == [counts[:4].sum(), counts[4:8].sum(), counts[8:].sum()]
