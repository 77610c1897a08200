"""EXPLAIN of several stages calls things as the query does."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from tests.sql.slt_stages import bind_stages

from merlot.broker.stages_explained import lines_of
from merlot.query.stages.leaves import RULE_NAMES, cut
from merlot.spec.schema import FieldSpec, TableSchema
from merlot.sql.parse import parse_statement
from merlot.values.types import TypeName


def schema(columns: Mapping[str, TypeName]) -> TableSchema:
    return TableSchema(fields=tuple(FieldSpec(name=name, type=type_) for name, type_ in columns.items()))


SCHEMAS = {
    "flights": schema({"carrier": TypeName.STRING, "delay": TypeName.INT, "day": TypeName.LONG}),
    "airlines": schema({"code": TypeName.STRING, "title": TypeName.STRING}),
}


AS_WRITTEN = f"SET skipPlannerRules = '{','.join(RULE_NAMES)}'; "


def explained(sql: str) -> list[str]:
    made = cut(bind_stages(parse_statement(AS_WRITTEN + sql), SCHEMAS))
    return [line for line, _, _ in lines_of(made.statement, {id_: leaf.query for id_, leaf in made.leaves.items()})]


@pytest.mark.parametrize(
    ("sql", "lines"),
    [
        (
            (
                "SELECT f.carrier, a.title FROM flights AS f JOIN airlines AS a ON f.carrier = a.code "
                "WHERE f.delay > 5 OR a.title = 'x' ORDER BY a.title LIMIT 3"
            ),
            [
                "STAGE_SELECT(columns:2, filter:(f.delay > '5') OR (a.title = 'x'), sort:[a.title ASC], limit:3)",
                "STAGE_JOIN(kind:INNER, on:f.carrier = a.code)",
                "STAGE_LEAF(table:flights, relation:f)",
                "STAGE_LEAF(table:airlines, relation:a)",
            ],
        ),
        (
            (
                "WITH late AS (SELECT carrier AS who, COUNT(*) AS n FROM flights GROUP BY carrier) "
                "SELECT who FROM late WHERE n > 2 ORDER BY n LIMIT 9"
            ),
            ["STAGE_WITH(name:late)", "late.n > '2'", "sort:[late.n ASC]", "STAGE_OF_WITH(name:late)"],
        ),
        (
            (
                "SELECT carrier, ROW_NUMBER() OVER (PARTITION BY carrier ORDER BY delay DESC) AS n FROM flights "
                "QUALIFY n < 3 ORDER BY 1 LIMIT 9"
            ),
            ["qualify:row_number() OVER (PARTITION BY flights.carrier ORDER BY flights.delay DESC) < '3'"],
        ),
        (
            "SELECT carrier FROM flights UNION SELECT title FROM airlines ORDER BY carrier LIMIT 5",
            ["STAGE_UNION(all:false, sort:[carrier ASC], limit:5)"],
        ),
        (
            (
                "SELECT v.a FROM (SELECT delay + 1 AS a, ROW_NUMBER() OVER (ORDER BY day) AS b FROM flights) AS v "
                "WHERE v.b = 2 LIMIT 5"
            ),
            ["filter:v.b = '2'"],
        ),
        (
            "SELECT carrier FROM flights AS f WHERE delay > (SELECT AVG(delay) FROM flights) LIMIT 5",
            ["cast(f.delay AS DOUBLE) > scalar subquery", "STAGE_SUBQUERY(kind:scalar)"],
        ),
    ],
)
def test_a_plan_names_what_the_query_names(sql: str, lines: list[str]) -> None:
    plan = explained(sql)
    text = "\n".join(plan)
    for line in lines:
        assert line in text, text
    assert not re.search(r"\b[a-z]+\d+\.c\d|\b[dnqtuvw]\d+\b", text), text
