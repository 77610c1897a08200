"""Leaves that group below joins: only where few groups stand for many rows, and aggregates can be merged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pytest
from tests.sql.slt_stages import FEW_GROUPS, bind_stages

from merlot.query.plan.text import text_of
from merlot.query.stages.leaves import CutStatement, cut
from merlot.query.stages.rewrites.rules import rewritten
from merlot.query.stages.sizes import MAX_GROUPS, MIN_RATIO, MIN_ROWS, grouping_pays
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql.parse import parse_statement
from merlot.tree.nodes import TRUE, BoundQuery
from merlot.values.types import TypeName

TYPES = {"k": "STRING", "n": "INT", "m": "LONG", "d": "DOUBLE", "e": "BIG_DECIMAL"}
SCHEMA = TableSchema(
    fields=(
        *(FieldSpec(name=name, type=TypeName(type_)) for name, type_ in TYPES.items()),
        FieldSpec(name="tags", type=TypeName.STRING, multi_value=True),
    )
)
SCHEMAS = dict.fromkeys(("a", "b", "c"), SCHEMA)
NEW = ("GroupBelowJoins", "DistinctBelowJoins")


@dataclass(frozen=True)
class Sizes:
    rows: int | None
    groups: int | None

    def num_rows(self, _table: str) -> int | None:
        return self.rows

    def num_groups(self, _table: str, _columns: Collection[str]) -> int | None:
        return self.groups


def made(sql: str) -> CutStatement:
    return cut(bind_stages(parse_statement(sql), SCHEMAS), sizes=FEW_GROUPS)


def grouped(sql: str) -> set[str]:
    """The tables whose leaves group."""
    queries: list[BoundQuery] = [leaf.query for leaf in made(sql).leaves.values()]
    return {query.table for query in queries if query.group_by}


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        ("COUNT(*)", {"a", "b"}),
        ("SUM(a.n)", {"a", "b"}),
        ("SUM(a.n) FILTER (WHERE b.k = 'x')", {"a", "b"}),
        ("SUM(a.n + a.n)", {"a", "b"}),
        ("SUM(a.d), AVG(b.n + 1)", {"a", "b"}),
        ("AVG(b.m)", set()),
        ("SUM(a.m)", set()),
        ("SUM(a.n * b.n)", set()),
        ("SUM(a.e)", set()),
        ("MAX(a.n + b.n)", {"a", "b"}),
        ("COUNT(DISTINCT a.n)", {"a", "b"}),
        ("COUNT(DISTINCT a.d)", {"b"}),
        ("VAR_POP(a.d)", set()),
        ("SUM(CAST(a.k AS INT))", {"b"}),
        ("COUNT(a.tags)", set()),
    ],
)
def test_aggregates_decide_which_leaves_group(select: str, wanted: set[str]) -> None:
    assert grouped(f"SELECT b.k, {select} FROM a JOIN b ON a.n = b.n GROUP BY b.k") == wanted


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT a.k FROM a JOIN b ON a.n = b.n", set()),
        ("SELECT COUNT(*) FROM a JOIN b ON a.d = b.d", set()),
        ("SELECT COUNT(*) FROM a CROSS JOIN b", set()),
        ("SELECT COUNT(*) FROM a LEFT ASOF JOIN b MATCH_CONDITION(a.m >= b.m) ON a.n = b.n", {"a"}),
        ("SELECT COUNT(*) FROM a LEFT SEMI JOIN b ON a.n = b.n", {"a", "b"}),
        ("SELECT COUNT(COALESCE(a.n, 0)) FROM b LEFT JOIN a ON a.n = b.n", {"b"}),
        ("SELECT a.k, COUNT(*) FROM a, b WHERE a.n = b.n GROUP BY ROLLUP(a.k)", set()),
        ("SELECT k FROM a WHERE n > (SELECT AVG(b.n) FROM b WHERE b.m = a.m)", {"b"}),
        ("SELECT k FROM a WHERE n > (SELECT AVG(b.n) FROM b WHERE b.m = a.m LIMIT 1)", {"b"}),
        ("SELECT k FROM a WHERE n = (SELECT b.n FROM b WHERE b.m = a.m)", set()),
        ("SELECT k FROM a WHERE n NOT IN (SELECT b.n FROM b WHERE b.m = a.m)", {"b"}),
        ("SELECT k FROM a WHERE n > ALL (SELECT b.n FROM b)", {"b"}),
        ("SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.m = a.m LIMIT 1)", set()),
        ("SELECT k FROM a WHERE EXISTS (SELECT MAX(n) FROM b WHERE b.m = a.m)", {"b"}),
        ("SELECT COUNT(*) FROM a WHERE n IN (SELECT n FROM b WHERE b.m = a.m)", {"b"}),
    ],
)
def test_joins_and_tests_decide_which_leaves_group(sql: str, wanted: set[str]) -> None:
    assert grouped(sql) == wanted


def test_a_statement_is_not_rewritten_again() -> None:
    sql = "SELECT b.k, COUNT(*), AVG(c.d) FROM a JOIN b ON a.n = b.n LEFT JOIN c ON c.m = b.m GROUP BY b.k"
    once = rewritten(bind_stages(parse_statement(sql), SCHEMAS), sizes=FEW_GROUPS)
    assert once.rules == ("GroupBelowJoins",)
    assert rewritten(once.statement, sizes=FEW_GROUPS).statement is once.statement


def test_rules_do_nothing_where_nothing_is_known() -> None:
    sql = "SELECT COUNT(*) FROM a JOIN b ON a.n = b.n WHERE a.k IN (SELECT k FROM c)"
    for sizes in (None, Sizes(None, None), Sizes(MIN_ROWS, None), Sizes(MIN_ROWS, MIN_ROWS)):
        rules = cut(bind_stages(parse_statement(sql), SCHEMAS), sizes=sizes).rewrites.rules
        assert not set(NEW) & set(rules)


def test_groups_pay_if_they_stand_for_several_rows_each() -> None:
    assert grouping_pays(Sizes(MIN_ROWS, MIN_ROWS // MIN_RATIO), "a", ["k"], None)
    assert not grouping_pays(Sizes(MIN_ROWS, MIN_ROWS // MIN_RATIO + 1), "a", ["k"], None)
    assert not grouping_pays(Sizes(MIN_ROWS, 1), "a", ["k"], TRUE)
    assert not grouping_pays(Sizes(1 << 40, MAX_GROUPS + 1), "a", ["k"], None)


def test_what_is_computed_from_a_key_reads_the_key_of_the_groups() -> None:
    sql = "SELECT a.n + 1, COUNT(*) FROM a JOIN b ON a.k = b.k GROUP BY a.n HAVING a.n + 2 IN (SELECT n FROM c)"
    (leaf,) = (leaf for leaf in made(sql).leaves.values() if leaf.query.table == "a")
    assert [text_of(key) for key in leaf.query.group_by] == ["n", "k"]
