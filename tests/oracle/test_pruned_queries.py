"""Random queries have the same answers with segment pruning and without it.

`MERLOT_SEED` repeats a run, `MERLOT_FUZZ_SECONDS` sets how long to look.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest
from query_generator import QueryGenerator
from slt_answers import first_difference, normalize, sort_rows
from slt_data import things
from slt_segments import build_paths

from merlot.query.binding import bind
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.logical import LogicalPlan, plan
from merlot.query.partial import Partial
from merlot.query.reduce import reduce
from merlot.segment.immutable import ImmutableSegment
from merlot.server.pruning import SetStatistics, prune
from merlot.sql.parse import parse

_SECONDS = float(os.environ.get("MERLOT_FUZZ_SECONDS", "6"))
_ROWS = 150
_ROWS_PER_SEGMENT = 3
"""So few that bounds are narrow and many segments hold one value of a column, or only nulls."""


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ImmutableSegment]]:
    with ExitStack() as stack:
        edges = list(range(0, _ROWS + 1, _ROWS_PER_SEGMENT))
        paths = build_paths(things(), tmp_path_factory.mktemp("pruned"), edges, varied=True)
        yield [stack.enter_context(ImmutableSegment.open(path)) for path in paths]


def test_pruning_never_changes_an_answer(segments: list[ImmutableSegment]) -> None:
    seed = int(os.environ.get("MERLOT_SEED") or secrets.randbelow(1 << 32))
    generator = QueryGenerator(things().rows.slice(0, _ROWS), seed)
    statistics = SetStatistics(segments)
    schema = things().schema
    deadline = time.monotonic() + _SECONDS
    num_queries = num_pruned = 0
    while time.monotonic() < deadline:
        query = generator.query()
        logical = plan(bind(parse(query.sql), schema, {}))
        kept = prune(logical, segments, statistics, schema)
        pruned = _rows(logical, kept.segments)
        whole = _rows(logical, segments)
        if not query.is_ordered:
            pruned, whole = sort_rows(pruned), sort_rows(whole)
        assert first_difference(pruned, whole) is None, f"seed {seed}: {query.sql}"
        num_queries += 1
        num_pruned += len(segments) - len(kept.segments)
    print(
        f"{num_queries} queries, {num_pruned / max(1, num_queries):.1f} of {len(segments)} segments pruned, seed {seed}"
    )
    assert num_pruned > num_queries


def _rows(logical: LogicalPlan, segments: Sequence[ImmutableSegment]) -> list[tuple[object, ...]]:
    schema = things().schema
    partial: Partial = execute(logical, segments, ExecutionContext(schema=schema))
    table = reduce(logical, [partial], schema)
    columns = [column.to_pylist() for column in table.columns]
    types = [str(type_) for type_ in table.column_types]
    return normalize(list(zip(*columns, strict=True)), types)
