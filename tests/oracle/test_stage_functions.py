"""Every scalar function above another stage answers what it answers over the table, and fails where it fails.

Calls are drawn as in `test_registry_queries`; `MERLOT_STAGE_FUNCTIONS` sets how often, `MERLOT_SEED` repeats.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence

import pytest
from tests.budget import IS_QUICK, count, seed
from tests.oracle.registry_recipe import Recipe
from tests.oracle.registry_recipes import RECIPES
from tests.oracle.wild_queries import WildGenerator
from tests.oracle.wild_table import wild
from tests.sql.slt_answers import Answer, first_difference, normalize, sort_rows
from tests.sql.slt_layouts import InProcess, one_segment

from merlot.errors import MerlotError

ROUNDS = count("MERLOT_STAGE_FUNCTIONS", quick=1, every=3, fuzz=20)
"""Of calls of every function."""
SEED = seed(3)
_NULLS = "SET enableNullHandling=true; "
"""Off, CASE without ELSE and NULLIF give default values in one stage, and NULL in several."""
_SOURCE = "(SELECT * FROM wild) AS wild"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[InProcess, WildGenerator]]:
    generator = random.Random(SEED)
    table = wild(generator, 60)
    with one_segment([table], tmp_path_factory.mktemp("stage-functions")) as layout:
        assert isinstance(layout, InProcess)
        yield layout, WildGenerator(table, generator, calls=0.6)


@pytest.mark.timeout(0)
def test_every_function_above_a_stage_answers_what_it_does_over_the_table(
    asked: tuple[InProcess, WildGenerator],
) -> None:
    layout, queries = asked
    problems = []
    every = [(name, recipe) for name, several in RECIPES.items() for recipe in _asked_of(name, several)]
    for name, recipe in every * ROUNDS:
        sql = queries.query_of(name, recipe).sql.removeprefix(_NULLS)
        problem = _compared(layout, _NULLS + sql, _NULLS + sql.replace("FROM wild", f"FROM {_SOURCE}", 1))
        problems += [f"{name}: {problem}"] if problem else []
    assert not problems, f"MERLOT_SEED={SEED}, {len(problems)} problems\n" + "\n".join(problems[:20])


def _asked_of(name: str, recipes: Sequence[Recipe]) -> Sequence[Recipe]:
    """Every recipe of a function; one at the quick level, where leaves are asked all of them."""
    return [recipes[zlib.crc32(name.encode()) % len(recipes)]] if IS_QUICK else recipes


def _compared(layout: InProcess, sql: str, above: str) -> str | None:
    wanted, got = _answer(layout, sql), _answer(layout, above)
    if isinstance(wanted, str) or isinstance(got, str):
        is_alike = isinstance(wanted, str) and isinstance(got, str)
        return None if is_alike else f"{got}\n    instead of {wanted}\n    {above}"
    # The types of stages, whose sums are LONG; a DOUBLE of the table cannot tell two large LONGs from each other.
    types = ["DOUBLE" if "DOUBLE" in pair else pair[0] for pair in zip(got.types, wanted.types, strict=True)]
    rows = [sort_rows(normalize(one.rows, types)) for one in (got, wanted)]
    difference = first_difference(*rows)
    return None if difference is None else f"{difference}\n    {above}"


def _answer(layout: InProcess, sql: str) -> Answer | str:
    try:
        return layout.query(sql)
    except MerlotError as error:
        return f"{type(error).__name__}: {error}"
