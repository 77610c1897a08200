"""GROUP BY by ranges of keys gives what GROUP BY by ranges of docs does."""

from __future__ import annotations

from random import Random

import pytest
from tests.budget import count

from merlot.query.context import ExecutionLimits
from merlot.query.operators.grouping import choose, keys, range_partitioned
from merlot.vectors.errors import LimitExceededError

FIELDS = [
    {"name": "k", "type": "LONG"},
    {"name": "s", "type": "STRING"},
    {"name": "i", "type": "INT"},
    {"name": "d", "type": "DOUBLE"},
    {"name": "n", "type": "BIG_DECIMAL"},
]
QUERIES = (
    "SELECT k, COUNT(*), SUM(i), SUM(d), SUMPRECISION(n), MIN(i), AVG(d) FROM t GROUP BY k ORDER BY k LIMIT 9999",
    "SELECT k, s, SUM(n) FROM t GROUP BY k, s ORDER BY k, s LIMIT 9999",
    "SELECT k + 3, SUM(i) FILTER (WHERE d > 0) FROM t GROUP BY k + 3 ORDER BY k + 3 LIMIT 9999",
    "SELECT k, SUM(n) AS x FROM t GROUP BY k HAVING SUM(n) > 5 ORDER BY x DESC, k LIMIT 7",
)


@pytest.fixture
def cut(monkeypatch):
    """How many ranges each query was cut into; small tables are, too."""
    counts = []
    original = range_partitioned.split

    def counted(*asked, **facts):
        found = original(*asked, **facts)
        counts.append(0 if found is None else len(found))
        return found

    monkeypatch.setattr(choose, "LEAST_PARTITIONED_DOCS", 1)
    monkeypatch.setattr(range_partitioned, "split", counted)
    return counts


def rows_of(random, count, low, high):
    return [
        {
            "k": random.randrange(low, high),
            "s": random.choice("abc"),
            "i": random.randrange(-9, 9),
            "d": random.randrange(-99, 99) / 4,
            "n": str(random.randrange(-99, 99)),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(count("MERLOT_RANGES", quick=3, every=6)))
@pytest.mark.parametrize("sql", QUERIES)
def test_groups_are_the_same_by_ranges_of_keys_and_of_docs(make_table, cut, monkeypatch, seed, sql):
    random = Random(seed)
    low = random.choice((-(10**12), -300, 0, 7))
    table = make_table(FIELDS, rows_of(random, 2_000, low, low + random.choice((5, 900, 7_000))))
    for option in ("", "SET enableNullHandling = true; "):
        cut.clear()
        by_keys = table.query(option + sql)
        with monkeypatch.context() as patch:
            patch.setattr(choose, "LEAST_PARTITIONED_DOCS", 1 << 40)
            assert table.query(option + sql) == by_keys
        assert cut[1] == 0


def test_ranges_are_taken_of_many_keys_and_docs_are_counted_once(make_table, cut):
    table = make_table(FIELDS, rows_of(Random(1), 2_000, 0, 900))
    partial = table.partial("SELECT k, COUNT(*) FROM t GROUP BY k LIMIT 9999")
    assert cut == [range_partitioned.NUM_RANGES]
    assert (partial.stats.num_docs_scanned, partial.stats.num_segments_matched) == (2_000, 1)


@pytest.mark.parametrize(
    ("sql", "low", "high"),
    [
        ("SELECT k, COUNT(*) FROM t WHERE i > 0 GROUP BY k", 0, 900),
        ("SELECT k, DISTINCTCOUNT(i) FROM t GROUP BY k", 0, 900),
        ("SELECT k, COUNT(*) FROM t GROUP BY k", 0, 9),
        ("SELECT k, COUNT(*) FROM t GROUP BY k", 0, 10**12),
        ("SELECT d, COUNT(*) FROM t GROUP BY d, d * k", 0, 900),
    ],
)
@pytest.mark.parametrize("layout", ["apart", "joined"], indirect=True)
def test_docs_are_cut_where_groups_are_few_or_need_hashes_or_a_filter_has_to_be_run(make_table, cut, sql, low, high):
    make_table(FIELDS, rows_of(Random(2), 2_000, low, high)).query(sql)
    assert cut == [0]


def test_too_many_groups_are_an_error_by_ranges_too(make_table, cut):
    table = make_table(FIELDS, rows_of(Random(3), 2_000, 0, 900))
    object.__setattr__(table.context, "limits", ExecutionLimits(max_groups=500))
    with pytest.raises(LimitExceededError, match="limit=500"):
        table.query("SELECT k, COUNT(*) FROM t GROUP BY k LIMIT 9999")


@pytest.mark.parametrize("layout", ["apart"], indirect=True)
def test_the_function_of_a_key_is_applied_to_each_text_once(make_table, cut, monkeypatch):
    mapped, result = [], keys._result

    def counted(expr, reader, values):
        mapped.extend(values.to_pylist())
        return result(expr, reader, values)

    monkeypatch.setattr(keys, "_result", counted)
    table = make_table(FIELDS, rows_of(Random(1), 200, 0, 9))
    answer = table.query("SELECT UPPER(s), COUNT(*) FROM t GROUP BY UPPER(s)")
    assert {row[0] for row in answer} == {"A", "B", "C"}
    assert cut == [0]
    assert sorted(mapped) == ["a", "b", "c"]
