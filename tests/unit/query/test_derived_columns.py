"""What was computed ahead, `$ts$DAY`, is what DATETRUNC computes: of rows, of trees, where some segments lack it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.budget import count
from tests.unit.query.tables import Table

from merlot.errors import CorruptionError
from merlot.merge.plan import MergeMode, MergePlan
from merlot.merge.task import run
from merlot.query.context import ExecutionContext
from merlot.query.explain import explain
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.contents import check_contents
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.inspect import describe
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.spec.derived import Granularity
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

FIELDS = [
    {"name": "ts", "type": "TIMESTAMP", "role": "dateTime"},
    {"name": "secs", "type": "LONG", "role": "dateTime", "format": "EPOCH|SECONDS"},
    {"name": "num", "type": "LONG"},
    {"name": "city", "type": "STRING"},
    {"name": "sold", "type": "INT", "role": "metric"},
]
SCHEMA = TableSchema.model_validate({"fields": FIELDS})
GRANULARITIES = {name: [str(one) for one in Granularity] for name in ("ts", "secs", "num")}
TREE = {
    "dimensionsSplitOrder": ["DATETRUNC('day', ts)", "city", "$secs$MONTH"],
    "functionColumnPairs": ["COUNT__*", "SUM__sold"],
    "maxLeafRecords": 5,
}
INDEXING = IndexingSpec.model_validate({"timestampGranularities": GRANULARITIES, "starTreeIndexConfigs": [TREE]})
RAW = IndexingSpec.model_validate({"timestampGranularities": GRANULARITIES, "encodings": {"ts": "RAW", "num": "RAW"}})
DAY_MS = 86_400_000


def rows(number: int, seed: int = 3) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    edges = [-(2**63), 2**63 - 1, -1, 0, 1, DAY_MS - 1]
    found = []
    for _ in range(number):
        ms = int(random.integers(-3 * 365, 3 * 365)) * DAY_MS // 7 + int(random.integers(DAY_MS))
        wild = int(random.choice(edges)) if random.integers(9) == 0 else ms * 1_001
        is_null = random.integers(5) == 0
        found.append(
            {
                "ts": None if is_null else ms,
                "secs": None if random.integers(6) == 0 else ms // 1_000,
                "num": wild,
                "city": f"c{random.integers(4)}",
                "sold": int(random.integers(100)),
            }
        )
    return found


def built(folder: Path, indexing: IndexingSpec, number: int = 900, seed: int = 3) -> ImmutableSegment:
    folder.mkdir(exist_ok=True)
    content = pa.Table.from_pylist(rows(number, seed), schema=arrow_schema(SCHEMA))
    request = BuildRequest(name=f"t_{seed}", table="t", schema=SCHEMA, indexing=indexing)
    return ImmutableSegment.open(build_segment(request, content, folder).path)


def table_of(*segments: Any, indexing: IndexingSpec | None = INDEXING) -> Table:
    return Table(SCHEMA, segments, ExecutionContext(schema=SCHEMA, indexing=indexing))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[ImmutableSegment]:
    folder = tmp_path_factory.mktemp("plain")
    return [built(folder, IndexingSpec(), seed=seed) for seed in (3, 4)]


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[ImmutableSegment]:
    folder = tmp_path_factory.mktemp("derived")
    return [built(folder, INDEXING, seed=seed) for seed in (3, 4)]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> ImmutableSegment:
    return built(tmp_path_factory.mktemp("raw"), RAW)


TERMS = [
    *("DATETRUNC('DAY', ts)", "DATETRUNC('month', ts, 'MILLISECONDS')", '"$ts$WEEK"', "DATETRUNC('YEAR', num)"),
    *("DATETRUNC('DAY', secs, 'SECONDS')", '"$secs$QUARTER"', "DATETRUNC('MONTH', secs, 'SECONDS')", '"$num$HOUR"'),
    *("DATETRUNC('DAY', ts, 'MILLISECONDS', 'America/New_York')", "DATETRUNC('DAY', secs)", '"$ts$DAY"'),
    *("DATETRUNC('DAY', ts, 'MILLISECONDS', 'UTC', 'DAYS')", "DATETRUNC('DAY', ts) + 1", "city"),
]
CONDITIONS = [
    *("DATETRUNC('DAY', ts) >= 0", "DATETRUNC('DAY', ts) = 86400000", "\"$ts$DAY\" < '1971-01-01'"),
    *("DATETRUNC('DAY', ts) IN (0, 86400000)", "city <> 'c1'", "DATETRUNC('MONTH', secs, 'SECONDS') > 0"),
    *("DATETRUNC('DAY', ts) IS NULL", "DATETRUNC('YEAR', num) <> 0", "DATETRUNC('DAY', ts) > \"$ts$MONTH\""),
    *("ts > 0", "NOT (DATETRUNC('WEEK', ts) = 0)", "DATETRUNC('MILLISECOND', num) < -5"),
]
AGGREGATES = ["COUNT(*)", "SUM(sold)", "MAX(DATETRUNC('DAY', ts))", "COUNT(*) FILTER (WHERE DATETRUNC('DAY', ts) > 0)"]


@st.composite
def queries(draw: st.DrawFn) -> str:
    keys = draw(st.lists(st.sampled_from(TERMS), max_size=3, unique=True))
    aggregates = draw(st.lists(st.sampled_from(AGGREGATES), min_size=0 if keys else 1, max_size=2, unique=True))
    conditions = draw(st.lists(st.sampled_from(CONDITIONS), max_size=2, unique=True))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    by = f" GROUP BY {', '.join(keys)}" if keys and aggregates else ""
    return f"SELECT {', '.join([*keys, *aggregates])} FROM t{where}{by} LIMIT 100000"


def check(table: Table, plain: Sequence[ImmutableSegment], sql: str, **options: str) -> None:
    wanted = table_of(*plain, indexing=IndexingSpec()).query(sql, **options)
    assert sorted(map(str, table.query(sql, **options))) == sorted(map(str, wanted)), sql


@settings(
    max_examples=count("MERLOT_DERIVED", quick=25, every=120, fuzz=5000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sql=queries(), nulls=st.booleans(), trees=st.booleans())
def test_queries_answer_what_they_do_without(
    segments: list[ImmutableSegment], plain: list[ImmutableSegment], sql: str, nulls: bool, trees: bool
) -> None:
    options = {"enableNullHandling": str(nulls).lower(), "useStarTree": str(trees).lower()}
    check(table_of(*segments), plain, sql, **options)
    check(table_of(segments[0], plain[1]), plain, sql, **options)


@settings(
    max_examples=count("MERLOT_DERIVED", quick=12, every=60, fuzz=5000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sql=queries(), nulls=st.booleans())
def test_columns_without_a_dictionary_answer_alike(
    raw: ImmutableSegment, plain: list[ImmutableSegment], sql: str, nulls: bool
) -> None:
    check(table_of(raw), plain[:1], sql, enableNullHandling=str(nulls).lower())


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("SELECT DATETRUNC('DAY', ts), MAX(num) FROM t GROUP BY DATETRUNC('DAY', ts)", "$ts$DAY"),
        ("SELECT MAX(num) FROM t WHERE datetrunc('month', ts) > 5", "$ts$MONTH"),
        ('SELECT COUNT(*) FROM t WHERE "$secs$WEEK" > 5 AND num > 3', "$secs$WEEK"),
        ("SELECT num FROM t ORDER BY DATETRUNC('HOUR', secs, 'SECONDS')", "$secs$HOUR"),
    ],
)
def test_explain_says_which_segments_read_it(
    segments: list[ImmutableSegment], plain: list[ImmutableSegment], sql: str, column: str
) -> None:
    with_it, without = table_of(segments[0], plain[1]).plans(sql)
    assert column in with_it
    assert column not in without


@pytest.mark.parametrize(
    "expression",
    [
        "DATETRUNC('DAY', ts, 'MILLISECONDS', 'Europe/Paris')",
        "DATETRUNC('DAY', ts, 'SECONDS')",
        "DATETRUNC('DAY', secs)",
        "DATETRUNC('DAY', ts, 'MILLISECONDS', 'UTC', 'SECONDS')",
    ],
)
def test_other_zones_and_units_are_computed(segments: list[ImmutableSegment], expression: str) -> None:
    [line] = table_of(segments[0]).plans(f"SELECT {expression} FROM t WHERE {expression} > 5")
    assert "$" not in line


def test_a_tree_answers_by_a_dimension_that_is_a_function(segments: list[ImmutableSegment]) -> None:
    sql = "SELECT DATETRUNC('DAY', ts), SUM(sold) FROM t WHERE \"$secs$MONTH\" > 0 GROUP BY DATETRUNC('DAY', ts)"
    [line] = table_of(segments[0]).plans(sql)
    assert "FILTER_STARTREE_INDEX(indexLookUp:star_tree[$ts$DAY, city, $secs$MONTH])" in line
    [line] = table_of(segments[0]).plans(sql, enableNullHandling="true")
    assert "STARTREE" not in line


def test_joined_trees_have_such_dimensions_too(segments: list[ImmutableSegment], plain: list[ImmutableSegment]) -> None:
    sql = "SELECT DATETRUNC('DAY', ts), SUM(sold) FROM t WHERE city = 'c1' GROUP BY 1 LIMIT 10000"
    table = table_of(*segments)
    for _ in range(3):
        check(table, plain, sql)
    leaf = plan(bind(parse(sql), SCHEMA)).leaf
    assert [row["joined"] for row in explain(leaf, segments, table.context)] == [True]


def test_what_the_table_no_longer_asks_for_is_not_read(segments: list[ImmutableSegment]) -> None:
    sql = "SELECT MAX(num) FROM t WHERE DATETRUNC('DAY', ts) > 5"
    for indexing, is_read in ((INDEXING, True), (IndexingSpec(), False)):
        assert ("$ts$DAY" in table_of(segments[0], indexing=indexing).plans(sql)[0]) is is_read


def test_a_column_whose_unit_is_another_today_is_computed(segments: list[ImmutableSegment]) -> None:
    fields = [{**one, "format": "EPOCH|MINUTES"} if one["name"] == "secs" else one for one in FIELDS]
    schema = TableSchema.model_validate({"fields": fields})
    table = Table(schema, segments[:1], ExecutionContext(schema=schema, indexing=INDEXING))
    [line] = table.plans("SELECT num FROM t WHERE DATETRUNC('DAY', secs, 'MINUTES') > 5")
    assert "$" not in line


def test_derived_columns_are_none_of_the_schemas(segments: list[ImmutableSegment]) -> None:
    assert len(table_of(segments[0]).query("SELECT * FROM t LIMIT 1")[0]) == len(FIELDS)
    assert "$ts$DAY" not in segments[0].column_names
    reported = [column.name for column in describe(segments[0].path).columns]
    assert "$ts$DAY" in reported
    assert "$num$YEAR" in reported
    check_contents(segments[0])


def test_a_sidecar_has_what_a_segment_lacks(tmp_path: Path, plain: list[ImmutableSegment]) -> None:
    for number, indexing in enumerate((INDEXING, RAW)):
        wanted = plan_of(plain[0].metadata, indexing)
        assert len(wanted.derived) == 27
        path = build_sidecar(plain[0], wanted, indexing, tmp_path)
        beside = plain[0].beside(Sidecar.open(path, plain[0].metadata, verify=True))
        sql = "SELECT DATETRUNC('DAY', ts), SUM(sold) FROM t WHERE \"$secs$MONTH\" > 0 GROUP BY 1 LIMIT 9999"
        table = table_of(beside, indexing=indexing)
        assert ("STARTREE" in table.plans(sql)[0]) is (number == 0)
        assert "$ts$DAY" in table.plans(sql)[0]
        check(table, plain[:1], sql)


def test_a_segment_that_has_them_lacks_nothing(segments: list[ImmutableSegment]) -> None:
    assert plan_of(segments[0].metadata, INDEXING).is_empty


def test_a_dimension_that_was_stored_without_a_dictionary_is_made_again(tmp_path: Path) -> None:
    asked_first = {"timestampGranularities": {"num": ["MILLISECOND"]}, "encodings": {"num": "RAW"}}
    only = IndexingSpec.model_validate(asked_first)
    segment = built(tmp_path, only)
    assert not segment.metadata.derived[0].encoding.has_dictionary
    tree = {"dimensionsSplitOrder": ["$num$MILLISECOND"], "functionColumnPairs": ["SUM__sold"]}
    asked = IndexingSpec.model_validate({"starTreeIndexConfigs": [tree]})
    wanted = plan_of(segment.metadata, asked)
    assert wanted.derived == ("$num$MILLISECOND",)
    sidecar = Sidecar.open(build_sidecar(segment, wanted, asked, tmp_path), segment.metadata, verify=True)
    table = table_of(segment.beside(sidecar), indexing=asked)
    sql = "SELECT SUM(sold) FROM t WHERE DATETRUNC('MILLISECOND', num) > 0"
    assert "STARTREE" in table.plans(sql)[0]
    check(table, [segment], sql)


def test_values_that_are_not_those_of_the_column_are_found(tmp_path: Path, segments: list[ImmutableSegment]) -> None:
    segment = ImmutableSegment.open(segments[0].path)
    metadata = segment.metadata
    names = {one.name: one for one in metadata.derived}
    lying = names["$ts$DAY"].model_copy(update={"name": "$ts$HOUR"})
    changed = tuple(lying if one.name == "$ts$HOUR" else one for one in metadata.derived)
    segment._opened.metadata = metadata.model_copy(update={"derived": changed})  # type: ignore[union-attr]
    with pytest.raises(CorruptionError, match=r"derived=\$ts\$HOUR"):
        check_contents(segment)


def test_rows_that_do_not_count_are_left_out(segments: list[ImmutableSegment]) -> None:
    from tests.unit.query.test_star_trees import Partly

    sql = "SELECT SUM(sold) FROM t WHERE DATETRUNC('DAY', ts) > 0"
    partly = replace(table_of(segments[0]), segments=[Partly(segments[0])])
    wanted = sum(row["sold"] for row in rows(900)[::2] if (row["ts"] or 0) >= DAY_MS)
    assert partly.query(sql) == [[float(wanted)]]


def test_a_merge_computes_them_of_its_own_rows(tmp_path: Path, plain: list[ImmutableSegment]) -> None:
    merge = MergePlan(table="t", schema=SCHEMA, indexing=INDEXING, time_column="ts", merge_type=MergeMode.CONCAT)
    outputs = list(run(merge, [one.path for one in plain], tmp_path, lambda *_: None, lambda: False, 1 << 28))
    segments = [ImmutableSegment.open(one.path) for one in outputs]
    for segment in segments:
        assert len(segment.metadata.derived) == 27
        check_contents(segment)
    sql = "SELECT DATETRUNC('DAY', ts), SUM(sold) FROM t WHERE \"$secs$MONTH\" > 0 GROUP BY 1 LIMIT 10000"
    table = table_of(*segments)
    assert all("$ts$DAY" in line for line in table.plans(sql))
    check(table, plain, sql)
