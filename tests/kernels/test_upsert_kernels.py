"""The index of primary keys against a dict, its bits against sets, and the largest value before each row."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from merlot.kernels import upsert as kernels
from merlot.kernels.hashing import hash_spans_twice, mix_pairs, xxh64
from merlot.kernels.jit import read_only

Longs = NDArray[np.int64]
I64 = st.integers(-(2**63), 2**63 - 1)
# Words whose upper halves are alike have neighbouring homes.
WORDS = st.one_of(I64, st.integers(-3, 3).map(lambda high: high << 33), st.integers(0, 5))
KEYS = st.tuples(WORDS, st.integers(-2, 2))
CAPACITY = 8


def longs(values: list[int]) -> Longs:
    return np.array(values, np.int64)


def fresh(capacity: int, spare: int = 60) -> Longs:
    return np.zeros((capacity + spare, 4), np.int64)


def entries_of(table: Longs) -> dict[tuple[int, int], tuple[int, int]]:
    held = table[table[:, kernels.PLACE] != 0].tolist()
    assert [entry[:2] for entry in held] == sorted(entry[:2] for entry in held), "entries ascend"
    return {(high, low): (place, value) for high, low, place, value in held}


def enter(table: Longs, keys: list[tuple[int, int]], values: list[int], *, limit: int = 60) -> tuple[Longs, Longs, int]:
    none = np.full(len(keys), kernels.NULL)
    verdicts, replaced, used = np.zeros(len(keys), np.uint8), np.zeros(len(keys), np.int64), longs([0, limit])
    stopped = kernels.upsert(
        np.arange(len(keys)),
        0,
        longs([key[0] for key in keys]),
        longs([key[1] for key in keys]),
        longs(values).reshape(-1, 1),
        kernels.PRESENT | np.arange(len(keys)),
        none,
        none,
        table,
        CAPACITY,
        used,
        verdicts,
        replaced,
    )
    return verdicts, replaced, stopped


@given(st.lists(st.tuples(KEYS, st.integers(0, 3)), max_size=50))
def test_the_newest_row_of_each_key_is_in_the_table(rows: list[tuple[tuple[int, int], int]]) -> None:
    table = fresh(CAPACITY)
    verdicts, replaced, stopped = enter(table, [key for key, _ in rows], [value for _, value in rows])
    assert stopped == len(rows)
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    for row, (key, value) in enumerate(rows):
        before = newest.get(key)
        if before is not None and value < before[1]:
            assert verdicts[row] == kernels.OLDER
            continue
        assert (verdicts[row], replaced[row]) == ((kernels.REPLACES, before[0]) if before else (kernels.NEW, 0))
        newest[key] = kernels.PRESENT | row, value
    assert entries_of(table) == newest


@given(st.lists(KEYS, unique=True, min_size=1, max_size=40), st.data())
def test_a_table_that_was_built_anew_holds_what_is_alive_and_each_key_is_found(
    keys: list[tuple[int, int]], data: st.DataObject
) -> None:
    values = [place % 7 for place in range(len(keys))]
    table = fresh(CAPACITY)
    enter(table, keys, values)
    capacity = data.draw(st.integers(1, 100))
    other = fresh(capacity, 50)
    alive_from = data.draw(st.integers(0, 7))
    alive = {key: value for key, value in zip(keys, values, strict=True) if value >= alive_from}
    assert kernels.count_alive(alive_from, kernels.NULL, table) == len(alive)
    assert kernels.rebuild(table, alive_from, kernels.NULL, capacity, other) == len(alive)
    assert {key: value for key, (_, value) in entries_of(other).items()} == alive
    # Promotion finds every key where its home says, and leaves nothing behind.
    moved, used = fresh(CAPACITY), longs([0, 60])
    high, low = longs([key[0] for key in keys]), longs([key[1] for key in keys])
    left = longs([len(alive), 0])
    rows = np.arange(len(keys))
    assert kernels.promote(rows, 0, high, low, other, capacity, left, moved, CAPACITY, used) == len(keys)
    assert (left[0], used[0], not other[:, kernels.PLACE].any()) == (0, len(alive), True)
    assert {key: value for key, (_, value) in entries_of(moved).items()} == alive


@given(st.lists(KEYS, unique=True, max_size=20), st.lists(KEYS, unique=True, max_size=20))
def test_keys_are_found_with_their_values(keys: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    table = fresh(CAPACITY)
    enter(table, keys, [place % 7 for place in range(len(keys))])
    asked = [*keys, *others]
    high, low = longs([key[0] for key in asked]), longs([key[1] for key in asked])
    is_there, values = np.zeros(len(asked), np.bool_), np.full(len(asked), kernels.NULL)
    kernels.find(np.arange(len(asked)), high, low, table, CAPACITY, is_there, values)
    known = {key: place % 7 for place, key in enumerate(keys)}
    assert is_there.tolist() == [key in known for key in asked]
    assert values.tolist() == [known.get(key, kernels.NULL) for key in asked]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 30)), max_size=30),
    st.integers(-1, 10),
    st.integers(0, 10),
    st.booleans(),
)
def test_first_rows_are_kept_and_raise_the_largest(
    rows: list[tuple[int, int, int]], to_live: int, floor: int, skips_late: bool
) -> None:
    keys, values, limits = (longs([row[place] for row in rows]) for place in range(3))
    kept, late = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    there, newest = np.array([True, False, False, False]), longs([5, 0, 0, 0])
    largest = kernels.keep_first(
        keys, values, limits, there, newest, kernels.NULL, to_live, floor, skips_late, kept, late
    )
    known, most, expected = {0: 5}, kernels.NULL, []
    for key, value, limit in rows:
        dead = floor if to_live < 0 or most == kernels.NULL else max(floor, most - to_live)
        expected.append((not (key in known and known[key] >= dead) and not (value < dead and skips_late), value < dead))
        if expected[-1][0]:
            known[key] = max(value, known.get(key, value))
            most = value if most < value <= limit else most
    assert [*zip(kept.tolist(), late.tolist(), strict=True)] == expected
    assert largest == most


def test_a_full_table_says_where_it_stopped() -> None:
    keys = [(place << 40, 0) for place in range(6)]
    assert enter(fresh(CAPACITY), keys, [0] * 6, limit=4)[2] == 4
    assert enter(fresh(CAPACITY, 2), [(2**63 - 1, low) for low in range(6)], [0] * 6)[2] == 2
    assert kernels.rebuild(_filled(6), kernels.NULL, kernels.NULL, 1, fresh(1, 4)) == -1


def _filled(number: int) -> Longs:
    table = fresh(CAPACITY)
    enter(table, [(place, 0) for place in range(number)], [0] * number)
    return table


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), unique=True, max_size=20))
def test_entries_move_with_the_docs_of_their_segments(places: list[tuple[int, int]]) -> None:
    table = fresh(CAPACITY)
    enter(table, [(number, 0) for number in range(len(places))], [0] * len(places))
    high = np.arange(len(places))
    at = longs([kernels.PRESENT | segment << 32 | doc for segment, doc in places])
    kernels.renumber(high, high, np.zeros_like(high), at, table, CAPACITY)
    # Segment 1 loses its even docs, segment 2 is gone, all go to 9.
    docs = longs([-1, 10, -1, 11, -1, 12])
    moved = kernels.relocate(longs([1, 2]), longs([0, 6, 6]), docs, 9, table)
    expected = {}
    for key, (segment, doc) in enumerate(places):
        if segment == 1 and doc % 2:
            expected[key, 0] = kernels.PRESENT | 9 << 32 | int(docs[doc])
        elif segment not in (1, 2):
            expected[key, 0] = int(at[key])
    assert moved == sum(segment == 1 and doc % 2 for segment, doc in places)
    kept = fresh(CAPACITY)
    assert kernels.rebuild(table, kernels.NULL, kernels.NULL, CAPACITY, kept) == len(expected)
    assert {key: place for key, (place, _) in entries_of(kept).items()} == expected


@given(st.lists(st.tuples(I64, I64), max_size=30), I64)
def test_the_largest_value_before_a_row_leaves_out_what_is_beyond_its_limit(
    rows: list[tuple[int, int]], largest: int
) -> None:
    before = np.zeros(len(rows), np.int64)
    values, limits = longs([value for value, _ in rows]), longs([limit for _, limit in rows])
    last = kernels.largest_before(values, limits, largest, before)
    counted = [largest, *(value if value <= limit else largest for value, limit in rows)]
    expected = np.maximum.accumulate(longs(counted))
    assert ([*before.tolist(), last]) == expected.tolist()


@given(st.lists(st.integers(0, 199), max_size=60), st.lists(st.integers(0, 199), max_size=60))
def test_bits_are_set_and_cleared_and_counted(docs: list[int], cleared: list[int]) -> None:
    words = np.zeros(4, np.uint64)
    assert kernels.set_bits(longs(docs), words) == len(set(docs))
    assert kernels.clear_bits(longs(cleared), words) == len(set(docs) & set(cleared))
    held = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
    assert held == sorted(set(docs) - set(cleared))


@given(st.lists(st.binary(max_size=70), max_size=8))
def test_keys_have_two_hashes(texts: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, texts)])
    high, low = np.zeros(len(texts), np.uint64), np.zeros(len(texts), np.uint64)
    seeds = np.array([1 << 63, 0x165667B19E3779F9], np.uint64)
    hash_spans_twice(read_only(np.frombuffer(b"".join(texts), np.uint8)), read_only(offsets), seeds, high, low)
    for found, seed in ((high, seeds[0]), (low, seeds[1])):
        assert found.tolist() == [xxh64(text, int(seed)) for text in texts]


MASK = (1 << 64) - 1


def avalanche(word: int) -> int:
    word = (word ^ word >> 33) * 0xC2B2AE3D27D4EB4F & MASK
    word = (word ^ word >> 29) * 0x165667B19E3779F9 & MASK
    return word ^ word >> 32


def unmixed(left: int, right: int) -> tuple[int, int]:
    for salt in (0x27D4EB2F165667C5, 0x85EBCA77C2B2AE63, 0x165667B19E3779F9, 0x9E3779B185EBCA87):
        left, right = right ^ avalanche((left + salt) & MASK), left
    return left, right


@given(st.lists(st.tuples(st.integers(0, MASK), st.integers(0, MASK)), max_size=8))
def test_mixed_pairs_can_be_told_apart_because_they_can_be_unmixed(pairs: list[tuple[int, int]]) -> None:
    high, low = (np.array([pair[place] for pair in pairs], np.uint64) for place in (0, 1))
    mix_pairs(high, low)
    assert [unmixed(*pair) for pair in zip(high.tolist(), low.tolist(), strict=True)] == pairs
