"""Scans against their numpy twins."""

from itertools import pairwise

import numpy as np
import pytest

from merlot.kernels import scan

SIZES = [1, 63, 64, 65, 1000, scan.BLOCK_DOCS, scan.BLOCK_DOCS + 37]
DTYPES = [np.uint8, np.uint16, np.uint32, np.int32, np.int64, np.float32, np.float64]

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")
"""Wrapping is meant; plain numpy scalars, under NUMBA_DISABLE_JIT=1, warn of it."""


def to_words(matches):
    words = np.zeros((len(matches) + 63) // 64, np.uint64)
    words.view(np.uint8)[: (len(matches) + 7) // 8] = np.packbits(matches, bitorder="little")
    return words


def combined(mode, before, matches):
    return {scan.SET: matches, scan.AND: before & matches, scan.OR: before | matches}[mode]


@pytest.fixture
def random():
    return np.random.default_rng(7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", [scan.SET, scan.AND, scan.OR])
def test_a_range_scan_is_two_comparisons(dtype, mode, random):
    mask = np.empty(scan.BLOCK_DOCS, np.uint8)
    for size in SIZES:
        column = random.integers(0, 100, size).astype(dtype)
        before = random.random(size) < 0.5
        for negate in (False, True):
            words = to_words(before)
            scan.scan_range(column, dtype(20), dtype(60), mode, negate, mask, words)
            matches = ((column >= 20) & (column <= 60)) != negate
            np.testing.assert_array_equal(words, to_words(combined(mode, before, matches)))


def test_nan_is_in_no_range_and_so_in_every_complement():
    column = np.array([1.0, np.nan, 3.0])
    words, mask = np.zeros(1, np.uint64), np.empty(64, np.uint8)
    scan.scan_range(column, 0.0, 2.0, scan.SET, False, mask, words)
    assert words[0] == 0b001
    scan.scan_range(column, 0.0, 2.0, scan.SET, True, mask, words)
    assert words[0] == 0b110


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_a_table_scan_is_a_lookup(dtype, random):
    mask = np.empty(scan.BLOCK_DOCS, np.uint8)
    table = (random.random(100) < 0.3).astype(np.uint8)
    for size in SIZES:
        ids = random.integers(0, 100, size).astype(dtype)
        for negate in (False, True):
            words = to_words(np.ones(size, bool))
            scan.scan_table(ids, table, scan.AND, negate, mask, words)
            np.testing.assert_array_equal(words, to_words((table[ids] == 1) != negate))


@pytest.mark.parametrize("negate", [False, True])
def test_refining_equals_scanning_with_and(negate, random):
    for size in SIZES:
        ids = random.integers(0, 100, size).astype(np.uint16)
        before = random.random(size) < 0.02
        table = (random.random(100) < 0.3).astype(np.uint8)
        by_range, by_table = to_words(before), to_words(before)
        scan.refine_range(ids, np.uint16(20), np.uint16(60), negate, by_range)
        scan.refine_table(ids, table, negate, by_table)
        np.testing.assert_array_equal(by_range, to_words(before & (((ids >= 20) & (ids <= 60)) != negate)))
        np.testing.assert_array_equal(by_table, to_words(before & ((table[ids] == 1) != negate)))


@pytest.mark.parametrize("mode", [scan.SET, scan.AND, scan.OR])
def test_packing_a_mask_is_packbits(mode, random):
    for size in SIZES:
        before, matches = random.random(size) < 0.5, random.random(size) < 0.5
        words = to_words(before)
        scan.pack_mask(matches.view(np.uint8), mode, words)
        np.testing.assert_array_equal(words, to_words(combined(mode, before, matches)))


def test_any_value_ors_the_values_of_a_doc(random):
    lengths = random.integers(0, 4, 500)
    offsets = (np.concatenate([[0], np.cumsum(lengths)]) + 11).astype(np.uint32)
    matches = (random.random(lengths.sum()) < 0.3).astype(np.uint8)
    mask = np.empty(500, np.uint8)
    scan.any_value(matches, offsets, mask)
    bounds = offsets.astype(int) - 11
    expected = [matches[first:last].any() for first, last in pairwise(bounds)]
    np.testing.assert_array_equal(mask, np.array(expected, np.uint8))


def test_words_list_count_and_set_the_same_docs(random):
    for size in SIZES:
        matches = random.random(size) < 0.2
        docs = np.flatnonzero(matches).astype(np.uint32)
        words = np.zeros((size + 63) // 64, np.uint64)
        scan.set_docs(np.concatenate([docs + np.uint32(64), np.array([3], np.uint32)]), 64, size, words)
        np.testing.assert_array_equal(words, to_words(matches))
        assert scan.count_words(words) == len(docs)
        listed = np.empty(len(docs), np.uint32)
        assert scan.list_docs(words, 64, listed) == len(docs)
        np.testing.assert_array_equal(listed, docs + 64)


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0), (0, 64), (3, 5), (3, 64), (60, 70), (64, 200), (1, 255), (130, 256)]
)
def test_a_span_sets_exactly_its_bits(first, last):
    words = np.zeros(4, np.uint64)
    scan.set_span(first, last, words)
    expected = np.zeros(256, bool)
    expected[first:last] = True
    np.testing.assert_array_equal(words, to_words(expected))
