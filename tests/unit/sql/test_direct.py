"""A filter made straight from constants keeps the same rows as the one that binding makes."""

import itertools
import random
import re
from collections.abc import Callable
from functools import partial

import pytest

from merlot.query.plan.binding import bind
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse
from merlot.sql.shapes import Template, make_template, shape_of
from merlot.tree.nodes import BoundQuery, Call, Column, Expr, Literal
from merlot.tree.tree_json import where_from_json

SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "i", "type": "INT"},
            {"name": "l", "type": "LONG"},
            {"name": "s", "type": "STRING"},
            {"name": "c7654321000", "type": "INT"},
            {"name": "d", "type": "DOUBLE"},
            {"name": "tags", "type": "INT", "multiValue": True},
        ]
    }
)
INT_MAX = (1 << 31) - 1


def bound(sql: str, *, nulls: bool = False) -> BoundQuery:
    return bind(parse(sql), SCHEMA, {"enableNullHandling": "true"} if nulls else {})


def template_of(where: str, *, nulls: bool = False) -> Template | None:
    sql = f"SELECT COUNT(*) FROM t WHERE {where}"
    shape = shape_of(sql)
    return None if shape is None else make_template(shape, bound(sql, nulls=nulls), partial(bound, nulls=nulls))


def constants_of(where: str) -> tuple[Literal, ...]:
    shape = shape_of(f"SELECT COUNT(*) FROM t WHERE {where}")
    assert shape is not None
    return shape.constants


def keeps(expr: Expr | None, row: dict[str, int | str | None]) -> bool:
    """Whether a row passes, and no comparison with a null does; written apart from the engine."""
    if expr is None:
        return True
    if isinstance(expr, Literal):
        return bool(expr.value)
    assert isinstance(expr, Call)
    if expr.function in ("and", "or"):
        verdicts = [keeps(arg, row) for arg in expr.args]
        return all(verdicts) if expr.function == "and" else any(verdicts)
    column = expr.args[0]
    assert isinstance(column, Column)
    value = row[column.name]
    if value is None:
        return False
    operands = [arg.value for arg in expr.args[1:] if isinstance(arg, Literal)]
    compare: dict[str, Callable[..., bool]] = {
        "equals": lambda a: value == a,
        "less_than": lambda a: value < a,
        "less_than_or_equal": lambda a: value <= a,
        "greater_than": lambda a: value > a,
        "greater_than_or_equal": lambda a: value >= a,
        "between": lambda a, b: a <= value <= b,
        "not_equals": lambda a: value != a,
        "in": lambda *some: value in some,
        "not_in": lambda *some: value not in some,
        "like": lambda pattern: re.fullmatch(pattern.replace("%", ".*"), str(value)) is not None,
    }
    return bool(compare[expr.function](*operands))


SHAPES = [
    "l >= {} AND l < {}",
    "i > {} AND i <= {}",
    "i = {}",
    "l BETWEEN {} AND {} AND i = {}",
    "i > {} AND i > {} AND i < {}",
    "i > -{} AND l < {}",
    "s = 'x{}'",
    "s = 'x{}' AND l >= {} AND l <= {}",
    "i <> {} AND l <> {}",
    "i <> {} AND i <> {} AND l > {}",
    "i IN ({}, {}) AND s <> 'x{}'",
    "l NOT IN ({}, -{}) AND s LIKE '%{}'",
    "s >= 'x{}' AND s <= 'x{}' AND i >= {}",
    "s > 'x{}' AND s <= 'x{}' AND s >= 'x{}'",
    "s BETWEEN 'x{}' AND 'x{}'",
    "i = {} OR i = {} OR i = {}",
]
VALUES = [0, 1, 2, 3, INT_MAX - 1, INT_MAX, INT_MAX + 1, (1 << 63) - 1, 1 << 63, 1 << 70]


def fill_in(shape: str, values: list[int]) -> str:
    return shape.format(*values[: shape.count("{}")])


def rows(*, nulls: bool) -> list[dict[str, int | str | None]]:
    wholes = [-3, -1, 0, 1, 2, 3, INT_MAX - 1, INT_MAX, *[None] * nulls]
    texts = ["x1", "x2", "q", *[None] * nulls]
    return [{"i": one, "l": two, "s": s} for one, two, s in itertools.product(wholes, wholes, texts)]


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_rows_are_kept(shape: str, nulls: bool) -> None:
    template = template_of(fill_in(shape, [5, 6, 7]), nulls=nulls)
    assert template is not None
    assert template.direct is not None
    rng, num_filled, probes = random.Random(shape), 0, rows(nulls=nulls)
    for _ in range(60):
        where = fill_in(shape, [rng.choice(VALUES[: rng.choice((4, len(VALUES)))]) for _ in range(3)])
        filled = template.direct.fill(constants_of(where))
        if filled is None:
            continue
        num_filled += 1
        condition, encoded = filled
        assert where_from_json(encoded) == condition
        expected = bound(f"SELECT COUNT(*) FROM t WHERE {where}", nulls=nulls).where
        assert [keeps(condition, row) for row in probes] == [keeps(expected, row) for row in probes], where
    assert num_filled > 5


def test_two_bounds_of_a_column_become_one_between() -> None:
    template = template_of("l >= 5 AND l < 9")
    assert template is not None
    assert template.direct is not None
    filled = template.direct.fill(constants_of("l >= 10 AND l < 20"))
    assert filled is not None
    assert filled[0] == bound("SELECT COUNT(*) FROM t WHERE l BETWEEN 10 AND 19").where


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("l >= 5 AND l < 9", "l >= 20 AND l < 20"),
        ("l BETWEEN 5 AND 9", "l BETWEEN 9 AND 5"),
        ("i = 5", f"i = {INT_MAX}"),
        ("i = -5", f"i = -{INT_MAX + 1}"),
        ("l = 5", "l = 99999999999999999999"),
        ("i IN (1, 2)", "i IN (3, 3)"),
        ("i IN (1, 2)", f"i IN (3, {INT_MAX + 1})"),
        ("s >= 'a' AND s <= 'b'", "s >= 'b' AND s <= 'a'"),
    ],
)
def test_constants_that_might_fold_are_left_to_binding(first: str, other: str) -> None:
    template = template_of(first)
    assert template is not None
    assert template.direct is not None
    assert template.direct.fill(constants_of(other)) is None


@pytest.mark.parametrize(
    "where",
    ["i = 1 OR l = 2", "d > 5", "tags = 5", "tags IN (5, 6)", "NOT i > 5", "s NOT LIKE 'a'", "i > 5 AND d > 1"],
)
def test_other_filters_are_not_made_directly(where: str) -> None:
    template = template_of(where)
    assert template is None or template.direct is None


def test_a_column_named_like_a_mark_is_not_mistaken_for_one() -> None:
    template = template_of("c7654321000 = 5")
    assert template is None or template.direct is None


@pytest.mark.parametrize("text", ['"', "\\", "ß", "", "a\nb"])
def test_texts_are_written_as_json(text: str) -> None:
    template = template_of("s = 'x'")
    assert template is not None
    assert template.direct is not None
    filled = template.direct.fill((Literal(text, constants_of("s = 'x'")[0].type),))
    assert filled is not None
    assert where_from_json(filled[1]) == filled[0]
