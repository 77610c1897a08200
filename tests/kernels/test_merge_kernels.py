"""Kernels of merging against numpy and plain Python."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from merlot.kernels import merge as kernels
from merlot.kernels import radix

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

U64 = st.integers(0, 2**64 - 1)


def words(values: list[int]) -> NDArray[np.uint64]:
    return np.array(values, np.uint64)


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=12), st.data())
def test_lists_are_taken_whole(lists: list[list[int]], data: Any) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1)))
    flat = np.array([one for part in lists for one in part], np.int64)
    offsets = np.cumsum([0, *map(len, lists)])
    expected = [lists[row] for row in rows]
    ends = np.cumsum([0, *map(len, expected)]).astype(np.int64)
    out = np.zeros(int(ends[-1]), np.int64)
    kernels.take_lists(flat, offsets, np.array(rows, np.uint32), ends, out)
    assert out.tolist() == [one for part in expected for one in part]


def side_by_side(buffers: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Parts as kernels take them, and where each starts."""
    starts = np.cumsum([0, *map(len, buffers)])[:-1].astype(np.int64)
    return np.frombuffer(b"".join(buffers) + bytes(16), np.uint8), starts


def packed(values: list[int], width: int) -> bytes:
    """By arithmetic of long integers."""
    stream = sum(value << width * place for place, value in enumerate(values))
    return stream.to_bytes(-(-len(values) * width // 8), "little")


def places(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


NUMBERS_OF_A_WIDTH = st.integers(0, 64).flatmap(
    lambda width: st.tuples(st.just(width), st.lists(st.integers(0, (1 << width) - 1), max_size=9))
)


@given(st.lists(st.tuples(NUMBERS_OF_A_WIDTH, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=5))
def test_parts_are_unpacked_each_by_its_width_and_base(parts: list[tuple[tuple[int, list[int]], int]]) -> None:
    data, starts = side_by_side([packed(values, width) for (width, values), _ in parts])
    widths, bases = places([width for (width, _), _ in parts]), places([base for _, base in parts])
    ends = np.cumsum([0, *(len(values) for (_, values), _ in parts)]).astype(np.int64)
    for dtype in (np.uint8, np.int32, np.int64):
        out = np.zeros(int(ends[-1]), dtype)
        kernels.unpack_parts(data, starts, widths, bases, ends, out)
        expected = [(value + base) % 2**64 for (_, values), base in parts for value in values]
        assert np.array_equal(out, words(expected).astype(dtype))


@st.composite
def id_parts(draw: Any) -> tuple[int, list[int], bool]:
    """How many entries a part has, its ids, some maybe beyond them, and whether they are stored as runs."""
    entries = draw(st.integers(1, 5))
    if draw(st.booleans()):
        return entries, sorted(draw(st.lists(st.integers(0, entries - 1), min_size=1, max_size=8))), True
    return entries, draw(st.lists(st.integers(0, draw(st.sampled_from([entries - 1, 7]))), min_size=1)), False


@given(st.lists(id_parts(), min_size=1, max_size=5), st.sampled_from([np.uint8, np.uint16, np.uint32]))
def test_ids_of_parts_become_those_of_one_dictionary(parts: list[tuple[int, list[int], bool]], dtype: Any) -> None:
    buffers = []
    for entries, ids, is_runs in parts:
        runs = np.searchsorted(ids, range(entries + 1)).astype("<u4")
        buffers.append(runs.tobytes() if is_runs else packed(ids, 3))
    firsts = np.cumsum([0, *(entries for entries, _, _ in parts)]).astype(np.int64)
    ends = np.cumsum([0, *(len(ids) for _, ids, _ in parts)]).astype(np.int64)
    table = (np.arange(int(firsts[-1])) * 7 % 23).astype(dtype)
    table.flags.writeable = False
    data, starts = side_by_side(buffers)
    out = np.zeros(int(ends[-1]), dtype)
    widths = places([-1 if is_runs else 3 for _, _, is_runs in parts])
    is_right = kernels.map_parts(data, starts, widths, ends, firsts, table, out)
    assert is_right == all(max(ids) < entries for entries, ids, _ in parts)
    if is_right:
        expected = [table[first + one] for first, (_, ids, _) in zip(firsts, parts, strict=False) for one in ids]
        assert out.tolist() == expected


@given(st.lists(st.integers(0, 6), min_size=2, max_size=6))
def test_runs_that_are_not_of_all_rows_are_none(starts: list[int]) -> None:
    data, places_of = side_by_side([np.array(starts, "<u4").tobytes()])
    out, table = np.zeros(5, np.uint8), np.zeros(len(starts) - 1, np.uint8)
    table.flags.writeable = False
    firsts = places([0, len(starts) - 1])
    is_right = kernels.map_parts(data, places_of, places([-1]), places([0, 5]), firsts, table, out)
    assert is_right == (starts[0] == 0 and starts[-1] == 5 and starts == sorted(starts))


@given(st.lists(U64 | st.integers(0, 5000), max_size=60), st.sampled_from([0, 11, 55]))
def test_a_radix_pass_is_a_stable_sort_by_one_digit(values: list[int], shift: int) -> None:
    keys, rows = words(values), np.arange(len(values), dtype=np.uint32)
    counts = np.zeros(radix.RADIX, np.int64)
    radix.count_digits(keys, shift, counts)
    out_keys, out_rows = np.zeros_like(keys), np.zeros_like(rows)
    radix.scatter_digits(keys, rows, shift, counts, out_keys, out_rows)
    digits = [(value >> shift) & (radix.RADIX - 1) for value in values]
    order = sorted(range(len(values)), key=digits.__getitem__)
    assert out_rows.tolist() == order
    assert out_keys.tolist() == [values[place] for place in order]


@given(st.lists(U64 | st.integers(0, 9), max_size=60))
def test_radix_sort_is_stable_and_ranks_are_those_of_distinct_keys(values: list[int]) -> None:
    given_keys, given_rows = words(values), np.arange(len(values), dtype=np.uint32)
    keys, rows = radix.sort(given_keys, given_rows, max(values, default=0) + 1)
    assert rows.tolist() == sorted(range(len(values)), key=values.__getitem__)
    assert keys.tolist() == sorted(values)
    assert given_keys.tolist() == values
    distinct = sorted(set(values))
    ids = np.zeros(len(values), np.uint8)
    assert radix.rank_sorted(keys, rows, ids) == len(distinct)
    assert ids.tolist() == [distinct.index(value) for value in values]


@given(st.lists(U64, max_size=20))
def test_numbers_hash_as_by_the_finalizer_of_murmur(values: list[int]) -> None:
    out = np.zeros(len(values), np.uint64)
    kernels.hash_numbers(words(values), out)
    mask = 2**64 - 1

    def twin(mixed: int) -> int:
        mixed = (mixed ^ mixed >> 33) * 0xFF51AFD7ED558CCD & mask
        mixed = (mixed ^ mixed >> 33) * 0xC4CEB9FE1A85EC53 & mask
        return mixed ^ mixed >> 33

    assert out.tolist() == [twin(value) for value in values]


MIX = 0x9E3779B97F4A7C15


@given(st.lists(st.binary(max_size=9), max_size=10))
def test_bytes_hash_as_by_fnv(values: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int64)
    out = np.zeros(len(values), np.uint64)
    kernels.hash_bytes(offsets, np.frombuffer(b"".join(values), np.uint8), out)

    def twin(value: bytes) -> int:
        mixed = 0xCBF29CE484222325
        for one in value:
            mixed = (mixed ^ one) * 0x100000001B3 % 2**64
        return (mixed ^ mixed >> 32) * MIX % 2**64

    assert out.tolist() == [twin(value) for value in values]


@given(st.lists(st.lists(U64, max_size=3), max_size=8), U64)
def test_hashes_of_lists_depend_on_order_and_add_up(lists: list[list[int]], seed: int) -> None:
    flat = words([one for part in lists for one in part])
    out = np.zeros(len(lists), np.uint64)
    kernels.hash_lists(flat, np.cumsum([0, *map(len, lists)]).astype(np.int64), out)

    def add(mixed: int, one: int) -> int:
        mixed = (mixed ^ one) * MIX % 2**64
        return mixed ^ mixed >> 32

    expected = []
    for part in lists:
        mixed = len(part)
        for one in part:
            mixed = add(mixed, one)
        expected.append(mixed)
    assert out.tolist() == expected
    total = np.full(len(lists), seed, np.uint64)
    kernels.add_hashes(out, total)
    assert total.tolist() == [add(seed, one) for one in expected]
