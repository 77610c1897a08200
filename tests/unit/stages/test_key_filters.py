"""Filters of leaves by the keys of other leaves: which hold, which are worth waiting for, and what they ask."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.sql.slt_stages import bind_stages

from merlot.query.plan.text import text_of
from merlot.query.stages.key_filters import MAX_KEYS, MIN_RATIO, KeyFilter, narrowed, worthwhile
from merlot.query.stages.leaves import cut
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql.parse import parse_statement
from merlot.tree.nodes import Column, Expr
from merlot.tree.types import LONG, STRING, SqlType
from merlot.values.types import TypeName

TYPES = {"k": "STRING", "n": "INT", "m": "LONG", "d": "DOUBLE"}
SCHEMA = TableSchema(fields=tuple(FieldSpec(name=name, type=TypeName(type_)) for name, type_ in TYPES.items()))
BY_NUMBER = KeyFilter("b", Column("m", LONG), "a", 0)


def filtered(sql: str) -> set[str]:
    """The filtered leaf's table and column, and the table and column of the keys."""
    made = cut(bind_stages(parse_statement(sql), dict.fromkeys(("a", "b", "c"), SCHEMA)))
    sources = {id_: leaf.query for id_, leaf in made.leaves.items()}
    return {
        f"{sources[item.leaf].table}.{item.column.name} by "
        f"{sources[item.source].table}.{text_of(sources[item.source].select[item.position].expr)}"
        for item in made.filters
    }


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT 1 FROM a JOIN b ON a.k = b.k", {"a.k by b.k", "b.k by a.k"}),
        ("SELECT 1 FROM a, b WHERE a.k = b.k", {"a.k by b.k", "b.k by a.k"}),
        ("SELECT 1 FROM a LEFT JOIN b ON a.k = b.k", {"b.k by a.k"}),
        ("SELECT 1 FROM a RIGHT JOIN b ON a.k = b.k", {"a.k by b.k"}),
        ("SELECT 1 FROM a FULL JOIN b ON a.k = b.k", set()),
        ("SELECT 1 FROM a LEFT ANTI JOIN b ON a.k = b.k", {"b.k by a.k"}),
        ("SELECT 1 FROM a LEFT SEMI JOIN b ON a.k = b.k", {"a.k by b.k", "b.k by a.k"}),
        ("SELECT 1 FROM a JOIN b ON a.k = b.k OR a.m = b.m", set()),
        ("SELECT 1 FROM a JOIN b ON a.d = b.d", set()),
        ("SELECT 1 FROM a WHERE k IN (SELECT k FROM b)", {"a.k by b.k"}),
        ("SELECT 1 FROM a WHERE k NOT IN (SELECT k FROM b)", set()),
        ("SELECT 1 FROM a WHERE k IN (SELECT k FROM b) OR m = 1", set()),
        ("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k)", {"b.k by a.k"}),
        ("SELECT 1 FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k)", {"b.k by a.k"}),
        ("SELECT 1 FROM a JOIN (SELECT k, m FROM b ORDER BY m LIMIT 3) AS v ON a.k = v.k", {"a.k by b.k"}),
        ("SELECT 1 FROM a JOIN (SELECT k, COUNT(*) FROM b GROUP BY k) AS v ON a.k = v.k", {"a.k by b.k", "b.k by a.k"}),
        ("SELECT 1 FROM a JOIN (SELECT k, MAX(m) AS m FROM b GROUP BY k) AS v ON a.m = v.m", {"a.m by b.maxlong(m)"}),
        ("SELECT v.n FROM a JOIN (SELECT k, ROW_NUMBER() OVER (ORDER BY k) n FROM b) v ON a.k = v.k", {"a.k by b.k"}),
        ("SELECT 1 FROM a JOIN (SELECT k FROM b UNION SELECT k FROM c) AS v ON a.k = v.k", set()),
        ("SET skipPlannerRules = 'keyfilters'; SELECT 1 FROM a JOIN b ON a.k = b.k", set()),
    ],
)
def test_a_leaf_is_filtered_where_rows_without_a_match_are_of_no_use(sql: str, wanted: set[str]) -> None:
    assert filtered(sql) == wanted


def test_the_nullable_side_of_an_outer_join_filters_and_is_not_filtered_from_outside() -> None:
    sql = "SELECT 1 FROM a LEFT JOIN b ON a.m = b.m JOIN c ON b.k = c.k"
    assert filtered(f"SET skipPlannerRules = 'reducejoins'; {sql}") == {"b.m by a.m", "c.k by b.k"}
    assert filtered(sql) == {"a.m by b.m", "b.m by a.m", "b.k by c.k", "c.k by b.k"}


def test_a_leaf_waits_only_for_a_much_smaller_leaf() -> None:
    assert worthwhile([BY_NUMBER], {"a": 100, "b": 100 * MIN_RATIO}) == {"b": (BY_NUMBER,)}
    assert worthwhile([BY_NUMBER], {"a": 100, "b": 100 * MIN_RATIO - 1}) == {}
    assert worthwhile([BY_NUMBER], {"a": 0, "b": 0}) == {}


@pytest.mark.parametrize(
    ("type_", "values", "wanted"),
    [
        (LONG, [], "'false'"),
        (LONG, [None], "'false'"),
        (LONG, [7, None, 7], "m = '7'"),
        (LONG, [9, 7, 9], "m IN ('7','9')"),
        (LONG, list(range(MAX_KEYS + 1)), f"m BETWEEN '0' AND '{MAX_KEYS}'"),
        (STRING, [str(number) for number in range(MAX_KEYS + 1)], None),
    ],
)
def test_keys_become_a_list_and_many_keys_their_bounds(
    type_: SqlType, values: list[object], wanted: str | None
) -> None:
    keys = pa.array(values, pa.string() if type_ == STRING else pa.int64())
    made: Expr | None = narrowed(None, [KeyFilter("b", Column("m", type_), "a", 0)], [keys])
    assert (None if made is None else text_of(made)) == wanted
