"""Columns of more text than 32-bit offsets reach are queried as others are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from merlot.segment.mutable import coded, values

FIELDS = [
    {"name": "s", "type": "STRING"},
    {"name": "b", "type": "BYTES"},
    {"name": "tags", "type": "STRING", "multiValue": True},
    {"name": "price", "type": "BIG_DECIMAL"},
]
QUERIES = [
    "SELECT concat(s, s, '-'), upper(s), length(s) FROM t ORDER BY s LIMIT 20",
    "SELECT s || 'x', substr(s, 1) FROM t WHERE s <> 's3' AND s LIKE 's%' ORDER BY s",
    "SELECT CASE WHEN s > 's4' THEN s END, NULLIF(s, 's1') FROM t ORDER BY s LIMIT 20",
    "SELECT COALESCE(NULLIF(s, 's1'), 'none'), COUNT(*) FROM t GROUP BY COALESCE(NULLIF(s, 's1'), 'none') ORDER BY 1",
    "SELECT s, b, COUNT(*) FROM t GROUP BY s, b ORDER BY s, b LIMIT 100",
    "SELECT tags, COUNT(*) FROM t GROUP BY tags ORDER BY tags",
    "SELECT tags, b FROM t WHERE tags = 'x1' ORDER BY s, b LIMIT 20",
    "SELECT SUM(price), MAX(price), DISTINCTCOUNT(s), DISTINCTCOUNT(b) FROM t WHERE price >= 2",
]


@pytest.mark.parametrize("layout", ["consuming"], indirect=True)
def test_texts_with_wide_offsets_answer_as_others_do(
    make_table: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"s": f"s{n % 7}", "b": bytes([n % 5]), "tags": [f"x{k}" for k in range(n % 3)], "price": f"{n}.5"}
        for n in range(50)
    ]
    plain = make_table(FIELDS, rows)
    for module in (coded, values):
        monkeypatch.setattr(module, "MAX_SMALL_BYTES", 1)
    wide = make_table(FIELDS, rows)
    assert str(wide.segments[0].column("s").strings().type) == "large_string"
    for sql in QUERIES:
        assert wide.query(sql) == plain.query(sql), sql
