"""Docs that are not valid are as if they were not there, whatever a query does."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from merlot.query.filter import docset
from merlot.query.shortcuts import scalar_aggregates
from merlot.segment.index.nulls import words_of
from merlot.segment.reader import SomeDocs
from merlot.segment.segment_view import SegmentView
from merlot.spec.indexing import IndexingSpec

FIELDS = [
    {"name": "k", "type": "INT"},
    {"name": "s", "type": "STRING"},
    {"name": "tags", "type": "STRING", "multiValue": True},
    {"name": "n", "type": "LONG", "role": "metric"},
]
QUERIES = [
    "SELECT COUNT(*) FROM t",
    "SELECT COUNT(*), SUM(n), MIN(n), MAX(n), AVG(n) FROM t",
    "SELECT COUNT(*), MAX(k) FROM t WHERE s = 's3'",
    "SELECT COUNT(*) FROM t WHERE NOT s = 's3'",
    "SELECT COUNT(*) FROM t WHERE s = 's3' OR k >= 0",
    "SELECT COUNT(*) FROM t WHERE k BETWEEN 3 AND 9 AND n % 2 = 0",
    "SELECT COUNT(*) FROM t WHERE k IS NULL",
    "SELECT COUNT(*) FROM t WHERE k IS NOT NULL",
    "SELECT COUNT(*) FILTER (WHERE s = 's1'), SUM(n) FROM t",
    "SELECT COUNT(*) FROM t WHERE tags = 'x1'",
    "SELECT COUNT(*) FROM t WHERE tags NOT IN ('x1', 'x2')",
    "SELECT s, COUNT(*), SUM(n) FROM t GROUP BY s ORDER BY s",
    "SELECT tags, COUNT(*) FROM t GROUP BY tags ORDER BY tags",
    "SELECT DISTINCT s FROM t ORDER BY s",
    "SELECT DISTINCTCOUNT(n), DISTINCTCOUNT(s) FROM t",
    "SELECT n, s, tags FROM t ORDER BY n LIMIT 5",
    "SELECT n FROM t ORDER BY n DESC LIMIT 5",
    "SELECT n FROM t LIMIT 1000",
    "SELECT n FROM t WHERE s IN ('s1', 's2') LIMIT 1000",
]


def rows(start: int, number: int) -> list[dict[str, Any]]:
    return [
        {
            "k": None if row % 11 == 0 else row % 17 - 2,
            "s": f"s{row % 7}",
            "tags": [f"x{row % (place + 3)}" for place in range(row % 3)],
            "n": row,
        }
        for row in range(start, start + number)
    ]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("indexing", [IndexingSpec(), IndexingSpec(sorted_columns=("s",), inverted=("k", "tags"))])
@pytest.mark.parametrize("nulls", ["true", "false"])
def test_only_valid_docs_are_seen(
    make_table: Callable[..., Any], share: float, indexing: IndexingSpec, nulls: str
) -> None:
    parts = [sorted(rows(0, 70), key=lambda row: row["s"]), sorted(rows(70, 200), key=lambda row: row["s"])]
    masks = [np.random.default_rng(3).random(len(part)) < share for part in parts]
    table = make_table(FIELDS, *parts, indexing=indexing)
    valid = [
        [row for row, is_valid in zip(part, mask, strict=True) if is_valid]
        for part, mask in zip(parts, masks, strict=True)
    ]
    segments = [
        SegmentView(segment, SomeDocs(words_of(mask))) for segment, mask in zip(table.segments, masks, strict=True)
    ]
    seen = replace(table, segments=segments)
    wanted = make_table(FIELDS, *valid, indexing=indexing)
    for sql in QUERIES:
        got, right = seen.query(sql, enableNullHandling=nulls), wanted.query(sql, enableNullHandling=nulls)
        if "ORDER BY" not in sql:
            got, right = sorted(got, key=str), sorted(right, key=str)
        assert got == right, sql


@pytest.mark.parametrize("share", [0.0, 0.01, 0.6, 0.99])
@pytest.mark.parametrize("where", ["", " WHERE k > 4", " WHERE n > 100", " WHERE n BETWEEN 70 AND 300 AND k <> 3"])
def test_extremes_are_of_valid_docs(
    make_table: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, share: float, where: str
) -> None:
    """Of docs that are told by bits, over several chunks."""
    monkeypatch.setattr(docset, "FEW_DOCS", 0)
    monkeypatch.setattr(scalar_aggregates, "CHUNK_DOCS", 128)
    part = rows(0, 500)
    mask = np.random.default_rng(3).random(len(part)) < share
    table = make_table(FIELDS, part)
    seen = replace(table, segments=[SegmentView(table.segments[0], SomeDocs(words_of(mask)))])
    wanted = make_table(FIELDS, [row for row, is_valid in zip(part, mask, strict=True) if is_valid])
    for selected in ("MIN(n), MAX(n)", "MIN(k), MAX(n), COUNT(*)", "MAX(k)", "MINMAXRANGE(n)", "SUM(n), MIN(n)"):
        sql = f"SELECT {selected} FROM t{where}"
        assert seen.query(sql) == wanted.query(sql), sql


def test_explain_names_the_valid_docs_and_the_nulls(make_table: Callable[..., Any]) -> None:
    table = make_table(FIELDS, rows(0, 64))
    valid = SomeDocs(words_of(np.arange(64) % 2 == 0))
    seen = replace(table, segments=[SegmentView(segment, valid) for segment in table.segments])
    text = "".join(seen.plans("SELECT COUNT(*) FROM t WHERE k IS NULL"))
    assert sorted(re.findall(r"indexLookUp:(\w+)", text)) == ["null_vector", "valid_docs"]


def test_options_show_deleted_keys_and_replaced_rows(make_table: Callable[..., Any]) -> None:
    table = make_table(FIELDS, rows(0, 64))
    newest, with_deleted = np.arange(64) % 4 == 0, np.arange(64) % 2 == 0
    valid = SomeDocs(words_of(newest), words_of(with_deleted))
    seen = replace(table, segments=[SegmentView(segment, valid) for segment in table.segments])
    sql = "SELECT COUNT(*), SUM(n) FROM t"
    assert seen.query(sql) == [[16, sum(range(0, 64, 4))]]
    assert seen.query(sql, skipUpsertDelete="true") == [[32, sum(range(0, 64, 2))]]
    assert seen.query(sql, skipUpsert="true") == [[64, sum(range(64))]]
    assert seen.query(sql, skipUpsert="true", skipUpsertDelete="true") == [[64, sum(range(64))]]
    assert seen.query(sql, skipUpsert="false") == [[16, sum(range(0, 64, 4))]]
