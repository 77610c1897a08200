"""Star-trees answer what rows would, wherever they answer; and leave to rows what they cannot know."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budget import count
from tests.unit.query.tables import Table

from merlot.query.answer.partial import PlainRows
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import QueryStats, to_pinot_rows
from merlot.query.context import ExecutionContext
from merlot.query.explain import explain
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.query.shortcuts import scalar_aggregates
from merlot.query.star_trees import coalesced as coalesced_trees
from merlot.query.star_trees.coalesced import SIGHTINGS
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.contents import check_contents
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.nulls import words_of
from merlot.segment.reader import SomeDocs
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

FIELDS = [
    {"name": "city", "type": "STRING"},
    {"name": "level", "type": "INT"},
    {"name": "real", "type": "DOUBLE"},
    {"name": "maybe", "type": "INT"},
    {"name": "agent", "type": "LONG"},
    {"name": "big", "type": "LONG", "role": "metric"},
    {"name": "sold", "type": "INT", "role": "metric"},
    {"name": "exact", "type": "BIG_DECIMAL", "role": "metric"},
    {"name": "price", "type": "DOUBLE", "role": "metric"},
    {"name": "tags", "type": "STRING", "multiValue": True},
]
PAIRS = [
    *("COUNT__*", "AVG__sold", "MINMAXRANGE__sold", "SUMPRECISION__big", "MINMAXRANGE__big", "SUM__exact"),
    *("AVG__price", "MIN__price", "MAX__price", "DISTINCTCOUNTHLL__agent", "DISTINCTCOUNTHLL__city"),
    *("PERCENTILEEST__sold", "PERCENTILETDIGEST__price", "SUM__maybe"),
    *("DISTINCTCOUNTTHETASKETCH__agent", "DISTINCTCOUNTTHETASKETCH__city", "DISTINCTCOUNTTHETASKETCH__real"),
    *("DISTINCTCOUNTBITMAP__sold", "DISTINCTCOUNTBITMAP__maybe"),
]
TREES: list[dict[str, Any]] = [
    {
        "dimensionsSplitOrder": ["level", "real", "city"],
        "functionColumnPairs": PAIRS,
        "maxLeafRecords": 50,
        "skipStarNodeCreationForDimensions": ["level"],
    },
    {"dimensionsSplitOrder": ["city", "level", "maybe"], "functionColumnPairs": PAIRS, "maxLeafRecords": 3},
    {"dimensionsSplitOrder": ["maybe"], "functionColumnPairs": ["COUNT__*", "SUM__sold"]},
]
INDEXING = IndexingSpec.model_validate({"starTreeIndexConfigs": TREES})


def made(folder: Path, number: int, edges: Sequence[int] = ()) -> Table:
    """Rows, cut at the edges into segments."""
    schema = TableSchema.model_validate({"fields": FIELDS})
    content = pa.Table.from_pylist(rows(number), schema=arrow_schema(schema))
    segments = []
    for start, stop in pairwise((0, *edges, number)):
        request = BuildRequest(name=f"t_{start}", table="t", schema=schema, indexing=INDEXING)
        path = build_segment(request, content.slice(start, stop - start), folder).path
        segments.append(ImmutableSegment.open(path))
    return Table(schema, segments, ExecutionContext(schema=schema))


def rows(number: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(5)
    return [
        {
            "city": f"c{random.integers(7)}",
            "level": int(random.integers(6)),
            "real": float(random.choice([-0.0, 0.0, 1.5, np.nan, np.inf])),
            "maybe": None if random.integers(4) == 0 else int(random.integers(4)),
            "agent": int(random.integers(400)),
            "big": int(random.integers(2**62, 2**63 - 1)) * int(random.choice([-1, 1])),
            "sold": int(random.integers(100)),
            "exact": str(int(random.integers(-(10**9), 10**9)) * 10**12 + 1),
            "price": float(random.normal()),
            "tags": ["x"],
        }
        for _ in range(number)
    ]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return made(tmp_path_factory.mktemp("trees"), 3_000)


def plans(table: Table, sql: str, **options: str) -> list[str]:
    leaf = plan(bind(parse(sql), table.schema, options)).leaf
    return [row["plan"] for row in explain(leaf, table.segments, table.context) if "plan" in row]


def uses_tree(table: Table, sql: str, **options: str) -> bool:
    return any("FILTER_STARTREE_INDEX" in one for one in plans(table, sql, **options))


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three segments, one of a single row, whose trees are joined."""
    table = made(tmp_path_factory.mktemp("joined"), 3_000, (1, 1_200))
    for _ in range(SIGHTINGS):
        table.query("SELECT SUM(sold) FROM t WHERE city = 'c1'")
    return table


AGGREGATES = [
    *("COUNT(*)", "SUM(sold)", "AVG(sold)", "MIN(sold)", "MAXLONG(sold)", "MINMAXRANGE(big)", "SUMPRECISION(big)"),
    *("SUM(exact)", "SUMPRECISION(exact)", "AVG(price)", "MIN(price)", "MAX(price)", "SUM(big)", "COUNT(sold)"),
    *("DISTINCTCOUNTHLL(agent)", "DISTINCTCOUNTRAWHLL(city)", "PERCENTILEEST(sold, 40)", "SUM(maybe)"),
    *("DISTINCTCOUNTTHETASKETCH(agent)", "DISTINCTCOUNTRAWTHETASKETCH(city)", "DISTINCTCOUNTTHETASKETCH(real)"),
    *("DISTINCTCOUNTBITMAP(sold)", "DISTINCTCOUNT(sold)", "DISTINCTCOUNTBITMAP(maybe)", "COUNT(DISTINCT sold)"),
    *("COUNT(*) FILTER (WHERE city > 'c3')", "SUM(sold) FILTER (WHERE level = 2)"),
]
CONDITIONS = [
    *("city = 'c1'", "city <> 'c1'", "city IN ('c0', 'c9', 'c5')", "city NOT IN ('c0', 'c1')", "city LIKE '%3'"),
    *("level BETWEEN 1 AND 3", "level > -5", "level >= 5", "level = 77", "level % 2 = 0", "NOT (level = 1)"),
    *("real = 0", "real > 1", "real <> 0", "maybe = 2", "maybe < 1", "maybe IS NULL", "maybe IS NOT NULL"),
    *("(city = 'c1' OR city = 'c2')", "(city = 'c1' OR level = 2)", "level > maybe", "upper(city) = 'C4'"),
]
KEYS = ["city", "level", "real", "maybe", "upper(city)", "level * 2", "concat(city, 'x')", "level + maybe"]


@st.composite
def queries(draw: st.DrawFn) -> str:
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
    aggregates = draw(st.lists(st.sampled_from(AGGREGATES), min_size=0 if keys else 1, max_size=3, unique=True))
    conditions = draw(st.lists(st.sampled_from(CONDITIONS), max_size=3, unique=True))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    by = f" GROUP BY {', '.join(keys)}" if keys and aggregates else ""
    distinct = "" if aggregates else "DISTINCT "
    return f"SELECT {distinct}{', '.join([*keys, *aggregates])} FROM t{where}{by} LIMIT 100000"


@settings(
    max_examples=count("MERLOT_TREES", quick=75, every=150, fuzz=5000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sql=queries(), nulls=st.booleans())
def test_trees_answer_what_rows_do(table: Table, sql: str, nulls: bool) -> None:
    check_answer(table, sql, nulls=nulls)


@settings(
    max_examples=count("MERLOT_TREES", quick=50, every=100, fuzz=5000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sql=queries(), nulls=st.booleans())
def test_joined_trees_answer_what_rows_do(joined: Table, sql: str, nulls: bool) -> None:
    check_answer(joined, sql, nulls=nulls)


def check_answer(table: Table, sql: str, *, nulls: bool) -> None:
    options = {"enableNullHandling": str(nulls).lower()}
    got = ordered(table.query(sql, **options))
    wanted = ordered(table.query(sql, **options, useStarTree="false"))
    assert len(got) == len(wanted)
    for left, right in zip(got, wanted, strict=True):
        assert all(map(same, left, right)), (left, right)


def same(left: Any, right: Any) -> bool:
    """Sums of floats may differ in how they were rounded."""
    if isinstance(left, float) and isinstance(right, float):
        are_nan = math.isnan(left) and math.isnan(right)
        return are_nan or math.isclose(left, right, rel_tol=1e-12, abs_tol=1e-9)
    return type(left) is type(right) and left == right


def test_most_random_queries_were_answered_by_a_tree(table: Table) -> None:
    """A property of trees that no tree took part in would say nothing."""
    counts = {True: 0, False: 0}
    for key in ("city", "level", "upper(city)"):
        for condition in CONDITIONS:
            counts[uses_tree(table, f"SELECT {key}, SUM(sold) FROM t WHERE {condition} GROUP BY {key}")] += 1
    assert counts[True] > 3 * counts[False] > 0


def ordered(found: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """By what identifies a row: keys come first, and floats that were summed in another order may differ."""
    return sorted((list(row) for row in found), key=lambda row: [_sortable(cell) for cell in row])


def _sortable(cell: Any) -> tuple[str, str]:
    return type(cell).__name__, f"{cell:.6g}" if isinstance(cell, float) else str(cell)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM t",
        "SELECT SUM(sold) FROM t WHERE agent = 3",
        "SELECT agent, COUNT(*) FROM t GROUP BY agent",
        "SELECT SUM(agent) FROM t",
        "SELECT DISTINCTCOUNT(city) FROM t",
        "SELECT SUM(sold + 1) FROM t",
        "SELECT DISTINCTCOUNTHLL(agent, 12) FROM t",
        "SELECT DISTINCTCOUNTTHETASKETCH(agent, 'nominalEntries=64') FROM t",
        "SELECT PERCENTILETDIGEST(price, 50, 200) FROM t",
        "SELECT SUM(sold) FROM t WHERE tags = 'x'",
        "SELECT city FROM t",
        "SELECT SUM(sold) FROM t WHERE maybe IS NULL",
        "SELECT SUM(sold) FROM t WHERE city = 'c1' OR agent = 1",
        "SELECT SUM(sold) FROM t WHERE $docId < 10",
        "SELECT MIN(agent) FROM t GROUP BY city",
        "SELECT SUM(sold) FROM t WHERE level * 9223372036854775807 > 0",
    ],
)
def test_rows_are_read_where_no_tree_fits(table: Table, sql: str) -> None:
    assert not uses_tree(table, sql)


def test_with_null_handling_a_tree_answers_only_where_no_null_is_touched(table: Table) -> None:
    for sql in ("SELECT SUM(sold) FROM t WHERE maybe = 1", "SELECT SUM(maybe) FROM t WHERE city = 'c1'"):
        assert uses_tree(table, sql)
        assert not uses_tree(table, sql, enableNullHandling="true")
    assert uses_tree(table, "SELECT SUM(sold), COUNT(price) FROM t WHERE city = 'c1'", enableNullHandling="true")


@pytest.mark.parametrize("where", ["level >= 0", "level = 2 AND city = 'c3'", "level > 50", "maybe = 1"])
def test_whole_numbers_of_documents_are_one_row_in_plain_numbers(table: Table, joined: Table, where: str) -> None:
    """Of one tree and of a joined one; of a document, of many and of none."""
    asked = "COUNT(*), SUM(big), SUMLONG(sold), AVG(sold), MIN(big), MAX(big), MINLONG(sold), MAXLONG(sold)"
    sql = f"SELECT {asked} FROM t WHERE {where}"
    for one in (table, joined):
        told = " ".join(plans(one, sql))
        assert where == "level > 50" or ("FILTER_STARTREE_INDEX" in told and "oneRow:true" in told)
        logical = plan(bind(parse(sql), one.schema, {}))
        partial = one.partial(sql)
        assert isinstance(partial.content, PlainRows)
        taken_over = scalar_aggregates.answer(logical, [partial])
        assert taken_over is not None
        by_rows = one.query(sql, useStarTree="false")
        assert [taken_over[2]] == to_pinot_rows(reduce(logical, [partial], one.schema)) == by_rows


def test_a_tree_and_rows_of_another_segment_make_one_row(tmp_path: Path) -> None:
    table = made(tmp_path, 400, (150,))
    first, _ = table.segments
    assert isinstance(first, ImmutableSegment)
    bare = BuildRequest(name="bare", table="t", schema=table.schema)
    content = pa.Table.from_pylist(rows(400), schema=arrow_schema(table.schema)).slice(150)
    segments = [first, ImmutableSegment.open(build_segment(bare, content, tmp_path).path)]
    mixed, sql = replace(table, segments=segments), "SELECT COUNT(*), AVG(sold), MIN(big) FROM t WHERE level < 4"
    assert isinstance(mixed.partial(sql).content, PlainRows)
    assert mixed.query(sql) == table.query(sql, useStarTree="false")


def test_a_digest_is_near_that_of_the_rows(table: Table) -> None:
    sql = "SELECT city, PERCENTILETDIGEST(price, 75) FROM t GROUP BY city ORDER BY city"
    assert uses_tree(table, sql)
    for left, right in zip(table.query(sql), table.query(sql, useStarTree="false"), strict=True):
        assert left[1] == pytest.approx(right[1], abs=0.1)


def stats(table: Table, sql: str) -> QueryStats:
    return table.partial(sql).stats


def test_the_documents_that_are_read_are_those_that_are_counted(table: Table) -> None:
    found = stats(table, "SELECT SUM(sold) FROM t WHERE city >= 'c'")
    assert (found.num_docs_scanned, found.total_docs, found.num_entries_scanned_in_filter) == (1, 3_000, 0)
    assert stats(table, "SELECT city, SUM(sold) FROM t GROUP BY city").num_docs_scanned == 7


def test_of_several_trees_the_one_with_the_fewest_documents_answers(table: Table) -> None:
    [told] = plans(table, "SELECT SUM(price) FROM t WHERE city = 'c1'")
    assert "star_tree[city, level, maybe]" in told
    [told] = plans(table, "SELECT SUM(price) FROM t WHERE real = 1.5")
    assert "star_tree[level, real, city]" in told


def test_a_tree_that_was_taken_out_of_the_table_answers_nothing_any_more(table: Table) -> None:
    sql = "SELECT city, SUM(price) FROM t GROUP BY city"
    for trees, is_used in ((TREES, True), (TREES[2:], False), ([], False)):
        indexing = IndexingSpec.model_validate({"starTreeIndexConfigs": trees})
        assert uses_tree(replace(table, context=replace(table.context, indexing=indexing)), sql) is is_used


def told(table: Table, sql: str) -> list[tuple[int, int, bool]]:
    """Of each group of segments with a tree: how many, documents, whether they are joined."""
    leaf = plan(bind(parse(sql), table.schema)).leaf
    found = explain(leaf, table.segments, table.context)
    return [(row["segments"], row["docs"], row["joined"]) for row in found if "STARTREE" in (row.get("plan") or "")]


def test_trees_of_segments_that_are_asked_for_again_are_joined(tmp_path: Path) -> None:
    table = made(tmp_path, 600, (200, 400))
    sql = "SELECT city, SUM(sold) FROM t GROUP BY city"
    assert told(table, sql) == [(3, 21, False)]
    assert told(table, sql) == [(3, 7, True)]
    found = stats(table, sql)
    assert (found.num_docs_scanned, found.num_segments_matched, found.num_segments_processed) == (7, 3, 3)
    assert told(replace(table, segments=table.segments[:2]), sql) == [(2, 14, False)]


def test_who_has_no_time_has_trees_joined_later(tmp_path: Path) -> None:
    table = made(tmp_path, 600, (200, 400))
    later: list[Callable[[], None]] = []
    hurried = replace(table, context=replace(table.context, coalesce_later=later.append))
    sql = "SELECT city, SUM(sold) FROM t GROUP BY city"
    assert [told(hurried, sql) for _ in range(3)] == [[(3, 21, False)]] * 3
    assert len(later) == 1
    later[0]()
    assert told(hurried, sql) == [(3, 7, True)]


def test_trees_whose_joining_failed_are_joined_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(parts: object) -> None:
        raise MemoryError

    table = made(tmp_path, 600, (200, 400))
    later: list[Callable[[], None]] = []
    hurried = replace(table, context=replace(table.context, coalesce_later=later.append))
    sql = "SELECT city, SUM(sold) FROM t GROUP BY city"
    assert [told(hurried, sql) for _ in range(2)] == [[(3, 21, False)]] * 2
    joining = later.pop()
    with monkeypatch.context() as failing:
        failing.setattr(coalesced_trees, "coalesce", fail)
        with pytest.raises(MemoryError):
            joining()
    assert told(hurried, sql) == [(3, 21, False)]
    later.pop()()
    assert told(hurried, sql) == [(3, 7, True)]


def test_trees_that_would_be_too_large_together_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, 600, (200, 400))
    monkeypatch.setattr(coalesced_trees, "MOST_DOCUMENTS", 200)
    sql = "SELECT city, SUM(price) FROM t GROUP BY city"
    assert [told(table, sql) for _ in range(3)] == [[(3, 21, False)]] * 3


class Partly:
    """A segment of which some docs are not valid, trees or no trees."""

    def __init__(self, segment: Any) -> None:
        self._segment = segment
        self.valid_docs = SomeDocs(words_of(np.arange(segment.num_docs) % 2 == 0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._segment, name)


def test_docs_that_are_not_valid_are_not_in_a_trees_answer(table: Table) -> None:
    partly = replace(table, segments=[Partly(segment) for segment in table.segments])
    sql = "SELECT SUM(sold) FROM t WHERE level >= 0"
    assert not uses_tree(partly, sql)
    assert partly.query(sql) == [[float(sum(row["sold"] for row in rows(3_000)[::2]))]]


def test_a_column_that_was_widened_or_added_since_is_read_from_rows(tmp_path: Path) -> None:
    table = made(tmp_path, 300)
    widened = {"sold": "LONG", "level": "LONG"}
    fields = [{**field, "type": widened.get(str(field["name"]), field["type"])} for field in FIELDS]
    schema = TableSchema.model_validate({"fields": [*fields, {"name": "added", "type": "STRING"}]})
    today = replace(table, schema=schema, context=replace(table.context, schema=schema))
    assert not uses_tree(today, "SELECT SUM(sold) FROM t WHERE city = 'c1'")
    assert not uses_tree(today, "SELECT SUM(price) FROM t WHERE added = 'null'")
    by_level = "SELECT level + 9000000000, SUM(exact) FROM t GROUP BY level + 9000000000 ORDER BY level + 9000000000"
    assert uses_tree(today, by_level)
    assert today.query(by_level) == today.query(by_level, useStarTree="false")


ANSWERED = {
    "COUNT__*": ("COUNT(*)",),
    "MIN__{}": ("MIN({})",),
    "MAX__{}": ("MAX({})",),
    "SUM__{}": ("SUM({})",),
    "AVG__{}": ("AVG({})", "SUM({})", "COUNT(*)"),
    "MINMAXRANGE__{}": ("MINMAXRANGE({})", "MIN({})", "MAX({})"),
    "DISTINCTCOUNTHLL__{}": ("DISTINCTCOUNTHLL({})", "DISTINCTCOUNTRAWHLL({})"),
    "PERCENTILEEST__{}": ("PERCENTILEEST({}, 1)", "PERCENTILEEST({}, 50)", "PERCENTILEEST({}, 99.9)"),
    "PERCENTILETDIGEST__{}": ("PERCENTILETDIGEST({}, 50)",),
    "SUMPRECISION__{}": ("SUMPRECISION({})",),
    "DISTINCTCOUNTBITMAP__{}": ("DISTINCTCOUNTBITMAP({})", "DISTINCTCOUNT({})"),
    "DISTINCTCOUNTTHETASKETCH__{}": ("DISTINCTCOUNTTHETASKETCH({})", "DISTINCTCOUNTRAWTHETASKETCH({})"),
}
"""What each pair answers by itself."""
TAKEN = {"SUMPRECISION__{}": ("sold", "big", "exact"), "DISTINCTCOUNTBITMAP__{}": ("sold", "maybe")}


@pytest.mark.parametrize("pair", ANSWERED)
@pytest.mark.parametrize("seed", range(3))
def test_each_function_alone_answers_what_rows_do_on_random_tables(tmp_path: Path, pair: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = TAKEN.get(pair, ("sold", "big", "price", "maybe"))
    pairs = sorted({pair.format(column) for column in columns})
    leaf_records = int(random.choice([1, 10, 10_000]))
    order = [str(one) for one in random.permutation(["city", "level", "real"])]
    tree = {"dimensionsSplitOrder": order, "functionColumnPairs": pairs, "maxLeafRecords": leaf_records}
    raw = {"noDictionary": ["sold"]} if seed == 1 else {}
    indexing = IndexingSpec.model_validate({"starTreeIndexConfigs": [tree], **raw})
    schema = TableSchema.model_validate({"fields": FIELDS})
    content = pa.Table.from_pylist(rows(int(random.integers(1, 900))), schema=arrow_schema(schema))
    request = BuildRequest(name="t_0", table="t", schema=schema, indexing=indexing)
    segment = ImmutableSegment.open(build_segment(request, content, tmp_path).path)
    check_contents(segment)
    table = Table(schema, [segment], ExecutionContext(schema=schema))
    for column in columns:
        for aggregate in ANSWERED[pair]:
            for ask in ("SELECT {} FROM t WHERE level >= 2", "SELECT city, {} FROM t GROUP BY city LIMIT 99"):
                sql = ask.format(aggregate.format(column))
                assert uses_tree(table, sql)
                if "TDIGEST" not in pair:
                    check_answer(table, sql, nulls=False)
                    continue
                found, wanted = ordered(table.query(sql)), ordered(table.query(sql, useStarTree="false"))
                spread = table.query(f"SELECT MAX({column}) - MIN({column}) FROM t", useStarTree="false")[0][0]
                for left, right in zip(found, wanted, strict=True):
                    assert left[-1] == pytest.approx(right[-1], abs=0.2 * spread)


def test_tree_over_a_column_with_nan_agrees_with_its_rows(tmp_path: Path) -> None:
    fields = [{"name": "city", "type": "STRING"}, {"name": "price", "type": "DOUBLE", "role": "metric"}]
    schema = TableSchema.model_validate({"fields": fields})
    pairs = ["PERCENTILEEST__price", "SUM__price", "MAX__price"]
    tree = {"dimensionsSplitOrder": ["city"], "functionColumnPairs": pairs, "maxLeafRecords": 1}
    indexing = IndexingSpec.model_validate({"starTreeIndexConfigs": [tree]})
    content = pa.table({"city": ["a", "b", "a", "b"], "price": [1.0, math.nan, math.nan, 2.0]})
    request = BuildRequest(name="t_0", table="t", schema=schema, indexing=indexing)
    segment = ImmutableSegment.open(build_segment(request, content, tmp_path).path)
    assert len(segment.star_trees) == 1
    check_contents(segment)
