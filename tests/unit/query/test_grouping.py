"""Groups of wide keys, of several values to a row, of floats that are equal; and how many there may be."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.aggregates import listed
from merlot.query.context import ExecutionLimits
from merlot.query.operators.grouping import encoded
from merlot.spec.indexing import IndexingSpec
from merlot.vectors.errors import LimitExceededError
from merlot.vectors.groups import GroupTable, KeyWords, Packing, group

NUM_KEYS = 6
FIELDS = [
    *({"name": f"n{number}", "type": "LONG"} for number in range(NUM_KEYS)),
    {"name": "s", "type": "STRING"},
    {"name": "d", "type": "DOUBLE"},
]
NAMES = [field["name"] for field in FIELDS]
RAW = IndexingSpec(no_dictionary=tuple(NAMES))


def wide_rows(number, *, distinct):
    """Rows of which `distinct` differ, each in every column."""
    random = np.random.default_rng(3)
    which = random.integers(0, distinct, number)
    numbers = random.integers(-(2**63), 2**63 - 1, (NUM_KEYS, distinct))
    columns = {f"n{place}": numbers[place][which] for place in range(NUM_KEYS)}
    return pa.table({**columns, "s": [f"s{one}" for one in which], "d": which / 7})


@pytest.mark.parametrize("indexing", [None, RAW], ids=["dictionary", "raw"])
@pytest.mark.parametrize("cuts", [[0, 3000], [0, 1, 700, 1500, 3000]])
def test_combinations_past_64_bits_group_exactly(make_table, indexing, cuts):
    data = wide_rows(3000, distinct=1700)
    table = make_table(FIELDS, *(data.slice(a, b - a) for a, b in itertools.pairwise(cuts)), indexing=indexing)
    expected = Counter(tuple(row.values()) for row in data.to_pylist())
    keys = ", ".join(NAMES)
    got = table.query(f"SELECT {keys}, COUNT(*) FROM t GROUP BY {keys} LIMIT 10000")
    assert {tuple(row[:-1]): row[-1] for row in got} == expected
    assert len(got) == len(expected)
    assert len(table.query(f"SELECT DISTINCT {keys} FROM t LIMIT 10000")) == len(expected)


def test_only_groups_that_there_are_count_against_the_limit(make_table):
    data = wide_rows(3000, distinct=150)
    table = make_table(FIELDS, data.slice(0, 1000), data.slice(1000))
    keys = ", ".join(NAMES)
    for limit, is_enough in ((150, True), (149, False)):
        tight = replace(table, context=replace(table.context, limits=ExecutionLimits(max_groups=limit)))
        if is_enough:
            assert len(tight.query(f"SELECT DISTINCT {keys} FROM t LIMIT 1000")) == 150
        else:
            with pytest.raises(LimitExceededError, match="too many groups"):
                tight.query(f"SELECT DISTINCT {keys} FROM t LIMIT 1000")


LISTS = [
    {"name": "k", "type": "LONG"},
    {"name": "a", "type": "STRING", "multiValue": True},
    {"name": "b", "type": "LONG", "multiValue": True},
    {"name": "c", "type": "DOUBLE", "multiValue": True},
]


@pytest.mark.parametrize("indexing", [None, IndexingSpec(no_dictionary=("a", "b", "c"))], ids=["dictionary", "raw"])
def test_every_combination_of_the_values_of_a_row_is_a_row_wherever_blocks_end(make_table, monkeypatch, indexing):
    monkeypatch.setattr(encoded, "HASH_CHUNK_DOCS", 7)
    random = np.random.default_rng(5)
    rows = [
        {
            "k": int(random.integers(0, 4)) << 60,
            "a": [f"x{one}" for one in random.integers(0, 3, random.integers(1, 5))],
            "b": random.integers(-(2**62), 2**62, random.integers(1, 4)).tolist(),
            "c": (random.integers(0, 4, random.integers(1, 4)) / 2).tolist(),
        }
        for _ in range(40)
    ]
    table = make_table(LISTS, rows[:11], rows[11:], indexing=indexing)
    expected = Counter(
        (row["k"], *values) for row in rows for values in itertools.product(row["a"], row["b"], row["c"])
    )
    got = table.query("SELECT k, a, b, c, COUNT(*) FROM t GROUP BY k, a, b, c LIMIT 100000")
    assert {tuple(row[:-1]): row[-1] for row in got} == expected


def test_combinations_that_nobody_could_count_are_refused_before_they_are_made(make_table, monkeypatch):
    monkeypatch.setattr(encoded, "MAX_COMBINATIONS", 50)
    rows = [{"k": 1, "a": ["x", "y", "z"], "b": [1, 2, 3, 4], "c": [1.0, 2.0, 3.0, 4.0, 5.0]}]
    table = make_table(LISTS, rows)
    assert len(table.query("SELECT a, b FROM t GROUP BY a, b LIMIT 100")) == 12
    with pytest.raises(LimitExceededError, match="too many combinations"):
        table.query("SELECT a, b, c FROM t GROUP BY a, b, c LIMIT 100")


FLOATS = [{"name": "k", "type": "INT"}, {"name": "d", "type": "DOUBLE"}, {"name": "f", "type": "FLOAT"}]
ODD_NAN = float(np.uint64(0xFFF8000000000001).view(np.float64))
ZEROS = [-0.0, 0.0, math.nan, ODD_NAN, -0.0]


@pytest.mark.parametrize("indexing", [None, IndexingSpec(no_dictionary=("d", "f"))], ids=["dictionary", "raw"])
@pytest.mark.parametrize("cuts", [[0, 5], [0, 1, 5], [0, 1, 2, 3, 4, 5]])
@pytest.mark.parametrize("name", ["d", "f"])
def test_equal_floats_are_one_group_and_one_value_wherever_they_lie(make_table, indexing, cuts, name):
    rows = [{"k": place, "d": value, "f": value} for place, value in enumerate(ZEROS)]
    table = make_table(FLOATS, *(rows[a:b] for a, b in itertools.pairwise(cuts)), indexing=indexing)
    groups = table.query(f"SELECT {name}, COUNT(*) FROM t GROUP BY {name} ORDER BY {name}")
    assert [[str(value), number] for value, number in groups] == [["0.0", 3], ["NaN", 2]]
    assert len(table.query(f"SELECT DISTINCT {name}, {name} * 1 FROM t")) == 2
    assert table.query(f"SELECT DISTINCTCOUNT({name}) FROM t") == [[2]]
    assert sorted(row[0] for row in table.query(f"SELECT DISTINCTCOUNT({name}) FROM t GROUP BY k LIMIT 9")) == [1] * 5
    low, high = table.query(f"SELECT MIN({name}), MAX({name}) FROM t WHERE {name} = 0")[0]
    assert (str(low), str(high)) == ("0.0", "0.0")


@pytest.mark.parametrize("cuts", [[0, 5], [0, 1, 2, 3, 4, 5]])
def test_a_row_shows_the_zero_that_was_stored(make_table, cuts):
    rows = [{"k": place, "d": value, "f": value} for place, value in enumerate(ZEROS)]
    table = make_table(FLOATS, *(rows[a:b] for a, b in itertools.pairwise(cuts)))
    got = table.query("SELECT d, f, CAST(d AS STRING) FROM t ORDER BY k")
    assert [str(row[0]) for row in got] == ["-0.0", "0.0", "NaN", "NaN", "-0.0"]
    assert [str(row[1]) for row in got] == ["-0.0", "0.0", "NaN", "NaN", "-0.0"]
    assert [row[2] for row in got][:2] == ["-0.0", "0.0"]


CARDINALITIES = st.lists(st.sampled_from([1, 2, 3, 1000, 1 << 31, 1 << 32, 1 << 62, 1 << 63, 1 << 64]), max_size=7)


@given(CARDINALITIES, st.data())
def test_packed_codes_come_apart_as_they_went_in(cardinalities, data):
    rows = data.draw(st.lists(st.tuples(*(st.integers(0, one - 1) for one in cardinalities)), max_size=6))
    packing = Packing(cardinalities)
    words = np.zeros((packing.width, len(rows)), np.uint64)
    for place, (word, radix) in enumerate(packing.places):
        codes = np.array([row[place] for row in rows], np.uint64)
        words[word] = words[word] * np.uint64(radix) + codes
    codes = packing.codes(words.T)
    assert [tuple(int(one[row]) for one in codes) for row in range(len(rows))] == rows


@given(CARDINALITIES, st.data())
def test_rows_are_one_group_exactly_if_all_their_codes_agree(cardinalities, data):
    rows = data.draw(st.lists(st.tuples(*(st.integers(0, one - 1) for one in cardinalities)), max_size=12))
    keys = KeyWords(len(rows))
    for place, cardinality in enumerate(cardinalities):
        keys.add(np.array([row[place] for row in rows], np.uint64), cardinality)
    found = group(keys)
    first = {}
    assert found.of_rows.tolist() == [first.setdefault(row, len(first)) for row in rows]
    assert found.first_rows.tolist() == [rows.index(row) for row in first]


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_table_grows_with_its_groups_not_with_its_rows(width):
    table = GroupTable(width, 10)
    few = np.arange(40, dtype=np.uint64) << np.uint64(57)
    many = np.arange(5000, dtype=np.uint64) * np.uint64(1 << 50)
    for _ in range(50):
        assert table.assign(np.stack([few] * width)).tolist() == list(range(40))
    before = len(table._keys)
    groups = table.assign(np.stack([many] * width))
    assert before < 5000 < len(table._keys)
    np.testing.assert_array_equal(table.keys()[groups, width - 1], many)
    assert table.num_groups == len(np.unique(np.concatenate([few, many])))


def test_sums_of_docs_that_are_listed_often_do_not_wrap(make_table):
    fields = [{"name": "a", "type": "STRING", "multiValue": True}, {"name": "n", "type": "LONG", "role": "metric"}]
    number = 2**55 - 1
    table = make_table(fields, [{"a": ["x"] * 1000 + ["y"], "n": number}, {"a": ["y"], "n": -number}])
    got = table.query("SELECT a, SUM(n), AVG(n), COUNT(*) FROM t GROUP BY a ORDER BY a")
    assert got == [["x", float(1000 * number), float(number), 1000], ["y", 0.0, 0.0, 2]]


LISTING = {
    "DISTINCTCOUNT(n)": [34, 33, 33],
    "ARRAYLENGTH(ARRAYAGG(n, 'LONG'))": [34, 33, 33],
    "ARRAYSUMLONG(FUNNEL_COUNT(STEPS(n >= 0, n > 2), CORRELATE_BY(n)))": [34 + 33, 33 + 32, 33 + 32],
    "PERCENTILE(n, 100)": [99.0, 97.0, 98.0],
    "ARRAYSUM(HISTOGRAM(n, 0, 100, 33))": [34.0, 33.0, 33.0],
}
"""Aggregates whose states are lists, and what they answer of 34, 33 and 33 values."""


@pytest.mark.parametrize("asked", LISTING)
def test_more_values_than_a_list_array_holds_are_refused(make_table, monkeypatch, asked):
    monkeypatch.setattr(listed, "MAX_LISTED", 100)
    fields = [{"name": "k", "type": "INT"}, {"name": "n", "type": "LONG"}]
    rows = [{"k": number % 3, "n": number} for number in range(300)]
    table = make_table(fields, rows[:40], rows[40:])
    found = table.query(f"SELECT k, {asked} FROM t WHERE n < 100 GROUP BY k ORDER BY k")
    assert found == [[k, answer] for k, answer in enumerate(LISTING[asked])]
    monkeypatch.setattr(listed, "MAX_LISTED", 80)
    with pytest.raises(LimitExceededError, match="too many values"):
        table.query(f"SELECT k, {asked} FROM t WHERE n < 100 GROUP BY k")


def test_more_rows_of_extremes_than_a_list_array_holds_are_refused(make_table, monkeypatch):
    monkeypatch.setattr(listed, "MAX_LISTED", 20)
    fields = [{"name": "k", "type": "INT"}, {"name": "n", "type": "LONG"}]
    table = make_table(fields, [{"k": 1, "n": number} for number in range(30)])
    assert len(table.query("SELECT EXPR_MIN(n, k) FROM t WHERE n < 20 LIMIT 100")) == 20
    with pytest.raises(LimitExceededError, match="too many values"):
        table.query("SELECT EXPR_MIN(n, k) FROM t")
