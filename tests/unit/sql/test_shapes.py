"""A filled template is the query that binding the text makes; texts that compute with constants have no template."""

from __future__ import annotations

import random
from functools import partial

import pytest

from merlot.errors import InvalidInputError
from merlot.query.plan.binding import bind
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse
from merlot.sql.shapes import Template, make_template, shape_of
from merlot.tree.nodes import BoundQuery, Call, Expr

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "i", "type": "INT"},
            {"name": "l", "type": "LONG"},
            {"name": "f", "type": "FLOAT"},
            {"name": "d", "type": "DOUBLE"},
            {"name": "b", "type": "BIG_DECIMAL"},
            {"name": "s", "type": "STRING"},
            {"name": "ts", "type": "TIMESTAMP", "role": "dateTime", "format": "TIMESTAMP"},
            {"name": "tags", "type": "INT", "multiValue": True},
        ]
    }
)


def bound(sql: str, *, nulls: bool = False) -> BoundQuery:
    return bind(parse(sql), SCHEMA, {"enableNullHandling": "true"} if nulls else {})


def template_of(sql: str, *, nulls: bool = False) -> Template | None:
    shape = shape_of(sql)
    return None if shape is None else make_template(shape, bound(sql, nulls=nulls), partial(bound, nulls=nulls))


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("i = 5", "i = 99999999999"),
        ("i = -5", "i = -7"),
        ("i > -5", "i > -2147483648"),
        ("l >= 5 AND l < 10", "l >= 7 AND l < 7"),
        ("l BETWEEN 5 AND 10", "l BETWEEN 10 AND 5"),
        ("i IN (1, 2, 3)", "i IN (7, 7, 99999999999)"),
        ("i NOT IN (1, 2)", "i NOT IN (4, 4)"),
        ("i = 1 OR i = 2", "i = 3 OR i = 3"),
        ("i <> 1 AND i <> 2", "i <> 3 AND i <> 3"),
        ("s = 'a'", "s = 'GROUP BY 5'"),
        ("s IN ('a', 'b') AND NOT s = 'c'", "s IN ('x', 'x') AND NOT s = 'x'"),
        ("d > 1.5 OR f <= 2", "d > 7.25 OR f <= 99999999999999999999"),
        ("b = 5", "b = 99999999999999999999999999"),
        ("ts >= '2024-01-01 00:00:00'", "ts >= '2023-05-06 07:08:09.5'"),
        ("ts >= 5", "ts >= 1700000000000"),
        ("tags = 5 AND tags <> 6", "tags = 1 AND tags <> 99999999999"),
        ("tags BETWEEN 5 AND 6", "tags BETWEEN 7 AND 99999999999"),
        ("NOT (i = 5 AND l > 6)", "NOT (i = 99999999999 AND l > 6)"),
        ("i BETWEEN 5 AND 9 AND l = 3", "i BETWEEN 1 AND 2 AND l = 4"),
        ("s LIKE '%a%' AND s NOT LIKE '_b'", "s LIKE 'c' AND s NOT LIKE 'c'"),
        ("s >= 'a' AND s <= 'b'", "s >= 'b' AND s <= 'a'"),
    ],
)
@pytest.mark.parametrize("nulls", [False, True])
def test_a_filled_template_is_the_bound_text(first: str, other: str, nulls: bool) -> None:
    for select in ("SELECT count(*), sum(l + 5) FROM t WHERE {} LIMIT 7", "SELECT s, 'k' FROM t WHERE {} ORDER BY 1"):
        made = template_of(select.format(first), nulls=nulls)
        shape = shape_of(select.format(other))
        if made is None or shape is None or shape.key != shape_of(select.format(first)).key:  # type: ignore[union-attr]
            pytest.fail("no template, or another shape")
        assert made.fill(shape.constants) == bound(select.format(other), nulls=nulls)


@pytest.mark.parametrize(
    "condition",
    [
        "s = lower('ABC')",
        "s = upper('abc')",
        "l = abs(5)",
        "l = 5 + 3",
        "l + 5 > 3",
        "l = CAST(5 AS LONG)",
        "5 = l",
        "s = 'it''s'",
        "s = 'a\\b'",
        "l = 5 -- comment",
        "l = 5 /* 6 */",
        "s LIKE 'a!%' ESCAPE '!'",
        "s LIKE lower('A%')",
        "lower(s) LIKE 'a%'",
        "i < 5.5",
        "l = '5'",
        "l > 5 AND CASE WHEN i = 3 THEN true ELSE false END",
    ],
)
def test_what_computes_with_constants_has_no_template(condition: str) -> None:
    assert template_of(f"SELECT count(*) FROM t WHERE {condition}") is None


def test_without_where_there_is_no_shape() -> None:
    assert shape_of("SELECT count(*) FROM t LIMIT 5") is None


def test_constants_after_where_belong_to_the_shape() -> None:
    first = shape_of("SELECT s FROM t WHERE i = 5 GROUP BY s HAVING count(*) > 3 LIMIT 5")
    other = shape_of("SELECT s FROM t WHERE i = 5 GROUP BY s HAVING count(*) > 4 LIMIT 5")
    assert first is not None
    assert other is not None
    assert first.key != other.key


def test_kinds_of_constants_make_shapes() -> None:
    keys = {shape_of(f"SELECT 1 FROM t WHERE i = {text}").key for text in ("5", "5.0", "'5'")}  # type: ignore[union-attr]
    assert len(keys) == 3


def test_constants_that_do_not_fit_are_told() -> None:
    made = template_of("SELECT count(*) FROM t WHERE ts = '2024-01-01 00:00:00'")
    shape = shape_of("SELECT count(*) FROM t WHERE ts = 'never'")
    assert made is not None
    assert shape is not None
    with pytest.raises(InvalidInputError):
        made.fill(shape.constants)


@pytest.mark.parametrize("nulls", [False, True])
def test_random_filters(nulls: bool) -> None:
    rng = random.Random(5)
    tried = 0
    for _ in range(300):
        condition = _condition(rng, 0)
        sql = f"SELECT count(*) FROM t WHERE {condition}"
        made = template_of(sql, nulls=nulls)
        if made is None:
            continue
        shape = shape_of(sql)
        assert shape is not None
        for _ in range(3):
            texts = [_constant(rng, isinstance(one.value, str)) for one in shape.constants]
            other = "".join(a + b for a, b in zip(shape.pieces, [*texts, ""], strict=True))
            other_shape = shape_of(other)
            assert other_shape is not None
            assert other_shape.key == shape.key
            filled, expected = made.fill(other_shape.constants).where, bound(other, nulls=nulls).where
            assert _in_order(filled) == _in_order(expected), other
            tried += 1
    assert tried > 300


def _in_order(expr: Expr | None) -> object:
    """Merging may leave the operands of AND, OR and IN in another order."""
    if not isinstance(expr, Call):
        return expr
    args = [_in_order(arg) for arg in expr.args]
    is_free = expr.function in ("and", "or", "in", "not_in")
    return expr.function, sorted(args, key=repr) if is_free else args


def _condition(rng: random.Random, depth: int) -> str:
    if depth < 3 and rng.random() < 0.5:
        parts = [_condition(rng, depth + 1) for _ in range(rng.choice([2, 3]))]
        joined = f" {rng.choice(['AND', 'OR'])} ".join(f"({part})" for part in parts)
        return f"NOT ({joined})" if rng.random() < 0.3 else joined
    name = rng.choice(["i", "l", "d", "s", "tags"])
    values = [_constant(rng, name == "s") for _ in range(3)]
    match rng.randrange(5):
        case 0:
            return f"{name} {rng.choice(['', 'NOT '])}IN ({', '.join(values)})"
        case 1:
            return f"{name} BETWEEN {values[0]} AND {values[1]}"
    return f"{name} {rng.choice(['=', '<>', '<', '>=', '!='])} {values[0]}"


def _constant(rng: random.Random, is_text: bool) -> str:
    if is_text:
        return rng.choice(["'a'", "'b'", "''", "'WHERE 5'"])
    return rng.choice(["0", "1", "2", "2147483647", "9223372036854775807", "99999999999999999999"])
