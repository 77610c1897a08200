"""Pinot's own 200 queries over airlineStats give DuckDB's answers, on one segment and on twelve; a quick run asks each
query of one of the two."""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.budget import IS_QUICK
from tests.oracle.airline_data import AirlineQuery, dataset, queries
from tests.sql.slt_answers import Row, first_difference, normalize, sort_rows
from tests.sql.slt_layouts import LAYOUTS, Layout
from tests.sql.slt_oracle import Oracle

_LAYOUTS = ("one-segment", "twelve-segments")
_FOLDER = Path(os.environ.get("MERLOT_TEST_DATA", ""))
pytestmark = pytest.mark.skipif(
    not os.environ.get("MERLOT_TEST_DATA"),
    reason="set MERLOT_TEST_DATA to a folder with airlineStats.parquet, its schema and on_time_200_queries.jsonl",
)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle([dataset(_FOLDER)])


@pytest.mark.parametrize("name", _LAYOUTS)
def test_answers_are_duckdbs(name: str, oracle: Oracle, tmp_path: Path) -> None:
    asked = [query for query in queries(_FOLDER) if not IS_QUICK or _layout_of(query) == name]
    assert asked
    with LAYOUTS[name]([dataset(_FOLDER)], tmp_path) as layout:
        problems = [
            f"line {query.line}: {problem}\n    {query.sql}"
            for query in asked
            if (problem := _problem(query, layout, oracle)) is not None
        ]
    assert not problems, f"{len(problems)} wrong answers\n" + "\n".join(problems)


def _layout_of(query: AirlineQuery) -> str:
    return _LAYOUTS[zlib.crc32(query.sql.encode()) % len(_LAYOUTS)]


def _problem(query: AirlineQuery, layout: Layout, oracle: Oracle) -> str | None:
    asked = query.with_order_columns() if query.is_selection and query.order_columns else query
    answer = layout.query(asked.sql)
    got = normalize(answer.rows, answer.types)
    wanted = normalize(oracle.rows(asked.duckdb_sql, nulls=False), answer.types)
    wanted = [_of_nothing(row, answer.columns) for row in wanted]
    count = min(_limit(asked.sql), len(wanted))
    if len(got) != count:
        return f"got {len(got)} rows, wanted {count}"
    if query.is_selection and query.order_columns:
        keys = len(query.order_columns)
        difference = first_difference([row[-keys:] for row in got], [row[-keys:] for row in wanted[:count]])
        return difference or _first_stranger(got, wanted)
    if query.order_columns or count == len(wanted):
        ordered = bool(query.order_columns)
        return first_difference(got if ordered else sort_rows(got), wanted[:count] if ordered else sort_rows(wanted))
    return _first_stranger(got, wanted)


def _limit(sql: str) -> int:
    found = re.search(r"LIMIT (\d+)", sql)
    return int(found.group(1)) if found else 10


def _of_nothing(row: Row, labels: Sequence[str]) -> Row:
    """A row of aggregates over no rows as Pinot gives it, with null handling off."""
    if None not in row:
        return row
    empty = {"sum": 0.0, "min": math.inf, "max": -math.inf, "avg": -math.inf}
    cells = zip(row, labels, strict=True)
    return tuple(empty.get(label[:3], cell) if cell is None else cell for cell, label in cells)


def _first_stranger(got: Sequence[Row], wanted: Sequence[Row]) -> str | None:
    """A row that the full answer does not have, or not as often."""
    remaining = [_rounded(row) for row in wanted]
    for row in got:
        if _rounded(row) not in remaining:
            return f"row {row} is not in DuckDB's answer"
        remaining.remove(_rounded(row))
    return None


def _rounded(row: Row) -> Row:
    return tuple(f"{cell:.9g}" if isinstance(cell, float) else cell for cell in row)
