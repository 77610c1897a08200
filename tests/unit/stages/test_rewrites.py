"""Rules of rewriting: switched off by name, done where nothing is left to do, and short for long texts."""

from __future__ import annotations

import pytest
from tests.sql.slt_stages import bind_stages

from merlot.query.stages.engine_sql import engine_query
from merlot.query.stages.leaves import RULE_NAMES, CutStatement, cut
from merlot.query.stages.rewrites.rules import rewritten
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql.budget import Budget, PlanningCancelledError
from merlot.sql.parse import parse_statement
from merlot.tree.errors import SqlValidationError
from merlot.tree.relations import Statement
from merlot.tree.tree_json import from_json, to_json
from merlot.values.types import TypeName

SCHEMAS = {
    "t": TableSchema(
        fields=(
            FieldSpec(name="k", type=TypeName.STRING),
            FieldSpec(name="n", type=TypeName.INT),
            FieldSpec(name="m", type=TypeName.LONG),
        )
    )
}
WRAPPED = "SELECT k, COUNT(*) FROM (SELECT * FROM t) AS v WHERE n > 5 GROUP BY k"


def bound(sql: str) -> Statement:
    return bind_stages(parse_statement(sql), SCHEMAS)


def made(sql: str) -> CutStatement:
    return cut(bound(sql))


def test_rules_are_switched_off_by_name_without_regard_to_case() -> None:
    assert made(WRAPPED).rewrites.rules == ("MergeDerived", "AnswerDirectly")
    assert made(f"SET skipPlannerRules = 'x, answerdirectly'; {WRAPPED}").rewrites.rules == ("MergeDerived",)
    off = made(f"SET skipPlannerRules = '{','.join(RULE_NAMES)}'; {WRAPPED}")
    assert off.rewrites.rules == ()
    assert off.rewrites.statement is off.rewrites.before
    assert off.direct is None


def test_names_of_rules_of_pinot_switch_nothing_off() -> None:
    assert made(f"SET skipPlannerRules = 'FilterIntoJoin'; {WRAPPED}").direct is not None


@pytest.mark.parametrize(
    "sql",
    [
        WRAPPED,
        "SELECT a.k FROM (SELECT * FROM t WHERE n > 1) AS a LEFT JOIN (SELECT k FROM t WHERE m = 2) AS b ON a.k = b.k",
        "SELECT k FROM (SELECT k, n FROM t UNION ALL SELECT k, n FROM t) AS v WHERE n < 3 ORDER BY k LIMIT 4",
        "SELECT k, SUM(n) FROM (SELECT * FROM t WHERE n < 3 UNION ALL SELECT * FROM t WHERE n > 3) AS v GROUP BY k",
    ],
)
def test_a_rewritten_statement_is_not_rewritten_again(sql: str) -> None:
    once = rewritten(bound(sql))
    again = rewritten(once.statement)
    assert once.rules
    assert again.rules == ()
    assert again.statement is once.statement


def test_many_sides_of_a_set_operation_are_grouped_each() -> None:
    """Work that doubled with each side would not end."""
    sides = " UNION ALL ".join(f"SELECT * FROM t WHERE n = {number}" for number in range(90))
    leaves = made(f"SELECT k, COUNT(*) FROM ({sides}) AS v WHERE m > 5 GROUP BY k").leaves.values()
    assert len(leaves) == 90
    assert all(leaf.query.group_by and len(leaf.query.select) == 2 for leaf in leaves)


def test_expressions_that_double_with_each_subquery_stay_in_subqueries() -> None:
    source = "t"
    for number in range(20):
        source = f"(SELECT k, n + n AS n FROM {source}) AS v{number}"
    rules = made(f"SELECT SUM(n) FROM {source}").rewrites
    assert "MergeDerived" in rules.rules
    assert made(f"SELECT SUM(n) FROM {source}").direct is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT b, COUNT(*) FROM (SELECT k IS NULL AS b FROM t) v GROUP BY b HAVING NOT b",
        "SELECT b, NOT b, COUNT(*) FROM (SELECT k IS NULL AS b FROM t) v GROUP BY b",
        "SELECT NOT b, COUNT(*) FROM (SELECT k IS NULL AS b FROM t) v GROUP BY NOT b HAVING COUNT(*) > 1",
        "SELECT b, n FROM (SELECT k IS NULL AS b, COUNT(*) AS n FROM t GROUP BY k IS NULL) v WHERE NOT b",
        "SELECT b, n FROM (SELECT k IS NULL AS b, COUNT(*) AS n FROM t GROUP BY k IS NULL) v WHERE NOT b AND n > 1",
    ],
)
@pytest.mark.parametrize("nulls", ["true", "false"])
def test_not_of_a_key_that_tests_null_is_computed_from_the_key(sql: str, nulls: str) -> None:
    assert made(f"SET enableNullHandling = {nulls}; {sql}").leaves


@pytest.mark.parametrize(
    ("condition", "is_asked"), [("a.n = 1", True), ("CAST(a.k AS INT) = 1", False), ("a.m + a.m = 2", False)]
)
def test_a_leaf_is_asked_no_condition_that_may_fail_without_its_guard(condition: str, *, is_asked: bool) -> None:
    where = f"(b.k = 'n' AND {condition}) OR (b.k = 's' AND a.k = 'x')"
    leaves = made(f"SELECT COUNT(*) FROM t a JOIN t b ON a.n = b.n WHERE {where}").leaves.values()
    assert [leaf.query.where is not None for leaf in leaves] == [is_asked, True]


@pytest.mark.parametrize("factors", [2, 30])
def test_columns_that_each_subquery_reads_many_times_are_looked_at_once(factors: int) -> None:
    """Work that doubled with each subquery would not end."""
    source = "(SELECT CAST(n AS DOUBLE) AS x FROM t LIMIT 9) AS v"
    for number in range(20):
        source = f"(SELECT {' * '.join(['x'] * factors)} AS x FROM {source} LIMIT 9) AS v{number}"
    assert engine_query(made(f"SELECT x FROM {source} WHERE x > 0").statement).sql


def test_nulls_of_a_column_that_both_sides_of_many_unions_read_are_looked_for_once() -> None:
    """Work that doubled with each query of WITH would not end."""
    unions = ["q0 AS (SELECT 1 AS x)"]
    unions += [f"q{to} AS (SELECT x FROM q{to - 1} UNION ALL SELECT x FROM q{to - 1})" for to in range(1, 45)]
    assert made(f"WITH {', '.join(unions)} SELECT x FROM q44 WHERE x IS NULL").leaves == {}


@pytest.mark.parametrize(("factors", "levels"), [(3, 14), (70, 5)])
def test_subqueries_whose_text_multiplies_with_each_level_are_refused(factors: int, levels: int) -> None:
    sql = "SELECT SUM(m) FROM t"
    for _ in range(levels):
        sql = f"SELECT ({sql}) AS q FROM t WHERE {' * '.join(['q'] * factors)} > 0 LIMIT 1"
    with pytest.raises(SqlValidationError, match="repeats its subqueries too often"):
        engine_query(made(sql).statement)


def test_a_chain_of_decimals_is_written_once() -> None:
    """Work that doubled with each operator would not end."""
    number = "CAST(a.m AS DECIMAL)"
    sql = f"SELECT {' + '.join([number] * 60)} FROM t AS a JOIN t AS b ON a.k = b.k"
    assert engine_query(made(sql).statement).sql.count("+") == 59


def test_planning_of_stages_ends_when_nobody_waits() -> None:
    given_up = Budget()
    given_up.withdraw()
    outputs = ", ".join(f"a.n + {number}" for number in range(40))
    statement = bound(f"SELECT {outputs} FROM t AS a JOIN t AS b USING (k)")
    with pytest.raises(PlanningCancelledError):
        cut(statement, given_up)
    with pytest.raises(PlanningCancelledError):
        engine_query(cut(statement).statement, given_up)


@pytest.mark.parametrize("levels", [2, 6])
def test_expressions_that_are_too_deep_together_stay_in_subqueries(levels: int) -> None:
    source = "t"
    for number in range(levels):
        source = f"(SELECT n{' + 1' * 80} AS n FROM {source}) AS v{number}"
    for leaf in made(f"SELECT n FROM {source} WHERE n > 5 ORDER BY n").leaves.values():
        assert from_json(to_json(leaf.query)) == leaf.query


def test_a_table_that_no_row_is_asked_of_is_asked_nothing() -> None:
    cuts = made("WITH unread AS (SELECT * FROM t) SELECT k FROM t WHERE n = 1 UNION ALL SELECT k FROM t WHERE 1 = 2")
    assert len(cuts.leaves) == 1
    assert cuts.direct is not None
