"""A server leaves segments out by value and by limit; answers stay the same and the figures add up."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import QueryStats, to_pinot_rows
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.sidecar.build import build_sidecar
from merlot.segment.sidecar.plan import plan_of
from merlot.segment.sidecar.sidecar import Sidecar
from merlot.server.pruning import SetStatistics, prune
from merlot.spec.indexing import IndexingSpec, PartitionFunctionSpec, PartitioningSpec
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "day", "type": "INT"},
            {"name": "id", "type": "STRING"},
            {"name": "price", "type": "DOUBLE"},
            {"name": "tags", "type": "INT", "multiValue": True},
        ]
    }
)
FUNCTION = PartitionFunctionSpec(function_name="Murmur", num_partitions=4)
Ask = Callable[..., tuple[list[list[Any]], QueryStats]]


def rows_of(number: int, rng: random.Random) -> list[dict[str, Any]]:
    """Ten rows of days 10n to 10n + 9; segment 3 is empty, segment 5 has nulls."""
    if number == 3:
        return []
    is_null = number == 5
    return [
        {
            "day": None if is_null and row % 3 == 0 else number * 10 + row,
            "id": str(rng.randrange(40)),
            "price": rng.choice([float(number), float(number) + 0.5]),
            "tags": [number, number + rng.randrange(3)],
        }
        for row in range(10)
    ]


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[ImmutableSegment]:
    folder: Path = tmp_path_factory.mktemp("segments")
    rng = random.Random(1)
    opened = []
    for number in range(12):
        request = BuildRequest(
            name=f"t_{number}",
            table="t",
            schema=SCHEMA,
            # One segment of four has no filters, as if it had been built before the table asked for them.
            indexing=IndexingSpec(bloom=("id", "price", "tags") if number % 4 else ()),
            partitioning=PartitioningSpec(columns={"id": FUNCTION}),
        )
        rows = pa.Table.from_pylist(rows_of(number, rng), schema=arrow_schema(SCHEMA))
        opened.append(ImmutableSegment.open(build_segment(request, rows, folder).path))
    return opened


@pytest.fixture(scope="module")
def ask(segments: list[ImmutableSegment]) -> Ask:
    """Rows and figures, with pruning or without."""
    statistics = SetStatistics(segments)

    def answer(sql: str, *, pruned: bool) -> tuple[list[list[Any]], QueryStats]:
        logical = plan(bind(parse(sql), SCHEMA, {}))
        context = ExecutionContext(schema=SCHEMA)
        if not pruned:
            partial = execute(logical.leaf, segments, context)
        else:
            kept = prune(logical.leaf, segments, statistics, SCHEMA)
            partial = kept.count(execute(logical.leaf, kept.segments, context))
        return to_pinot_rows(reduce(logical, [partial], SCHEMA)), partial.stats

    return answer


@pytest.mark.parametrize(
    "condition",
    [
        "day = 45",
        "day BETWEEN 15 AND 33",
        "NOT day BETWEEN 15 AND 100",
        "day IN (1, 2, 118)",
        "day NOT IN (1, 2, 118)",
        "id = '7'",
        "id <> '7'",
        "id = '7' AND day < 60",
        "NOT (day = 45 AND id = '7')",
        "price > 10.4",
        "tags = 11",
        "tags <> 4",
        "NOT tags > 4",
        "day IS NULL",
        "day IS NOT NULL AND day > 90",
        "day = -2147483648",
        "day < 0",
    ],
)
@pytest.mark.parametrize("nulls", ["", "SET enableNullHandling = 'true'; "])
def test_answers_are_the_same_with_pruning(ask: Ask, condition: str, nulls: str) -> None:
    sql = f"{nulls}SELECT count(*), sum(price), min(day) FROM t WHERE {condition}"
    (rows, stats), (expected, before) = ask(sql, pruned=True), ask(sql, pruned=False)
    assert rows == expected
    assert stats.num_segments_queried == before.num_segments_queried == 12
    assert stats.total_docs == before.total_docs
    assert stats.num_segments_processed + stats.num_segments_pruned_by_server == 12
    assert stats.num_segments_matched == before.num_segments_matched


def test_filters_that_segments_got_later_leave_them_out(tmp_path: Path) -> None:
    opened, indexing = [], IndexingSpec(bloom=("id",), no_dictionary=("id",))
    for number in range(5):
        stored = IndexingSpec(no_dictionary=("id",))
        request = BuildRequest(name=f"late_{number}", table="t", schema=SCHEMA, indexing=stored)
        # Between the same bounds, so that nothing but the filters tells them apart.
        rows = pa.Table.from_pylist([{"id": one} for one in ("a", f"m{number}", "z")], schema=arrow_schema(SCHEMA))
        bare = ImmutableSegment.open(build_segment(request, rows, tmp_path).path)
        path = build_sidecar(bare, plan_of(bare.metadata, indexing), indexing, tmp_path)
        opened.append(bare.beside(Sidecar.open(path, bare.metadata)))
    leaf = plan(bind(parse("SELECT COUNT(*) FROM t WHERE id = 'm3'"), SCHEMA, {})).leaf
    assert prune(leaf, opened, SetStatistics(opened), SCHEMA).segments == [opened[3]]


def test_figures_tell_why_segments_were_left_out(ask: Ask) -> None:
    _, stats = ask("SELECT count(*) FROM t WHERE day BETWEEN 15 AND 25", pruned=True)
    assert stats.num_segments_processed == 2
    assert stats.num_segments_pruned_by_server == 10
    assert stats.num_segments_pruned_by_value == 9
    _, stats = ask("SELECT day FROM t LIMIT 15", pruned=True)
    assert stats.num_segments_processed == 2
    assert stats.num_segments_pruned_by_limit == 9


def test_a_limit_is_filled_from_the_first_segments_that_surely_match(ask: Ask) -> None:
    rows, stats = ask("SELECT day FROM t WHERE day >= 75 LIMIT 12", pruned=True)
    assert len(rows) == 12
    assert all(row[0] >= 75 for row in rows)
    assert stats.num_segments_processed == 2


@pytest.mark.parametrize(
    ("order", "num_processed"),
    [
        ("day LIMIT 12", 3),
        ("day DESC LIMIT 12", 2),
        ("day DESC, price LIMIT 3 OFFSET 6", 1),
        ("price DESC LIMIT 5", 1),
        ("price, id, day LIMIT 25", 3),
    ],
)
def test_an_order_with_a_limit_reads_the_segments_that_may_come_first(ask: Ask, order: str, num_processed: int) -> None:
    sql = f"SELECT day, price, id FROM t ORDER BY {order}"
    (rows, stats), (expected, _) = ask(sql, pruned=True), ask(sql, pruned=False)
    keys = [0] if order.startswith("day") else [1]
    assert [[row[key] for key in keys] for row in rows] == [[row[key] for key in keys] for row in expected]
    assert stats.num_segments_processed == num_processed


def test_with_null_handling_nulls_have_their_own_places(ask: Ask) -> None:
    sql = "SET enableNullHandling = 'true'; SELECT day FROM t ORDER BY day DESC LIMIT 3"
    assert ask(sql, pruned=True)[0] == ask(sql, pruned=False)[0]


def test_random_orders_with_limits(ask: Ask) -> None:
    rng = random.Random(7)
    for _ in range(150):
        column = rng.choice(["day", "price", "id"])
        where = rng.choice(["", f"WHERE day < {rng.randrange(130)}", f"WHERE price >= {rng.randrange(12)}.5"])
        direction = rng.choice(["", "DESC"])
        limit = f"LIMIT {rng.choice([0, 1, 5, 11, 40, 200])} OFFSET {rng.choice([0, 0, 7])}"
        sql = f"SELECT {column} FROM t {where} ORDER BY {column} {direction} {limit}"
        assert ask(sql, pruned=True)[0] == ask(sql, pruned=False)[0], sql
