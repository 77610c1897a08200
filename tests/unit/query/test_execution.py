"""Exactness, limits, cancellation and statistics, over many segments and split ones."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from merlot.query import tasks
from merlot.query.answer.partial import Partial
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import QueryStats, to_pinot_rows
from merlot.query.context import CancelToken, ExecutionLimits, QueryCancelledError, QueryTimeoutError
from merlot.query.execute import prepare
from merlot.query.operators.grouping import keys as group_keys
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.query.targets import TaskResult
from merlot.spec.indexing import IndexingSpec
from merlot.sql.parse import parse
from merlot.testing.clock import FakeClock
from merlot.vectors import account
from merlot.vectors.errors import LimitExceededError, QueryArithmeticError

FIELDS = [
    {"name": "k", "type": "INT"},
    {"name": "s", "type": "STRING"},
    {"name": "n", "type": "LONG", "role": "metric"},
    {"name": "d", "type": "DOUBLE", "role": "metric"},
    {"name": "tags", "type": "STRING", "multiValue": True},
]


def rows(number, *, seed=1, large=False):
    numbers = np.random.default_rng(seed)
    scale = 2**62 if large else 10**6
    return pa.table(
        {
            "k": pa.array(numbers.integers(0, 40, number).astype(np.int32)),
            "s": pa.array([f"s{value}" for value in numbers.integers(0, 300, number)]),
            "n": pa.array(numbers.integers(-scale // 2, scale, number)),
            "d": pa.array(numbers.normal(size=number) * 10.0 ** numbers.integers(-8, 12, number)),
            "tags": pa.array([[f"x{tag}" for tag in range(value)] for value in numbers.integers(1, 4, number)]),
        }
    )


def test_sums_of_whole_numbers_are_exact_past_64_bits(make_table):
    data = rows(2000, large=True)
    table = make_table(FIELDS, data.slice(0, 700), data.slice(700))
    values, keys = data["n"].to_pylist(), data["k"].to_pylist()
    assert table.query("SELECT SUM(n), AVG(n) FROM t") == [[float(sum(values)), float(sum(values)) / 2000]]
    by_key = {key: sum(n for n, k in zip(values, keys, strict=True) if k == key) for key in set(keys)}
    got = table.query("SELECT k, SUM(n) FROM t GROUP BY k ORDER BY k LIMIT 100")
    assert got == [[key, float(by_key[key])] for key in sorted(by_key)]
    with pytest.raises(QueryArithmeticError, match="overflow"):
        table.query("SELECT SUMLONG(n) FROM t")


@pytest.mark.parametrize("offset", [99_990, 50, 100_001])
def test_a_page_keeps_no_other_rows_of_the_answer_in_memory(make_table, offset):
    schema = make_table(FIELDS, rows(1)).schema
    logical = plan(bind(parse(f"SELECT k, s FROM t LIMIT 10 OFFSET {offset}"), schema, {}))
    before = pa.total_allocated_bytes()
    columns = [pa.array(range(100_000), pa.int32()), pa.array([str(number) for number in range(100_000)])]
    data = pa.table(columns, schema=logical.leaf.work.partial_schema)
    answer = reduce(logical, [Partial(data, QueryStats())], schema)
    del data, columns
    assert pa.total_allocated_bytes() - before < 10_000
    shown = range(100_000)[offset : offset + 10]
    assert to_pinot_rows(answer) == [[number, str(number)] for number in shown]


@pytest.mark.parametrize(("column", "write"), [("k", str), ("s", lambda value: f"'s{value}'"), ("n", str)])
def test_a_list_longer_than_the_dictionary_finds_what_a_short_one_finds(make_table, column, write):
    data = rows(500)
    table = make_table(FIELDS, data.slice(0, 200), data.slice(200))
    values = data["n"].to_pylist()[:400] if column == "n" else range(20, 1000)
    written = [write(value) for value in values]
    for operator, join in (("IN", " OR "), ("NOT IN", " AND ")):
        many = table.query(f"SELECT COUNT(*), SUM(n) FROM t WHERE {column} {operator} ({', '.join(written)})")
        parts = [
            f"{column} {operator} ({', '.join(written[start : start + 10])})" for start in range(0, len(written), 10)
        ]
        assert many == table.query(f"SELECT COUNT(*), SUM(n) FROM t WHERE {join.join(parts)}")
        assert 0 < many[0][0] < 500


@pytest.mark.parametrize("word", ["OR", "AND"])
def test_ten_thousand_conditions_find_the_rows_that_meet_them(make_table, word):
    data = rows(500)
    sign = "=" if word == "OR" else "<>"
    numbers, texts = {*data["n"].to_pylist()[:150], *range(3_000)}, {f"s{number}" for number in range(0, 1_000, 7)}
    conditions = [f"n {sign} {number}" for number in numbers] + [f"s {sign} '{text}'" for text in texts]
    conditions += [f"n {sign} {number}.5" for number in range(10_000 - len(conditions))]
    random.Random(1).shuffle(conditions)
    is_kept = [(row["n"] in numbers or row["s"] in texts) == (word == "OR") for row in data.to_pylist()]
    found = [number for number, kept in zip(data["n"].to_pylist(), is_kept, strict=True) if kept]
    sql = f"SELECT COUNT(*), SUM(n) FROM t WHERE {f' {word} '.join(conditions)}"
    assert make_table(FIELDS, data.slice(0, 200), data.slice(200)).query(sql) == [[len(found), float(sum(found))]]
    assert 0 < len(found) < 500


def test_float_sums_do_not_depend_on_how_rows_fall_into_segments(make_table, tmp_path):
    data = rows(3000)
    one = make_table(FIELDS, data).query("SELECT SUM(d), AVG(d) FROM t")
    many = make_table(FIELDS, *(data.slice(start, 100) for start in range(0, 3000, 100))).query(
        "SELECT SUM(d), AVG(d) FROM t"
    )
    assert one == many


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*), SUM(n), MIN(d), MAX(n), DISTINCTCOUNT(s) FROM t WHERE k > 3 AND s LIKE 's1%'",
        "SELECT k, s, COUNT(*), SUM(n) FROM t GROUP BY k, s ORDER BY k, s LIMIT 20000",
        "SELECT s, DISTINCTCOUNT(k) FROM t WHERE n > 0 GROUP BY s ORDER BY s LIMIT 1000",
        "SELECT n, s FROM t WHERE k IN (1, 5, 9) ORDER BY n DESC, s LIMIT 25 OFFSET 5",
        "SELECT tags, SUM(n) FROM t WHERE tags <> 'x2' GROUP BY tags ORDER BY tags",
        "SELECT n, COUNT(*) FROM t GROUP BY n ORDER BY n LIMIT 7",
    ],
)
def test_a_split_segment_answers_as_a_whole_one(make_table, monkeypatch, sql):
    table = make_table(FIELDS, rows(20_000))
    whole = table.query(sql)
    monkeypatch.setattr(tasks, "MIN_SPLIT_DOCS", 1024)
    monkeypatch.setattr(tasks, "BLOCK_DOCS", 1024)
    assert replace(table, context=replace(table.context, docs_per_thread=1024)).query(sql) == whole
    assert whole


def test_tasks_of_one_segment_apply_the_function_of_a_key_to_each_text_once(make_table, monkeypatch):
    table = make_table(FIELDS, rows(20_000))
    sql = "SELECT UPPER(s) AS u, COUNT(*), SUM(n) FROM t GROUP BY u ORDER BY u LIMIT 20000"
    whole = table.query(sql)
    monkeypatch.setattr(tasks, "MIN_SPLIT_DOCS", 1024)
    monkeypatch.setattr(tasks, "BLOCK_DOCS", 1024)
    monkeypatch.setattr(group_keys, "LEAST_MAPPED", 1)
    monkeypatch.setattr(group_keys, "VALUES_PER_PIECE", 7)
    mapped, result = [], group_keys._result

    def counted(expr, reader, values):
        mapped.extend(values.to_pylist())
        return result(expr, reader, values)

    monkeypatch.setattr(group_keys, "_result", counted)
    with CountingPool(2) as pool:
        assert replace(table, context=replace(table.context, pool=pool, docs_per_thread=1024)).query(sql) == whole
        assert pool.num_asked
    assert len(mapped) == len(set(mapped))


class CountingPool(ThreadPoolExecutor):
    """Tells how many helpers were asked for."""

    num_asked = 0

    def submit(self, *args, **kwargs):
        self.num_asked += 1
        return super().submit(*args, **kwargs)


@pytest.mark.parametrize(
    ("sql", "num_helpers"),
    [
        ("SELECT SUM(n), MAX(d) FROM t", 0),
        ("SELECT k, COUNT(*) FROM t GROUP BY k ORDER BY k LIMIT 100", 0),
        ("SELECT COUNT(*) FROM t WHERE s LIKE 's1%'", 1),
        ("SELECT s, SUM(n) FROM t GROUP BY s ORDER BY s LIMIT 1000", 1),
    ],
)
def test_a_doc_whose_text_is_looked_at_is_worth_more_help(make_table, monkeypatch, sql, num_helpers):
    table = make_table(FIELDS, rows(2000), rows(2000, seed=2), indexing=IndexingSpec(no_dictionary=("s",)))
    alone = table.query(sql)
    monkeypatch.setattr(tasks, "MIN_SPLIT_DOCS", 1024)
    monkeypatch.setattr(tasks, "BLOCK_DOCS", 1024)
    with CountingPool(2) as pool:
        context = replace(table.context, pool=pool, docs_per_thread=8000)
        assert replace(table, context=context).query(sql) == alone
        assert pool.num_asked == num_helpers


@pytest.mark.parametrize("layout", ["apart"], indirect=True)
def test_texts_that_a_key_maps_one_by_one_are_worth_more_help(make_table):
    data = pa.table({"k": [1] * 1000, "s": [f"s{number}" for number in range(1000)]})
    fields = [{"name": "k", "type": "LONG"}, {"name": "s", "type": "STRING"}]
    table = make_table(fields, data, data.slice(0, 999))
    for key, num_helpers in (("s", 0), ("UPPER(s)", 1), ("k + 1", 0)):
        with CountingPool(2) as pool:
            context = replace(table.context, pool=pool, docs_per_thread=8000)
            replace(table, context=context).query(f"SELECT {key}, COUNT(*) FROM t WHERE k = 1 GROUP BY {key}")
            assert pool.num_asked == num_helpers


def test_selection_without_order_stops_at_its_limit(make_table):
    data = rows(600)
    table = make_table(FIELDS, *(data.slice(start, 100) for start in range(0, 600, 100)))
    partial = table.partial("SELECT k FROM t LIMIT 150")
    assert partial.data.num_rows == 150
    assert partial.stats.num_docs_scanned == 150
    assert table.query("SELECT k FROM t LIMIT 3 OFFSET 599") == [[data["k"][599].as_py()]]


def test_statistics_name_what_was_read(make_table):
    table = make_table(FIELDS, rows(500), rows(700, seed=2))
    stats = table.partial("SELECT SUM(n) FROM t WHERE s = 's7' AND k < 1000").stats
    assert (stats.num_segments_queried, stats.total_docs) == (2, 1200)
    assert 0 < stats.num_docs_scanned < 100
    pruned = table.partial("SELECT SUM(n) FROM t WHERE s = 'absent'").stats
    assert (pruned.num_segments_processed, pruned.num_segments_pruned_by_server) == (0, 2)


def test_too_many_groups_rows_or_bytes_end_the_query(make_table):
    table = make_table(FIELDS, rows(5000))
    groups, rows_ = "SELECT s, COUNT(*) FROM t GROUP BY s LIMIT 10", "SELECT s FROM t ORDER BY s LIMIT 1000"
    for limits, sql in (
        (ExecutionLimits(max_groups=100), groups),
        (ExecutionLimits(max_bytes=100), groups),
        (ExecutionLimits(max_rows=100), rows_),
    ):
        tight = replace(table, context=replace(table.context, limits=limits))
        with pytest.raises(LimitExceededError):
            tight.query(sql)
    few = replace(table, context=replace(table.context, limits=ExecutionLimits(max_rows=10)))
    assert len(few.query(groups)) == 10


@pytest.mark.parametrize("option", ["maxServerResponseSizeBytes", "maxQueryResponseSizeBytes"])
def test_a_query_may_bound_the_bytes_of_its_own_answer(make_table, option):
    table = make_table(FIELDS, rows(5000))
    sql = "SELECT s, COUNT(*) FROM t GROUP BY s LIMIT 10"
    assert len(table.query(sql, **{option: "100000000"})) == 10
    with pytest.raises(LimitExceededError, match="limit=100 "):
        table.query(sql, **{option: "100"})
    tight = replace(table, context=replace(table.context, limits=ExecutionLimits(max_bytes=90)))
    with pytest.raises(LimitExceededError, match="limit=90 "):
        tight.query(sql, **{option: "100"})


def test_the_groups_of_all_segments_together_are_bounded(make_table):
    table = make_table(FIELDS, *(rows(100).set_column(0, "k", pa.array(range(at, at + 100))) for at in (0, 100, 200)))
    tight = replace(table, context=replace(table.context, limits=ExecutionLimits(max_groups=150)))
    with pytest.raises(LimitExceededError, match="too many groups"):
        tight.query("SELECT k, COUNT(*) FROM t GROUP BY k LIMIT 10")


def test_a_deadline_and_a_cancellation_end_the_query(make_table):
    table = make_table(FIELDS, rows(500))
    clock = FakeClock()
    late = CancelToken.after(1.0, clock)
    clock.advance(2.0)
    with pytest.raises(QueryTimeoutError):
        replace(table, context=replace(table.context, cancel=late)).query("SELECT COUNT(*) FROM t")
    cancelled = CancelToken()
    cancelled.cancel()
    with pytest.raises(QueryCancelledError):
        replace(table, context=replace(table.context, cancel=cancelled)).query("SELECT COUNT(*) FROM t")


def test_long_arithmetic_overflows_into_an_error(make_table):
    table = make_table(FIELDS, rows(100, large=True))
    with pytest.raises(QueryArithmeticError, match="overflow"):
        table.query("SELECT SUM(n * n) FROM t")


def test_multi_value_predicates_ask_for_any_value_or_for_all(make_table):
    table = make_table(FIELDS, rows(300))
    one, two, three = (
        table.query(f"SELECT COUNT(*) FROM t WHERE {where}")[0][0]
        for where in ("tags = 'x2'", "tags <> 'x2'", "NOT tags > 'x1'")
    )
    assert one + two == 300
    assert three == two


def test_an_error_of_a_row_that_is_not_asked_for_is_none(make_table):
    table = make_table(FIELDS, rows(300))
    expected = table.query("SELECT COUNT(*) FROM t WHERE k > 0")[0][0]
    sql = "SELECT SUM(CASE WHEN k = 0 THEN 0 ELSE mod(k, k) + 1 END), COUNT(*) FROM t"
    assert table.query(sql) == [[float(expected), 300]]
    assert table.query("SELECT COUNT(*) FROM t WHERE k > 0 AND mod(100, k) = 0")[0][0] > 0
    assert len(table.query("SELECT mod(100, k), COUNT(*) FROM t WHERE k > 0 GROUP BY mod(100, k) LIMIT 50")) > 3
    with pytest.raises(QueryArithmeticError, match="division by zero"):
        table.query("SELECT mod(100, k) FROM t LIMIT 300")


def test_two_zeros_are_equal_in_an_order_as_in_a_comparison(make_table):
    fields = [{"name": "id", "type": "INT"}, {"name": "x", "type": "DOUBLE"}]
    values = (0.0, -0.0, 1.0, float("nan"), -0.0, 0.0)
    table = make_table(fields, [{"id": number, "x": value} for number, value in enumerate(values)])
    assert table.query("SELECT id FROM t ORDER BY x, id") == [[0], [1], [4], [5], [2], [3]]
    assert table.query("SELECT id FROM t ORDER BY x DESC, id DESC") == [[3], [2], [5], [4], [1], [0]]


@pytest.mark.parametrize("sql", ["SELECT tags, COUNT(*) FROM t GROUP BY tags", "SELECT DISTINCTCOUNTHLL(n) FROM t"])
def test_a_finished_task_holds_nothing_but_its_result(make_table, sql):
    data = rows(40_000)
    table = make_table(FIELDS, data, data.slice(5))
    leaf = plan(bind(parse(sql), table.schema, {})).leaf
    with account.Working() as mine:
        alive = prepare(leaf, table.segments, table.context).alive
        tasks.run(leaf, tasks.split(leaf, alive, 0, table.context), 0, table.context)
        assert mine.held_bytes == 0


def test_columns_of_a_result_are_charged_together():
    columns = [pa.array(np.zeros(5_000))] * 3
    with account.Working() as mine:
        account.current().hold("rows", 1 << 20)
        tasks._settled(TaskResult(columns, 5_000, 0, True), 0)
        assert mine.held_bytes == 120_000


def test_a_filter_looks_into_values_a_chunk_at_a_time(make_table):
    number = 140_000
    docs = pa.array([f'{{"a": "x{doc % 7}", "more": "{"m" * 80}"}}' for doc in range(number)])
    fields = [{"name": "doc", "type": "JSON"}, {"name": "n", "type": "LONG"}]
    data = pa.table({"doc": docs, "n": np.arange(number)})
    table = make_table(fields, data, indexing=IndexingSpec(no_dictionary=("doc", "n")))
    # The function may make 6 bytes for each byte: 40 MB for a chunk, 90 MB for all rows.
    limits = ExecutionLimits(work_bytes=60 << 20)
    table = replace(table, context=replace(table.context, pool=None, limits=limits))
    is_x3 = "JSON_EXTRACT_SCALAR(doc, '$.a', 'STRING') = 'x3'"
    assert table.query(f"SELECT COUNT(*) FROM t WHERE {is_x3}") == [[number // 7]]
    assert table.query(f"SELECT COUNT(*) FROM t WHERE {is_x3} OR n = 139999") == [[number // 7 + 1]]
    assert table.query(f"SELECT COUNT(*) FROM t WHERE n <> 5 AND {is_x3}") == [[number // 7]]


def test_an_error_of_a_row_far_into_a_segment_counts_if_nothing_else_decides_the_row(make_table):
    data = pa.table({"n": np.arange(140_000)})
    table = make_table([{"name": "n", "type": "LONG"}], data, indexing=IndexingSpec(no_dictionary=("n",)))
    fails = "mod(7, n - 100000) = 7"
    assert table.query(f"SELECT COUNT(*) FROM t WHERE {fails} OR n = 100000") == [[139_986]]
    assert table.query(f"SELECT COUNT(*) FROM t WHERE {fails} AND n < 100000") == [[99_993]]
    with pytest.raises(QueryArithmeticError, match="division by zero"):
        table.query(f"SELECT COUNT(*) FROM t WHERE {fails}")
