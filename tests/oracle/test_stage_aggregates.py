"""Every aggregate above another stage answers what it answers over the table: a subquery, a join and a union give the
same rows as the table. Calls are drawn at random; `MERLOT_STAGE_AGGREGATES` sets how often, `MERLOT_SEED` repeats.

What servers answer as a leaf of several stages is the measure, so that types and labels are those of stages too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.budget import count, seed
from tests.oracle.wild_table import SCHEMA, wild
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_layouts import InProcess, one_segment

from merlot.aggregates import registry
from merlot.aggregates.function import AggregateParameter, AggregationFunction
from merlot.aggregates.moments import MOMENTS
from merlot.errors import MerlotError
from merlot.values.types import TypeName

ROUNDS = count("MERLOT_STAGE_AGGREGATES", quick=1, every=6, fuzz=20)
"""Of calls of every aggregate."""
SEED = seed(11)
NUM_ROWS = 36
"""Few enough that a digest keeps values apart, whatever order they come in."""

_CONSTANTS = {
    "percentile": "50",
    "lower": "-20",
    "upper": "20",
    "bins": "5",
    "separator": "'|'",
}
_CLAUSES = {
    "funnelcount": ["STEPS({b} = true, {k} > 0), CORRELATE_BY({w})", "STEPS({j} > 0), CORRELATE_BY({s}, {i})"],
}
_WINDOWS = ["{i}, 40, 2, {b} = true, {k} > 0", "{k}, 1000, 3, {k} > 0, {j} > 0, {b} = false, 'STRICT_INCREASE'"]
_CLAUSES |= dict.fromkeys(["funnelmaxstep", "funnelmatchstep", "funnelcompletecount"], _WINDOWS)
_CLAUSES["funnelstepdurationstats"] = [f"{one}, 'durationFunctions=AVG,MAX,COUNT'" for one in _WINDOWS]
_SOURCES = (
    "(SELECT * FROM wild) AS s",
    "(SELECT * FROM wild WHERE k > 0 UNION ALL SELECT * FROM wild WHERE k <= 0 OR k IS NULL) AS s",
    "wild AS s JOIN (SELECT id AS other FROM wild) AS o ON s.id = o.other",
    "(SELECT *, ROW_NUMBER() OVER (ORDER BY id) AS place FROM wild) AS s",
)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    folder: Path = tmp_path_factory.mktemp("stage-aggregates")
    with one_segment([wild(random.Random(f"{SEED} rows"), NUM_ROWS)], folder) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.mark.timeout(0)
def test_every_aggregate_above_a_stage_answers_what_it_does_over_the_table(layout: InProcess) -> None:
    generator = random.Random(SEED)
    problems, num_answered = [], 0
    for function in registry.FUNCTIONS:
        if function.gives_rows or function.parameters[0].takes == {TypeName.BYTES}:
            continue  # the table has no stored sketches: stored_sketches.slt has them above stages
        for _ in range(ROUNDS):
            problem, is_answered = _compared(layout, _query(function, generator), generator)
            num_answered += is_answered
            problems += [f"{function.name}: {problem}"] if problem else []
    assert not problems, f"MERLOT_SEED={SEED}, {len(problems)} problems\n" + "\n".join(problems[:20])
    assert num_answered > 0.8 * ROUNDS * len(registry.FUNCTIONS)


def _compared(layout: InProcess, query: str, generator: random.Random) -> tuple[str | None, bool]:
    """What differs, and whether the table answers at all."""
    nulls = f"SET enableNullHandling = {generator.choice(('true', 'false'))}; "
    wanted = _asked(layout, f"{nulls}SET useMultistageEngine = true; {query.format(source='wild AS s')}")
    above = nulls + query.format(source=generator.choice(_SOURCES))
    got = _asked(layout, above)
    if isinstance(wanted, str) or isinstance(got, str):
        return (None if type(wanted) is type(got) else f"{got}\n    instead of {wanted}\n    {above}"), False
    difference = first_difference(got, wanted)
    return (None if difference is None else f"{difference}\n    {above}"), True


def _asked(layout: InProcess, sql: str) -> list[tuple[object, ...]] | str:
    """Rows in an order that tells nothing, or the error."""
    try:
        answer = layout.query(sql)
    except MerlotError as error:
        return f"{type(error).__name__}: {error}"
    return sort_rows(normalize(answer.rows, answer.types))


def _query(function: AggregationFunction, generator: random.Random) -> str:
    """A call of the aggregate, of all rows or by a key, with or without a filter."""
    call = f"{function.name}({_arguments(function, generator)})"
    if generator.random() < 0.3:
        call += f" FILTER (WHERE s.k > {generator.choice((-100, 0, 1, 1 << 30))})"
    key = generator.choice(("", "", "s.b", "s.j", "s.w", "s.k"))
    where = generator.choice(("", "", " WHERE s.j > 0", " WHERE s.id < 0"))
    if not key:
        return f"SELECT {call}, COUNT(*) FROM {{source}}{where}"
    having = generator.choice(("", f" HAVING {call} IS NOT NULL"))
    return f"SELECT {key}, {call} FROM {{source}}{where} GROUP BY {key}{having}"


def _arguments(function: AggregationFunction, generator: random.Random) -> str:
    if function.name in _CLAUSES:
        columns = {field.name: f"s.{field.name}" for field in SCHEMA.fields}
        return generator.choice(_CLAUSES[function.name]).format(**columns)
    found: list[str] = []
    type_ = TypeName.INT
    for parameter in function.parameters:
        if parameter.is_constant:
            if parameter.is_optional:
                break
            found.append(f"'{type_.value}'" if parameter.name == "type" else _CONSTANTS[parameter.name])
            continue
        if parameter.is_optional and generator.random() < 0.6:
            break
        column, its_type = _column(
            parameter, generator, is_list=function.flattens and not found, is_moment=function in MOMENTS
        )
        type_ = type_ if found else its_type
        found.append(column)
    return ", ".join(found)


def _column(
    parameter: AggregateParameter, generator: random.Random, *, is_list: bool, is_moment: bool
) -> tuple[str, TypeName]:
    if is_moment:
        return generator.choice(("s.j", "s.id")), TypeName.INT
    wanted: Sequence[TypeName] = sorted(parameter.takes - {TypeName.BYTES}, key=lambda one: one.value)
    fields = [field for field in SCHEMA.fields if field.type in wanted and field.multi_value == is_list]
    field = generator.choice(fields)
    return f"s.{field.name}", field.type
