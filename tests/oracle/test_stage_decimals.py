"""Functions of BIG_DECIMAL wherever stages have expressions: what they answer over the table.

`MERLOT_STAGE_DECIMALS` sets how many pairs of a function and a place, `MERLOT_SEED` which.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from tests.budget import count, seed
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_data import datasets
from tests.sql.slt_layouts import InProcess, one_segment

from merlot.errors import MerlotError

_CALLS = (
    "ABS(exact)",
    "-exact",
    "GREATEST(exact, small, 12.5)",
    "LEAST(exact, ratio)",
    "exact % 7",
    "MOD(exact, 0.3)",
    "ROUND_DECIMAL(exact, 2)",
    "CEIL(exact)",
    "FLOOR(exact * 3)",
    "CAST(ratio AS BIG_DECIMAL)",
    "CAST('12.50' AS BIG_DECIMAL) + exact",
    "CASE WHEN id > 20 THEN exact ELSE ratio END",
    "COALESCE(exact, ratio, 1)",
)
_PLACES = (
    "SELECT a.id, {call} FROM (SELECT * FROM things WHERE id < 60) AS a JOIN (SELECT 1 AS one) AS b ON b.one = 1",
    "SELECT id, x FROM (SELECT id, {call} AS x FROM things WHERE id < 60) AS z ORDER BY x",
    "SELECT id, {call} FROM things WHERE id < 60 UNION SELECT id, {call} FROM things WHERE id < 30",
    "SELECT id, {call} FROM things WHERE id < 30 UNION ALL SELECT id, {call} FROM things WHERE id BETWEEN 30 AND 59",
    "SELECT id, MAX({call}) OVER (PARTITION BY id, {call}) FROM things WHERE id < 60",
    "SELECT id, SUM({call}) FROM things WHERE id < 60 GROUP BY ROLLUP(id) HAVING GROUPING(id) = 0",
    "SELECT id, {call} FROM (SELECT * FROM things WHERE id < 60) AS z GROUP BY id, {call}",
    "SELECT id, {call} FROM (SELECT * FROM things WHERE id < 60) AS z WHERE {call} = {call} OR ({call}) IS NULL",
)
NUMBER = count("MERLOT_STAGE_DECIMALS", quick=20, every=len(_CALLS) * len(_PLACES))
SEED = seed(2)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    used = [dataset for dataset in datasets() if dataset.name == "things"]
    with one_segment(used, tmp_path_factory.mktemp("stage-decimals")) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.mark.timeout(0)
def test_functions_of_decimals_answer_above_a_stage_as_over_the_table(layout: InProcess) -> None:
    pairs = list(itertools.product(_CALLS, _PLACES))
    random.Random(SEED).shuffle(pairs)
    problems = [problem for call, place in pairs[:NUMBER] if (problem := _difference(layout, call, place)) is not None]
    assert not problems, f"{len(problems)} of {NUMBER}, MERLOT_SEED={SEED}\n" + "\n".join(problems)


def _difference(layout: InProcess, call: str, place: str) -> str | None:
    nulls = "SET enableNullHandling = true; "
    above = nulls + place.format(call=call)
    wanted = layout.query(f"{nulls}SELECT id, {call} FROM things WHERE id < 60 LIMIT 1000")
    try:
        got = layout.query(above)
    except MerlotError as error:
        return f"{above}\n    {error}"
    types = ("INT", "BIG_DECIMAL")
    if list(got.types) != list(wanted.types) or wanted.types[1] != types[1]:
        return f"{above}\n    {got.types} instead of {wanted.types}"
    difference = first_difference(*(sort_rows(normalize(one.rows, types)) for one in (got, wanted)))
    return None if difference is None else f"{above}\n    {difference}"
