"""Groups of many rows, by parts of their hashes: those of equal keys, whatever the keys and the number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from merlot.kernels import hashing
from merlot.kernels import partition as kernels
from merlot.query.answer.combine import merge_tables
from merlot.query.context import CancelToken, ExecutionLimits, QueryCancelledError
from merlot.query.operators.grouping import bypass, choose
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.query.workers import Workers
from merlot.spec.indexing import IndexingSpec
from merlot.sql.parse import parse
from merlot.vectors import partitioned
from merlot.vectors.encoding import group_rows
from merlot.vectors.groups import Groups
from merlot.vectors.partitioned import group_many

ROWS = 5000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(partitioned, "LEAST_ROWS", 1)
    monkeypatch.setattr(partitioned, "ROWS_PER_PIECE", 700)
    monkeypatch.setattr(partitioned, "ROWS_PER_PART", 100)
    monkeypatch.setattr(partitioned, "PARTS_PER_PIECE", 3)


def columns(seed):
    """Of each type that keys have: many values and few, nulls in every second one."""
    random = np.random.default_rng(seed)
    longs = random.choice(random.integers(-(2**63), 2**63 - 1, 2000), ROWS)
    longs[:2] = -(2**63), 2**63 - 1
    floats = random.choice([0.0, -0.0, np.nan, -np.nan, np.inf, *random.normal(size=900)], ROWS)
    texts = [f"{'x' * (one % 19)}{one}" if one else "" for one in random.integers(0, 1500, ROWS)]
    nulls = random.random(ROWS) < 0.1
    return {
        "long": pa.array(longs),
        "int": pa.array(random.integers(-(2**31), 2**31, ROWS, dtype=np.int32), mask=nulls),
        "few": pa.array(random.integers(0, 3, ROWS, dtype=np.int32)),
        "double": pa.array(floats, mask=nulls),
        "float": pa.array(floats.astype(np.float32)),
        "flag": pa.array(random.random(ROWS) < 0.5, mask=nulls),
        "text": pa.array([None if is_null else text for text, is_null in zip(texts, nulls, strict=True)], pa.string()),
        "bytes": pa.array([text.encode() for text in texts], pa.binary()),
        "null": pa.array([None] * ROWS, pa.int64()),
    }


KEYS = [
    ("long",),
    ("int",),
    ("double",),
    ("float", "null"),
    ("text",),
    ("bytes", "few"),
    ("text", "bytes", "long"),
    ("long", "int", "flag", "double"),
]


def as_sets(groups: Groups) -> set[frozenset[int]]:
    rows: dict[int, set[int]] = {}
    for row, group in enumerate(groups.of_rows.tolist()):
        rows.setdefault(group, set()).add(row)
    assert [min(rows[group]) for group in range(len(groups))] == groups.first_rows.tolist()
    return {frozenset(some) for some in rows.values()}


@pytest.mark.parametrize("names", KEYS, ids=" ".join)
def test_rows_with_equal_keys_are_one_group(names):
    keys = [columns(1)[name] for name in names]
    found = group_many(keys, ROWS, Workers().run)
    assert found is not None
    assert as_sets(found) == as_sets(group_rows(keys, ROWS))
    shorter = [key.slice(1000, 2500) for key in keys]
    assert as_sets(group_many(shorter, 2500, Workers().run)) == as_sets(group_rows(shorter, 2500))


def test_groups_have_the_same_numbers_whatever_the_threads():
    keys = [columns(2)[name] for name in ("text", "long")]
    alone = group_many(keys, ROWS, Workers().run)
    with ThreadPoolExecutor(3) as pool:
        helped = group_many(keys, ROWS, Workers(pool, 3).run)
    assert helped.of_rows.tolist() == alone.of_rows.tolist()
    assert helped.first_rows.tolist() == alone.first_rows.tolist()


@pytest.mark.parametrize(
    "key",
    [
        pa.array(np.arange(ROWS, dtype=np.int32)),
        pa.array([[one % 9] for one in range(ROWS)]),
        pa.array([None] * ROWS, pa.int64()),
    ],
    ids=["an array of slots does", "lists", "nothing but null"],
)
def test_other_keys_are_left_to_others(key):
    assert group_many([key], ROWS, Workers().run) is None


def test_texts_that_share_a_hash_are_left_to_others(monkeypatch):
    def poor(data, offsets, hashes):
        hashes[:] = np.diff(offsets)

    monkeypatch.setattr(hashing, "hash_spans", poor)
    assert group_many([pa.array(["a", "a", "bb"] * 40)], 120, Workers().run) is not None
    assert group_many([pa.array(["a", "a", "b"] * 40)], 120, Workers().run) is None


def test_keys_of_several_words_that_share_a_hash_are_left_to_others(monkeypatch):
    def poor(words, hashes):
        hashes[:] = words[0]

    numbers = np.arange(120) * 2**57
    assert group_many([pa.array(numbers), pa.array(numbers)], 120, Workers().run) is not None
    monkeypatch.setattr(kernels, "hash_words", poor)
    assert group_many([pa.array(numbers), pa.array(numbers)], 120, Workers().run) is not None
    assert group_many([pa.array(numbers % 2**60), pa.array(numbers)], 120, Workers().run) is None


FIELDS = [
    {"name": "k", "type": "LONG"},
    {"name": "s", "type": "STRING"},
    {"name": "n", "type": "INT"},
    {"name": "d", "type": "DOUBLE"},
]
SQL = "SELECT k, s, COUNT(*), SUM(n), MIN(d), DISTINCTCOUNT(n), MAX(n) FROM t GROUP BY k, s ORDER BY k, s LIMIT 10000"


def rows(seed):
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "k": random.integers(0, 800, 3000) * 2**40,
            "s": [f"s{one}" for one in random.integers(0, 3, 3000)],
            "n": random.integers(0, 50, 3000, dtype=np.int32),
            "d": random.normal(size=3000),
        }
    )


def test_merged_by_parts_answers_are_the_same(make_table, monkeypatch):
    table = make_table(FIELDS, rows(1), rows(2), rows(3))
    by_parts = table.query(SQL)
    helped = replace(table, context=replace(table.context, docs_per_thread=100))
    assert helped.query(SQL) == by_parts
    monkeypatch.setattr(partitioned, "LEAST_ROWS", 1 << 60)
    assert table.query(SQL) == by_parts
    assert len(by_parts) > 2000


ASKED = [
    "SELECT k, s, COUNT(*), SUM(n), AVG(n), SUM(n + 3) FROM t GROUP BY k, s ORDER BY k, s LIMIT 10000",
    "SELECT s, b, SUM(d) FROM t WHERE n <> 7 GROUP BY s, b ORDER BY s, b LIMIT 10000",
    "SELECT DISTINCT d, f FROM t ORDER BY d, f LIMIT 10000",
    "SELECT k + n, UPPER(s), MINMAXRANGE(d), COUNT(*) FILTER (WHERE n > 3) FROM t GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 99",
]


@pytest.mark.parametrize(("num_segments", "null_handling"), [(1, "true"), (3, "false")])
@pytest.mark.parametrize("sql", ASKED)
def test_rows_that_tasks_leave_to_the_merge_are_grouped_there(
    make_table, monkeypatch, sql, num_segments, null_handling
):
    fields = [*FIELDS, {"name": "b", "type": "BOOLEAN"}, {"name": "f", "type": "FLOAT"}]
    data = []
    for seed in range(num_segments):
        random = np.random.default_rng(seed)
        nulls = random.random(3000) < 0.05
        zeros = pa.array(random.choice([0.0, -0.0, np.nan, 1.5], 3000).astype(np.float32), mask=nulls)
        flags = pa.array(random.random(3000) < 0.5, mask=nulls)
        data.append(rows(seed).append_column("b", flags).append_column("f", zeros))
    table = make_table(fields, *data, indexing=IndexingSpec(no_dictionary=("s", "f")))
    grouped = table.query(sql, enableNullHandling=null_handling)
    monkeypatch.setattr(choose, "LEAST_BYPASSED_DOCS", 1)
    monkeypatch.setattr(choose, "LEAST_BYPASSED_SHARE", 0)
    monkeypatch.setattr(choose, "LEAST_BYPASSED_SHARE_OF_TEXTS", 0)
    reads = CountedCalls(bypass.rows)
    monkeypatch.setattr(bypass, "rows", reads)
    assert repr(table.query(sql, enableNullHandling=null_handling)) == repr(grouped)
    assert reads.results


@pytest.mark.parametrize(
    ("limits", "is_tried"),
    [(ExecutionLimits(max_groups=5999), False), (ExecutionLimits(max_bytes=800_000), True)],
    ids=["groups", "bytes"],
)
def test_rows_past_the_limits_of_groups_and_bytes_are_grouped_by_their_tasks(make_table, monkeypatch, limits, is_tried):
    data = [rows(1), rows(2)]
    long = [one.set_column(1, "s", pc.utf8_rpad(one["s"], 200)) for one in data]
    table = make_table(FIELDS, *long, indexing=IndexingSpec(no_dictionary=("s",)))
    grouped = table.query(ASKED[0])
    monkeypatch.setattr(choose, "LEAST_BYPASSED_DOCS", 1)
    monkeypatch.setattr(choose, "LEAST_BYPASSED_SHARE_OF_TEXTS", 0)
    read = CountedCalls(bypass.rows)
    monkeypatch.setattr(bypass, "rows", read)
    assert replace(table, context=replace(table.context, limits=limits)).query(ASKED[0]) == grouped
    assert bool(read.results) == is_tried
    assert all(result is None for result in read.results)


class CountedCalls:
    """A function, and what it returned."""

    def __init__(self, function):
        self.results = []
        self._function = function

    def __call__(self, *args):
        self.results.append(self._function(*args))
        return self.results[-1]


@pytest.mark.parametrize("null_handling", ["false", "true"])
def test_rows_that_all_differ_are_their_own_groups(make_table, monkeypatch, null_handling):
    data = [rows(seed).append_column("at", pa.array(np.arange(3000) + 3000 * seed)) for seed in range(2)]
    table = make_table([*FIELDS, {"name": "at", "type": "LONG"}], *data)
    sql = "SELECT at, s, COUNT(*), SUM(n), AVG(d), MIN(k) FROM t GROUP BY at, s ORDER BY at LIMIT 10000"
    monkeypatch.setattr(choose, "LEAST_BYPASSED_DOCS", 1)
    monkeypatch.setattr(partitioned, "LEAST_ROWS", 1)
    expected = [
        [row["at"], row["s"], 1, float(row["n"]), row["d"], float(row["k"])]
        for some in data
        for row in some.to_pylist()
    ]
    assert table.query(sql, enableNullHandling=null_handling) == expected


def test_docs_with_few_keys_are_grouped_by_their_tasks(make_table, monkeypatch):
    table = make_table(FIELDS, rows(1))
    monkeypatch.setattr(choose, "LEAST_BYPASSED_DOCS", 1)
    read = CountedCalls(bypass.rows)
    monkeypatch.setattr(bypass, "rows", read)
    assert len(table.query("SELECT s, COUNT(*) FROM t GROUP BY s")) == 3
    assert len(table.query("SELECT s, d, DISTINCTCOUNT(n) FROM t GROUP BY s, d LIMIT 5000")) == 3000
    assert not read.results
    assert len(table.query("SELECT s, d, SUM(n) FROM t GROUP BY s, d LIMIT 5000")) == 3000
    assert len(read.results) == 1


def test_a_cancelled_query_stops_merging(make_table):
    table = make_table(FIELDS, rows(1), rows(2))
    partials = [replace(table, segments=[segment]).partial(SQL).data for segment in table.segments]
    work = plan(bind(parse(SQL), table.schema, {})).leaf.work
    cancel = CancelToken()
    workers = Workers(check=cancel.check)
    assert merge_tables(work, partials, workers).num_rows
    cancel.cancel()
    with pytest.raises(QueryCancelledError):
        merge_tables(work, partials, workers)
