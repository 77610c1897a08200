"""IS NULL, COALESCE and aggregates of what may be NULL, anywhere above and within leaves: DuckDB's rows, and those of
one stage.

`MERLOT_STAGE_NULLS` sets how many queries, `MERLOT_SEED` which.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from tests.budget import count, seed
from tests.oracle.null_generator import COLUMNS, NullGenerator
from tests.sql.slt_answers import first_difference, normalize, sort_rows
from tests.sql.slt_data import Dataset
from tests.sql.slt_layouts import InProcess, twelve_segments
from tests.sql.slt_oracle import Oracle

from merlot.spec.schema import TableSchema

NUMBER = count("MERLOT_STAGE_NULLS", quick=48, every=600, fuzz=5000)
SEED = seed(5)
_SCHEMA = TableSchema.model_validate(
    {
        "fields": [
            {"name": "g", "type": "STRING"},
            {"name": "k", "type": "INT"},
            {"name": "m", "type": "INT", "role": "metric"},
        ]
    }
)


def _holes() -> Dataset:
    generator = random.Random(SEED)
    rows = {
        "g": pa.array(generator.choices(("x", "y", None), k=40), pa.string()),
        "k": pa.array(generator.choices((1, 2, None), k=40), pa.int32()),
        "m": pa.array(generator.choices((*range(6), None, None), k=40), pa.int32()),
    }
    return Dataset(name="holes", schema=_SCHEMA, rows=pa.table(rows))


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with twelve_segments([_holes()], tmp_path_factory.mktemp("stage-nulls")) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """Tables with the columns `x_null` beside them."""
    holes = _holes()
    found = Oracle([holes])
    bits = {f"{name}_null": holes.rows.column(name).is_null() for name in COLUMNS}
    for schema, rows in (("defaulted", holes.defaulted()), ("nulled", holes.rows)):
        whole = pa.table({**dict(zip(rows.column_names, rows.columns, strict=True)), **bits})

        def replace(connection: object, schema: str = schema, whole: pa.Table = whole) -> None:
            connection.register("whole", whole)  # type: ignore[attr-defined]
            connection.execute(f"CREATE OR REPLACE TABLE {schema}.holes AS SELECT * FROM whole")  # type: ignore[attr-defined]

        found.install(replace)
    return found


def _difference(layout: InProcess, oracle: Oracle, sql: str, wanted: str, *, nulls: bool) -> str | None:
    try:
        answer = layout.query(f"SET enableNullHandling = {str(nulls).lower()}; {sql}")
        rows: Sequence[object] = sort_rows(normalize(oracle.rows(wanted, nulls=nulls), answer.types))
        difference = first_difference(sort_rows(normalize(answer.rows, answer.types)), rows)
    except Exception as error:  # noqa: BLE001 (a crash is one query's result: the others still run)
        difference = f"{type(error).__name__}: {error}"
    return None if difference is None else f"nulls={nulls} {sql}\n    {wanted}\n    {difference}"


@pytest.mark.timeout(0)
def test_nulls_are_seen_at_any_height_above_a_leaf(layout: InProcess, oracle: Oracle) -> None:
    generator = NullGenerator(SEED)
    problems = []
    for number in range(NUMBER):
        sql, wanted = generator.query()
        found = _difference(layout, oracle, f"SET useMultistageEngine = true; {sql}", wanted, nulls=number % 4 == 0)
        problems += [] if found is None else [found]
    assert not problems, f"{len(problems)} of {NUMBER}, MERLOT_SEED={SEED}\n" + "\n".join(problems[:10])


@pytest.mark.timeout(0)
def test_one_stage_and_several_see_the_same_nulls(layout: InProcess, oracle: Oracle) -> None:
    generator = NullGenerator(SEED)
    problems = []
    for number in range(NUMBER // 4):
        sql, wanted = (text.format for text in generator.plain())
        prefixes = ("", "SET useMultistageEngine = true; ", "")
        for prefix, source in zip(prefixes, ("holes", "holes", "(SELECT * FROM holes) AS z"), strict=True):
            asked = f"{prefix}{sql(source)}"
            found = _difference(layout, oracle, asked + " LIMIT 1000", wanted("holes"), nulls=number % 4 == 0)
            problems += [] if found is None else [found]
    assert not problems, f"{len(problems)} of {NUMBER}, MERLOT_SEED={SEED}\n" + "\n".join(problems[:10])
