"""Random queries have the same answers with segment pruning and without it.

`MERLOT_SEED` repeats a run, `MERLOT_PRUNED_QUERIES` sets how many queries.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests import budget
from tests.oracle.query_generator import QueryGenerator, RandomQuery
from tests.oracle.rounds import rounds
from tests.oracle.wild_queries import WildGenerator
from tests.oracle.wild_table import wild
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_data import Dataset, things
from tests.sql.slt_segments import build_paths

from merlot.query.answer.partial import Partial
from merlot.query.answer.reduce import reduce
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.query.plan.nodes import Reduce
from merlot.segment.immutable import ImmutableSegment
from merlot.server.pruning import SetStatistics, prune
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse

_ROWS = 150
_QUERIES_PER_TABLE = 50
_ROWS_PER_SEGMENT = 3
"""So few that bounds are narrow and many segments hold one value of a column, or only nulls."""


@contextmanager
def _opened(dataset: Dataset, folder: Path) -> Iterator[list[ImmutableSegment]]:
    with ExitStack() as stack:
        edges = list(range(0, _ROWS + 1, _ROWS_PER_SEGMENT))
        paths = build_paths(dataset, folder, edges, varied=True)
        yield [stack.enter_context(ImmutableSegment.open(path)) for path in paths]


@pytest.mark.timeout(0)
def test_pruning_never_changes_an_answer(tmp_path: Path) -> None:
    seed = budget.seed()
    generator = QueryGenerator(things().rows.slice(0, _ROWS), seed)
    with _opened(things(), tmp_path) as segments:
        statistics = SetStatistics(segments)
        num_pruned = [
            _num_pruned(segments, statistics, things().schema, generator.query(), seed)
            for _ in rounds("MERLOT_PRUNED_QUERIES", quick=60, every=500, share=0.5)
        ]
    assert sum(num_pruned) > len(num_pruned)


@pytest.mark.timeout(0)
def test_pruning_never_changes_an_answer_over_wild_values(tmp_path: Path) -> None:
    seed = budget.seed()
    for number in rounds("MERLOT_PRUNED_TABLES", quick=1, every=10, share=0.5):
        random_ = random.Random(f"{seed} {number}")
        table = wild(random_, _ROWS)
        generator = WildGenerator(table, random_)
        (tmp_path / str(number)).mkdir()
        with _opened(table, tmp_path / str(number)) as segments:
            statistics = SetStatistics(segments)
            for _ in range(_QUERIES_PER_TABLE):
                _num_pruned(segments, statistics, table.schema, generator.query(), seed)


def _num_pruned(
    segments: list[ImmutableSegment], statistics: SetStatistics, schema: TableSchema, query: RandomQuery, seed: int
) -> int:
    """How many segments are left out; the answer has to be that of all."""
    logical = plan(bind(parse(query.sql), schema, {}))
    kept = prune(logical.leaf, segments, statistics, schema)
    pruned, whole = _rows(logical, kept.segments, schema), _rows(logical, segments, schema)
    if not query.is_ordered:
        pruned, whole = sort_rows(pruned), sort_rows(whole)
    assert first_difference(pruned, whole) is None, f"MERLOT_SEED={seed}: {query.sql}"
    return len(segments) - len(kept.segments)


def _rows(logical: Reduce, segments: Sequence[ImmutableSegment], schema: TableSchema) -> list[tuple[object, ...]]:
    partial: Partial = execute(logical.leaf, segments, ExecutionContext(schema=schema))
    table = reduce(logical, [partial], schema)
    columns = [column.to_pylist() for column in table.columns]
    types = [str(type_) for type_ in table.column_types]
    return normalize(list(zip(*columns, strict=True)), types)
