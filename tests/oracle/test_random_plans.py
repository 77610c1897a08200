"""Random plans over the whole grammar above leaves: rewritten, as written, and with any one rule switched off, a query
has the same rows, which are DuckDB's, in both modes of null handling.

`MERLOT_RANDOM_PLANS` sets how many, `MERLOT_SEED` which. Where null handling is off, DuckDB has default values for
nulls: queries that ask for nulls are compared among themselves alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.budget import IS_QUICK, seed
from tests.oracle.plan_generator import Plan, PlanGenerator, plan_tables
from tests.oracle.rounds import rounds
from tests.sql.slt_answers import Row, first_difference, normalize, sort_rows
from tests.sql.slt_layouts import InProcess, twelve_segments
from tests.sql.slt_oracle import Oracle

from merlot.query.stages.leaves import RULE_NAMES

SEED = seed(7)
EVERY_RULE = ",".join(RULE_NAMES)
MOST_PROBLEMS = 10


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with twelve_segments(plan_tables(SEED), tmp_path_factory.mktemp("plans")) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(plan_tables(SEED))


def rows(layout: InProcess, plan: Plan, *, nulls: bool, skipped: str) -> tuple[list[Row], list[str]]:
    """The sorted rows without these rules, and the types of their columns."""
    options = f"SET enableNullHandling = {str(nulls).lower()}; SET skipPlannerRules = '{skipped}'; "
    answer = layout.query(f"{options}SET useMultistageEngine = true; {plan.sql}")
    return sort_rows(normalize(answer.rows, answer.types)), answer.types


def problem(layout: InProcess, oracle: Oracle, plan: Plan, rules: list[str], *, nulls: bool) -> str | None:
    """How answers to a query differ."""
    text = f"{plan.sql}\n    nulls={nulls} "
    try:
        rewritten, types = rows(layout, plan, nulls=nulls, skipped="")
        for skipped in (EVERY_RULE, *rules):
            difference = first_difference(rewritten, rows(layout, plan, nulls=nulls, skipped=skipped)[0])
            if difference is not None:
                return f"{text}without {skipped}: {difference}"
        if plan.sees_nulls and not nulls:
            return None
        difference = first_difference(rewritten, sort_rows(normalize(oracle.rows(plan.duckdb, nulls=nulls), types)))
    except Exception as error:  # noqa: BLE001 (a crash is one query's result: the others still run)
        difference = f"{type(error).__name__}: {error}"
    return None if difference is None else f"{text}{difference}"


@pytest.mark.timeout(0)
def test_random_plans_have_the_rows_of_duckdb_with_and_without_rules(layout: InProcess, oracle: Oracle) -> None:
    problems: list[str] = []
    for number in rounds("MERLOT_RANDOM_PLANS", quick=24, every=400):
        plan = PlanGenerator(f"{SEED} {number}").plan()
        alone = [RULE_NAMES[number % len(RULE_NAMES)]] if IS_QUICK else list(RULE_NAMES)
        found = problem(layout, oracle, plan, alone, nulls=number % 2 == 0)
        problems += [] if found is None else [f"plan {number}: {found}"]
        if len(problems) >= MOST_PROBLEMS:
            break
    assert not problems, f"MERLOT_SEED={SEED}\n" + "\n".join(problems)
