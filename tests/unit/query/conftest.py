"""Small tables over real segments, and a shortcut from SQL to JSON rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.budget import IS_QUICK
from tests.unit.query.tables import Table

from merlot.query.context import ExecutionContext
from merlot.query.shortcuts import coalesced_segments
from merlot.segment.arrow_types import arrow_schema
from merlot.segment.build.builder import build_segment
from merlot.segment.build.request import BuildRequest
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.segment.reader import Segment
from merlot.spec.indexing import IndexingSpec
from merlot.spec.schema import TableSchema


def consuming(request: BuildRequest, rows: pa.Table) -> ConsumingSegment:
    """Rows that came in two batches."""
    segment = ConsumingSegment(request, 0)
    half, whole = rows.num_rows // 2, rows.num_rows
    for start, stop in ((0, half), (half, whole)):
        segment.append(rows.slice(start, stop - start), np.arange(start, stop), stop)
    return segment


Rows = Sequence[dict[str, Any]]


MakeTable = Callable[..., Table]
_FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """At the quick level the cases of a test take turns with the layouts; one of fewer cases runs on each layout."""
    if not IS_QUICK:
        return
    tests: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and _FOLDER in item.path.parents and "layout" in _indices(item):
            tests[item.nodeid.partition("[")[0]].append(item)
    waiting = {item for cases in tests.values() for item in _out_of_turn(cases)}
    config.hook.pytest_deselected(items=list(waiting))
    items[:] = [item for item in items if item not in waiting]


def _out_of_turn(items: Sequence[pytest.Function]) -> list[pytest.Function]:
    layouts = sorted({_indices(item)["layout"] for item in items})
    cases = list(dict.fromkeys(map(_case, items)))
    if len(cases) < len(layouts):
        return []
    turns = {case: layouts[number % len(layouts)] for number, case in enumerate(cases)}
    return [item for item in items if _indices(item)["layout"] != turns[_case(item)]]


def _indices(item: pytest.Function) -> dict[str, int]:
    """Which of its values each parameter has."""
    return item.callspec.indices if hasattr(item, "callspec") else {}


def _case(item: pytest.Function) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, index) for name, index in _indices(item).items() if name != "layout"))


@pytest.fixture(scope="session")
def pool():
    with ThreadPoolExecutor(2) as threads:
        yield threads


@pytest.fixture(params=["apart", "joined", "consuming"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test that makes a table runs on segments as they are, on batches of them, and on segments that consume."""
    if request.param == "joined":
        monkeypatch.setattr(coalesced_segments, "SIGHTINGS", 1)
        monkeypatch.setattr(coalesced_segments, "MIN_SEGMENTS", 1)
    return str(request.param)


@pytest.fixture
def make_table(tmp_path: Path, pool: ThreadPoolExecutor, layout: str) -> MakeTable:
    """make_table(fields, rows…): each rows a segment; fields as in a manifest."""

    def make(fields: list[dict[str, Any]], *segments: Rows | pa.Table, indexing: IndexingSpec | None = None) -> Table:
        schema = TableSchema.model_validate({"fields": fields})
        opened: list[Segment] = []
        for number, rows in enumerate(segments):
            table = (
                rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=arrow_schema(schema))
            )
            request = BuildRequest(name=f"t_{number}", table="t", schema=schema, indexing=indexing or IndexingSpec())
            if layout == "consuming":
                opened.append(consuming(request, table).snapshot())
                continue
            opened.append(ImmutableSegment.open(build_segment(request, table, tmp_path).path))
        return Table(schema, opened, ExecutionContext(schema=schema, pool=pool))

    return make
