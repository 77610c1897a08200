"""Two bounds of a column become one range, where that keeps the same rows."""

import pytest

from merlot.query.plan.binding import bind
from merlot.query.plan.rewrite import rewritten
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse
from merlot.tree.nodes import Expr

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "a", "type": "LONG"},
            {"name": "b", "type": "INT"},
            {"name": "at", "type": "TIMESTAMP"},
            {"name": "real", "type": "DOUBLE"},
            {"name": "s", "type": "STRING"},
            {"name": "j", "type": "JSON"},
            {"name": "many", "type": "INT", "multiValue": True},
        ]
    }
)


def of(where: str) -> Expr | None:
    return rewritten(bind(parse(f"SELECT COUNT(*) FROM t WHERE {where}"), SCHEMA).where)


@pytest.mark.parametrize(
    ("where", "same"),
    [
        ("a >= 1 AND a < 9", "a BETWEEN 1 AND 8"),
        ("a < 9 AND b = 3 AND a > 1", "a BETWEEN 2 AND 8 AND b = 3"),
        ("at > 5 AND at <= 9", "at BETWEEN 6 AND 9"),
        ("b = 1 OR (a >= 1 AND a <= 1)", "b = 1 OR a BETWEEN 1 AND 1"),
        ("NOT (a < 1 OR a > 9) AND b > 3", "NOT a < 1 AND NOT a > 9 AND b > 3"),
        ("a + 1 > 3 AND a + 1 < 5", "a + 1 BETWEEN 4 AND 4"),
        ("a > 5 AND a < 6", "FALSE"),
        ("b > 3 AND a > 9 AND a < 2", "FALSE"),
        ("s >= 'a' AND s <= 'b'", "s BETWEEN 'a' AND 'b'"),
        ("s >= 'a' AND b = 3 AND s <= 'b' AND s > 'a'", "s BETWEEN 'a' AND 'b' AND b = 3 AND s > 'a'"),
        ("b > 3 AND s >= 'b' AND s <= 'a'", "FALSE"),
    ],
)
def test_a_lower_and_an_upper_bound_are_a_range(where: str, same: str) -> None:
    assert of(where) == of(same)


@pytest.mark.parametrize(
    "where",
    [
        "many >= 1 AND many < 9",
        "real >= 1 AND real < 9",
        "a >= 1 AND a >= 3 AND a < 9",
        "a >= 1 AND b < 9",
        "s >= 'a' AND s < 'b'",
        "s > 'a' AND s <= 'b'",
        "j >= 'a' AND j <= 'b'",
        "a >= b AND a < 3",
    ],
)
def test_other_bounds_stay(where: str) -> None:
    assert "between" not in str(of(where))
