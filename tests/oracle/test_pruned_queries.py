"""Random queries have the same answers with segment pruning and without it.

`MERLOT_SEED` repeats a run, `MERLOT_FUZZ_SECONDS` sets how long to look.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from query_generator import QueryGenerator, RandomQuery
from slt_answers import first_difference, normalize, sort_rows
from slt_data import Dataset, things
from slt_segments import build_paths
from wild_queries import WildGenerator
from wild_table import wild

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

_SECONDS = float(os.environ.get("MERLOT_FUZZ_SECONDS", "4"))
_ROWS = 150
_ROWS_PER_SEGMENT = 3
"""So few that bounds are narrow and many segments hold one value of a column, or only nulls."""


@contextmanager
def _opened(dataset: Dataset, folder: Path) -> Iterator[list[ImmutableSegment]]:
    with ExitStack() as stack:
        edges = list(range(0, _ROWS + 1, _ROWS_PER_SEGMENT))
        paths = build_paths(dataset, folder, edges, varied=True)
        yield [stack.enter_context(ImmutableSegment.open(path)) for path in paths]


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("MERLOT_SEED") or secrets.randbelow(1 << 32))


def test_pruning_never_changes_an_answer(tmp_path: Path, seed: int) -> None:
    generator = QueryGenerator(things().rows.slice(0, _ROWS), seed)
    with _opened(things(), tmp_path) as segments:
        num_queries, num_pruned = _compare(segments, things().schema, generator, seed, _SECONDS / 2)
    assert num_pruned > num_queries


def test_pruning_never_changes_an_answer_over_wild_values(tmp_path: Path, seed: int) -> None:
    deadline = time.monotonic() + _SECONDS / 2
    number = 0
    while number == 0 or time.monotonic() < deadline:
        random_ = random.Random(f"{seed} {number}")
        table = wild(random_, _ROWS)
        (tmp_path / str(number)).mkdir()
        with _opened(table, tmp_path / str(number)) as segments:
            seconds = min(5.0, deadline - time.monotonic())
            _compare(segments, table.schema, WildGenerator(table, random_), seed, seconds)
        number += 1


class Generator(Protocol):
    """Makes queries."""

    def query(self) -> RandomQuery: ...


def _compare(
    segments: list[ImmutableSegment], schema: TableSchema, generator: Generator, seed: int, seconds: float
) -> tuple[int, int]:
    """Queries asked, and segments pruned in all of them."""
    statistics = SetStatistics(segments)
    deadline = time.monotonic() + seconds
    num_queries = num_pruned = 0
    while time.monotonic() < deadline:
        query = generator.query()
        logical = plan(bind(parse(query.sql), schema, {}))
        kept = prune(logical.leaf, segments, statistics, schema)
        pruned = _rows(logical, kept.segments, schema)
        whole = _rows(logical, segments, schema)
        if not query.is_ordered:
            pruned, whole = sort_rows(pruned), sort_rows(whole)
        assert first_difference(pruned, whole) is None, f"seed {seed}: {query.sql}"
        num_queries += 1
        num_pruned += len(segments) - len(kept.segments)
    print(
        f"{num_queries} queries, {num_pruned / max(1, num_queries):.1f} of {len(segments)} segments pruned, seed {seed}"
    )
    return num_queries, num_pruned


def _rows(logical: Reduce, segments: Sequence[ImmutableSegment], schema: TableSchema) -> list[tuple[object, ...]]:
    partial: Partial = execute(logical.leaf, segments, ExecutionContext(schema=schema))
    table = reduce(logical, [partial], schema)
    columns = [column.to_pylist() for column in table.columns]
    types = [str(type_) for type_ in table.column_types]
    return normalize(list(zip(*columns, strict=True)), types)
