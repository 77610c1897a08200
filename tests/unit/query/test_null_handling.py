"""Nulls: default values unless `enableNullHandling` asks for SQL's three-valued logic."""

import pytest

from merlot.spec.indexing import IndexingSpec

FIELDS = [
    {"name": "id", "type": "INT"},
    {"name": "x", "type": "INT"},
    {"name": "s", "type": "STRING"},
    {"name": "m", "type": "DOUBLE", "role": "metric"},
]
ROWS = [
    {"id": 1, "x": 10, "s": "a", "m": 1.5},
    {"id": 2, "x": None, "s": "b", "m": None},
    {"id": 3, "x": 30, "s": None, "m": 2.5},
    {"id": 4, "x": None, "s": None, "m": None},
]
ON = {"enableNullHandling": "true"}


@pytest.fixture
def table(make_table):
    return make_table(FIELDS, ROWS[:2], ROWS[2:])


def ids(table, where, **options):
    return [row[0] for row in table.query(f"SELECT id FROM t WHERE {where} ORDER BY id", **options)]


def test_off_nulls_are_default_values(table):
    assert table.query("SELECT x, s, m FROM t WHERE id = 4") == [[-(2**31), "null", 0.0]]
    assert ids(table, "x < 20") == [1, 2, 4]
    assert ids(table, "s = 'null'") == [3, 4]
    assert table.query("SELECT COUNT(x), SUM(m), MIN(x) FROM t") == [[4, 4.0, float(-(2**31))]]


def test_is_null_works_either_way(table):
    for options in ({}, ON):
        assert ids(table, "x IS NULL", **options) == [2, 4]
        assert ids(table, "x IS NOT NULL", **options) == [1, 3]
        assert ids(table, "NOT (x IS NULL OR s IS NULL)", **options) == [1]


def test_on_a_comparison_with_null_is_neither_true_nor_false(table):
    assert ids(table, "x < 20", **ON) == [1]
    assert ids(table, "NOT x < 20", **ON) == [3]
    assert ids(table, "x <> 10", **ON) == [3]
    assert ids(table, "x NOT IN (10, 20)", **ON) == [3]
    assert ids(table, "s LIKE '%'", **ON) == [1, 2]
    assert ids(table, "NOT (x = 10 AND s = 'a')", **ON) == [2, 3]
    assert ids(table, "x = 10 OR s = 'b'", **ON) == [1, 2]
    assert ids(table, "x + id > 0", **ON) == [1, 3]
    assert ids(table, "NOT (x + id > 20 AND s = 'a')", **ON) == [1, 2]


def test_on_aggregates_skip_nulls(table):
    sql = "SELECT COUNT(*), COUNT(x), SUM(x), MIN(x), MAX(m), AVG(m), DISTINCTCOUNT(s) FROM t"
    assert table.query(sql, **ON) == [[4, 2, 40.0, 10.0, 2.5, 2.0, 2]]
    nothing = table.query("SELECT COUNT(x), SUM(x), MIN(x), AVG(m) FROM t WHERE id IN (2, 4)", **ON)
    assert nothing == [[0, None, None, None]]
    assert table.query("SELECT COUNT(*), SUM(x), MAX(x), AVG(x) FROM t WHERE id > 9", **ON) == [[0, None, None, None]]


def test_on_null_is_a_group_and_sorts_last(table):
    assert table.query("SELECT x, COUNT(*) FROM t GROUP BY x ORDER BY x", **ON) == [[10, 1], [30, 1], [None, 2]]
    assert table.query("SELECT s, COUNT(*) FROM t GROUP BY s ORDER BY s DESC", **ON) == [[None, 2], ["b", 1], ["a", 1]]
    assert table.query("SELECT DISTINCT x FROM t ORDER BY x DESC", **ON) == [[None], [30], [10]]
    assert table.query("SELECT x, s FROM t ORDER BY x, s LIMIT 3", **ON) == [[10, "a"], [30, None], [None, "b"]]


def test_on_nulls_pass_through_expressions(table):
    assert table.query("SELECT x + 1, upper(s) FROM t ORDER BY id", **ON) == [
        [11, "A"],
        [None, "B"],
        [31, None],
        [None, None],
    ]
    sql = "SELECT CASE WHEN x IS NULL THEN 'none' WHEN x > 20 THEN 'big' END FROM t ORDER BY id"
    assert table.query(sql, **ON) == [[None], ["none"], ["big"], ["none"]]
    assert ids(table, "CASE WHEN x > 20 THEN 1 ELSE 2 END = 2", **ON) == [1, 2, 4]


def test_a_group_of_nulls_only_has_null_aggregates(table):
    rows = table.query("SELECT s, SUM(x), AVG(m) FROM t GROUP BY s ORDER BY s", **ON)
    assert rows == [["a", 10.0, 1.5], ["b", None, None], [None, 30.0, 2.5]]


def test_on_a_null_list_is_null_as_a_row_as_a_group_and_among_distinct_values(make_table):
    fields = [{"name": name, "type": type_, "multiValue": True} for name, type_ in (("a", "INT"), ("s", "STRING"))]
    rows = [{"a": [1, 2], "s": ["x"]}, {"a": None, "s": None}, {"a": [2, 2], "s": ["y", "x"]}]
    for raw in ((), ("a", "s")):
        table = make_table(fields, rows[:2], rows[2:], indexing=IndexingSpec(no_dictionary=raw))
        assert [None, None] in table.query("SELECT a, s FROM t", **ON)
        assert sorted(table.query("SELECT a, COUNT(*) FROM t GROUP BY a", **ON), key=str) == [[1, 1], [2, 3], [None, 1]]
        assert sorted(table.query("SELECT DISTINCT s FROM t", **ON), key=str) == [["x"], ["y"], [None]]
        assert [None, None, 1] in table.query("SELECT a, s, COUNT(*) FROM t GROUP BY a, s", **ON)
        assert [-(2**31), "null", 1] in table.query("SELECT a, s, COUNT(*) FROM t GROUP BY a, s")
