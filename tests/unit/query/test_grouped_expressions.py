"""Rows grouped by an expression are the rows that show the same value of it, however its column is stored."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from merlot.spec.indexing import IndexingSpec

FIELDS = [
    {"name": "i", "type": "INT"},
    {"name": "l", "type": "LONG"},
    {"name": "f", "type": "FLOAT"},
    {"name": "d", "type": "DOUBLE"},
    {"name": "b", "type": "BOOLEAN"},
    {"name": "t", "type": "TIMESTAMP"},
    {"name": "x", "type": "BIG_DECIMAL"},
    {"name": "s", "type": "STRING"},
    {"name": "y", "type": "BYTES"},
]
RAW = IndexingSpec(no_dictionary=tuple(field["name"] for field in FIELDS))
EXPRESSIONS = (
    *(field["name"] for field in FIELDS),
    "-i",
    "-l",
    "-f",
    "-d",
    "-x",
    "i + 1",
    "l - i",
    "f + 1",
    "d * f",
    "x + i",
    "i * l",
    "i / 2",
    "d / 0",
    "x / 3",
    "i % 3",
    "d % 2",
    "x % 2",
    "ABS(i)",
    "ABS(f)",
    "ABS(d)",
    "ABS(x)",
    "LENGTH(s)",
    "UPPER(s)",
    "s || 'z'",
    "SUBSTR(s, 1)",
    "ROUND(l, 7)",
    *(f"CAST({one} AS {type_})" for one in "il" for type_ in ("INT", "LONG", "FLOAT", "DOUBLE", "BOOLEAN", "STRING")),
    "CAST(f AS DOUBLE)",
    "CAST(d AS FLOAT)",
    "CAST(d AS STRING)",
    "CAST(x AS DOUBLE)",
    "CAST(b AS INT)",
    "CAST(t AS LONG)",
    "CAST(l AS TIMESTAMP)",
    "CAST(x AS STRING)",
    "CAST(i AS BIG_DECIMAL)",
    "CASE WHEN i > 2 THEN f ELSE 0 END",
    "CASE WHEN i > 2 THEN d ELSE l END",
    "CASE WHEN i > 2 THEN x ELSE 1.50 END",
    "CASE WHEN i > 2 THEN s ELSE 'a' END",
    "DATETRUNC('day', t)",
    "(i > 2 AND d < 1)",
    "(s IN ('a', 'b'))",
    "(s LIKE 'a%')",
    "(d IS NULL)",
    "5 + 0",
    "'a'",
)


def rows() -> list[dict[str, Any]]:
    random = np.random.default_rng(17)
    pick = random.integers
    return [
        {
            "i": int(pick(-3, 6)),
            "l": int(pick(-3, 4)) * 2**28,
            "f": [0.0, -0.0, 1.5, float("nan"), -2.25, None][pick(6)],
            "d": [0.0, -0.0, 1e9, float("nan"), 0.1, None][pick(6)],
            "b": bool(pick(2)),
            "t": int(pick(0, 5)) * 40_000_000,
            "x": ["0", "1.5", "-1.5", "20", None][pick(5)],
            "s": ["", "a", "ab", "b", None][pick(5)],
            "y": [b"", b"a", b"\0"][pick(3)],
        }
        for _ in range(120)
    ]


def shown(cell: Any) -> Any:
    return "0.0" if isinstance(cell, float) and cell == 0 else str(cell)


@pytest.mark.parametrize("nulls", [False, True], ids=["defaults", "nulls"])
@pytest.mark.parametrize("indexing", [None, RAW], ids=["dictionary", "raw"])
def test_groups_are_those_of_the_values_that_rows_show(make_table, indexing, nulls):
    table = make_table(FIELDS, rows()[:50], rows()[50:], indexing=indexing)
    option = "SET enableNullHandling=true; " if nulls else ""
    for expression in EXPRESSIONS:
        values = table.query(f"{option}SELECT {expression} FROM t LIMIT 1000")
        expected = Counter(shown(row[0]) for row in values)
        got = table.query(f"{option}SELECT {expression}, COUNT(*) FROM t GROUP BY {expression} LIMIT 1000")
        assert {shown(row[0]): row[1] for row in got} == expected, expression
        assert len(got) == len(expected), expression
        pairs = table.query(f"{option}SELECT DISTINCT {expression}, l, f FROM t LIMIT 1000")
        every = table.query(f"{option}SELECT {expression}, l, f FROM t LIMIT 1000")
        assert {tuple(map(shown, row)) for row in pairs} == {tuple(map(shown, row)) for row in every}, expression
        assert len(pairs) == len({tuple(map(shown, row)) for row in every}), expression


def test_a_null_list_is_one_null_as_a_key_and_an_empty_one_is_in_no_group(make_table):
    fields = [{"name": "tags", "type": "STRING", "multiValue": True}, {"name": "n", "type": "INT", "role": "metric"}]
    rows = [{"tags": ["a", "b"], "n": 1}, {"tags": None, "n": 10}, {"tags": ["b"], "n": 100}, {"tags": ["a", "a"]}]
    sql = "SELECT VALUEIN(tags, 'a'), COUNT(*), SUM(n) FROM t GROUP BY VALUEIN(tags, 'a') ORDER BY 1"
    table = make_table(fields, rows[:2], rows[2:])
    assert table.query(sql, enableNullHandling="true") == [["a", 3, 1.0], [None, 1, 10.0]]
    assert table.query(sql) == [["a", 3, 1.0]]
    counted = "SELECT COUNTMV(tags), DISTINCTCOUNTMV(tags) FROM t"
    assert table.query(counted, enableNullHandling="true") == [[5, 2]]
    assert table.query(counted) == [[6, 3]]
