"""`starTree: auto`: what is chosen, by whom, and that it answers as rows do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.query.tables import Table

from merlot.query.context import ExecutionContext
from merlot.query.explain import explain
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.contents import check_contents
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.inspect import describe, draw_star_trees
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.segment.startree import automatic
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

FIELDS = [
    {"name": "id", "type": "LONG"},
    {"name": "user", "type": "INT"},
    {"name": "city", "type": "STRING"},
    {"name": "kind", "type": "STRING"},
    {"name": "tags", "type": "STRING", "multiValue": True},
    {"name": "day", "type": "INT", "role": "dateTime", "format": "EPOCH|DAYS"},
    {"name": "ts", "type": "TIMESTAMP", "role": "dateTime"},
    {"name": "sold", "type": "INT", "role": "metric"},
    {"name": "paid", "type": "BIG_DECIMAL", "role": "metric"},
]
SCHEMA = TableSchema.model_validate({"fields": FIELDS})
AUTO = IndexingSpec.model_validate(
    {"starTree": "auto", "encodings": {"ts": "RAW"}, "timestampGranularities": {"ts": ["MONTH"]}}
)


@pytest.fixture(autouse=True)
def layout() -> str:
    """Each segment by itself."""
    return "apart"


def rows(number: int, users: int = 400) -> list[dict[str, Any]]:
    random = np.random.default_rng(7)
    return [
        {
            "id": place,
            "user": int(random.integers(users)),
            "city": f"c{random.integers(6)}",
            "kind": f"k{random.integers(3)}",
            "tags": ["x"],
            "day": int(random.integers(2)),
            "ts": int(random.integers(90)) * 86_400_000 + place,
            "sold": int(random.integers(100)),
            "paid": str(int(random.integers(10**12)) * 10**12),
        }
        for place in range(number)
    ]


def built(folder: Path, indexing: IndexingSpec = AUTO, number: int = 4_000, users: int = 400) -> ImmutableSegment:
    content = pa.Table.from_pylist(rows(number, users), schema=arrow_schema(SCHEMA))
    request = BuildRequest(name=f"t_{number}_{users}", table="t", schema=SCHEMA, indexing=indexing)
    folder.mkdir(exist_ok=True)
    return ImmutableSegment.open(build_segment(request, content, folder).path)


def table_of(segment: ImmutableSegment, indexing: IndexingSpec = AUTO) -> Table:
    return Table(SCHEMA, [segment], ExecutionContext(schema=SCHEMA, indexing=indexing))


def uses_tree(table: Table, sql: str) -> bool:
    leaf = plan(bind(parse(sql), SCHEMA)).leaf
    return any("STARTREE" in (row.get("plan") or "") for row in explain(leaf, table.segments, table.context))


def test_columns_of_most_values_come_first_and_times_last_and_what_makes_too_many_documents_is_left_out(
    tmp_path: Path,
) -> None:
    [tree] = built(tmp_path).star_trees
    assert tree.is_automatic
    assert tree.dimensions == ("city", "kind", "$ts$MONTH", "day")
    assert tree.num_docs <= 400
    assert sorted(map(tuple, tree.functions)) == [("count", ""), ("sum", "paid"), ("sum", "sold")]


def test_a_segment_chooses_by_its_own_rows(tmp_path: Path) -> None:
    [tree] = built(tmp_path, users=2).star_trees
    assert tree.dimensions == ("city", "kind", "user", "$ts$MONTH", "day")


def test_more_values_than_a_dimension_may_have_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "MOST_VALUES", 5)
    [tree] = built(tmp_path).star_trees
    assert tree.dimensions == ("kind", "$ts$MONTH", "day")


@pytest.mark.parametrize("number", [1, 30])
def test_where_no_tree_is_worth_its_documents_there_is_none_and_none_is_looked_for_again(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "MOST_DOCUMENTS", 1)
    segment = built(tmp_path, number=number)
    assert segment.star_trees == ()
    assert segment.metadata.lacks_automatic_tree
    assert plan_of(segment.metadata, AUTO).is_empty


QUERIES = [
    "SELECT city, COUNT(*), SUM(sold), AVG(sold), SUM(paid) FROM t GROUP BY city ORDER BY city",
    "SELECT SUM(sold) FROM t WHERE city = 'c1' AND kind <> 'k2'",
    "SELECT DATETRUNC('MONTH', ts), SUMPRECISION(paid) FROM t WHERE day = 1 GROUP BY 1 ORDER BY 1",
    "SELECT kind, day, COUNT(*) FROM t WHERE city LIKE '%3' GROUP BY kind, day ORDER BY kind, day",
]


@pytest.mark.parametrize("sql", QUERIES)
def test_the_chosen_tree_answers_what_rows_do(tmp_path: Path, sql: str) -> None:
    table = table_of(built(tmp_path))
    assert uses_tree(table, sql)
    assert table.query(sql) == table.query(sql, useStarTree="false")


def test_without_auto_the_tree_is_not_used(tmp_path: Path) -> None:
    table = table_of(built(tmp_path))
    indexing = AUTO.model_copy(update={"star_tree": "none"})
    assert not uses_tree(replace(table, context=replace(table.context, indexing=indexing)), QUERIES[0])


def test_a_sidecar_chooses_what_a_build_does(tmp_path: Path) -> None:
    segment, wanted = built(tmp_path / "old", AUTO.model_copy(update={"star_tree": "none"})), built(tmp_path / "new")
    missing = plan_of(segment.metadata, AUTO)
    assert missing.automatic is not None
    sidecar = Sidecar.open(build_sidecar(segment, missing, AUTO, tmp_path), segment.metadata, verify=True)
    [tree], [theirs] = sidecar.star_trees, wanted.star_trees
    assert (tree.dimensions, tree.num_docs, tree.is_automatic) == (theirs.dimensions, theirs.num_docs, True)
    table = table_of(segment.beside(sidecar))
    for sql in QUERIES:
        assert uses_tree(table, sql)
        assert table.query(sql) == table.query(sql, useStarTree="false")


def test_equal_rows_make_equal_files(tmp_path: Path) -> None:
    assert built(tmp_path / "one").key == built(tmp_path / "other").key


def test_inspect_says_what_was_chosen(tmp_path: Path) -> None:
    path = built(tmp_path).path
    [tree] = describe(path).star_trees
    assert tree.is_automatic
    assert next(draw_star_trees(path, 10)).startswith(
        "star-tree 0, chosen by its columns of city, kind, $ts$MONTH, day"
    )
    check_contents(ImmutableSegment.open(path))
