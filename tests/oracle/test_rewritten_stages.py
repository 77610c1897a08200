"""Rules of rewriting change no answer: a query from subqueries around a table is the query from the table, and with any
rule switched off the rows are the same.

`MERLOT_REWRITTEN` sets how many queries, `MERLOT_REWRITTEN_PLANS` how many random plans, `MERLOT_SEED` which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.budget import count, seed
from tests.oracle.null_generator import NullGenerator
from tests.oracle.rewrite_generator import FORMS, ONE_LEAF, RewriteGenerator, with_subqueries
from tests.oracle.stage_generator import StageGenerator
from tests.oracle.test_stage_nulls import _holes
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_data import edges, things
from tests.sql.slt_layouts import InProcess, twelve_segments
from tests.sql.slt_oracle import Oracle
from tests.sql.slt_stages import bind_stages

from merlot.query.stages.leaves import RULE_NAMES, cut
from merlot.sql.parse import parse_statement

NUMBER = count("MERLOT_REWRITTEN", quick=12, every=300)
PLANS = count("MERLOT_REWRITTEN_PLANS", quick=15, every=300, fuzz=20_000)
SEED = seed(3)
USED = [things(), edges()]
STAGED = "SET useMultistageEngine = true; "


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with twelve_segments([*USED, _holes()], tmp_path_factory.mktemp("rewritten")) as made:
        assert isinstance(made, InProcess)
        yield made


def options(*, nulls: bool, skipped: str = "") -> str:
    return f"SET enableNullHandling = {str(nulls).lower()}; SET skipPlannerRules = '{skipped}'; {STAGED}"


def problem(found: Callable[[], str | None], text: str) -> list[str]:
    try:
        difference = found()
    except Exception as error:  # noqa: BLE001 (a crash is one query's result: the others still run)
        difference = f"{type(error).__name__}: {error}"
    return [] if difference is None else [f"{text}\n    {difference}"]


def difference(layout: InProcess, sql: str, wanted: list[object]) -> str | None:
    answer = layout.query(sql)
    return first_difference(sort_rows(normalize(answer.rows, answer.types)), wanted)


@pytest.mark.timeout(0)
def test_every_form_of_a_query_has_the_rows_of_duckdb(layout: InProcess) -> None:
    oracle, generator, problems = Oracle(USED), RewriteGenerator(SEED), []
    for number in range(NUMBER):
        query = generator.query()
        for nulls in (number % 2 == 0,) if NUMBER < 100 else (False, True):
            before = options(nulls=nulls)
            plain = layout.query(before + query.text("plain"))
            wanted = sort_rows(normalize(plain.rows, plain.types))
            for form in FORMS:
                text = before + query.text(form)
                problems += problem(lambda text=text, wanted=wanted: difference(layout, text, wanted), text)
            if nulls or not query.sees_nulls:
                text = query.text("plain")
                duckdb = sort_rows(normalize(oracle.rows(text, nulls=nulls), plain.types))
                problems += problem(lambda duckdb=duckdb, wanted=wanted: first_difference(wanted, duckdb), text)
    assert not problems, f"{len(problems)} of {NUMBER}, MERLOT_SEED={SEED}\n" + "\n".join(problems[:10])


def test_a_query_of_subqueries_asks_servers_what_the_query_of_the_table_asks() -> None:
    """So it prunes the same segments, reads the same columns, and uses the same indexes and star-trees."""
    generator = RewriteGenerator(SEED)
    schemas = {dataset.name: dataset.schema for dataset in USED}
    for number in range(NUMBER):
        query = generator.query()
        asked = []
        for form in ONE_LEAF:
            statement = parse_statement(options(nulls=number % 2 == 0) + query.text(form))
            made = cut(bind_stages(statement, schemas))
            assert made.direct is not None, query.text(form)
            asked.append(made.direct.query)
        assert all(one == asked[0] for one in asked), query


@pytest.mark.timeout(0)
@pytest.mark.parametrize("rule", [*RULE_NAMES, ",".join(RULE_NAMES)], ids=[*RULE_NAMES, "all"])
def test_no_rule_changes_rows(layout: InProcess, rule: str) -> None:
    generator, problems = RewriteGenerator(SEED), []
    for number in range(max(10, NUMBER // 3)):
        query, nulls = generator.query(), number % 2 == 0
        form = list(FORMS)[1 + number % (len(FORMS) - 1)]
        answer = layout.query(options(nulls=nulls) + query.text(form))
        wanted = sort_rows(normalize(answer.rows, answer.types))
        text = options(nulls=nulls, skipped=rule) + query.text(form)
        problems += problem(lambda text=text, wanted=wanted: difference(layout, text, wanted), text)
    assert not problems, f"{len(problems)}, MERLOT_SEED={SEED}\n" + "\n".join(problems[:10])


@pytest.mark.timeout(0)
def test_random_plans_have_the_rows_of_plans_that_are_not_rewritten(layout: InProcess) -> None:
    stages, holes, problems = StageGenerator(SEED), NullGenerator(SEED), []
    for number in range(PLANS):
        sql = with_subqueries(stages.query(), SEED + number) if number % 3 else holes.query().merlot
        nulls = number % 4 < 2
        wrapped = f"SELECT * FROM ({sql}) AS wrapped" if number % 8 < 4 else sql
        answer = layout.query(options(nulls=nulls, skipped=",".join(RULE_NAMES)) + wrapped)
        wanted = sort_rows(normalize(answer.rows, answer.types))
        text = options(nulls=nulls) + wrapped
        problems += problem(lambda text=text, wanted=wanted: difference(layout, text, wanted), text)
    assert not problems, f"{len(problems)} of {PLANS}, MERLOT_SEED={SEED}\n" + "\n".join(problems[:10])
