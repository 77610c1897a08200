"""Rollup is what GROUP BY says; dedup keeps one row of equal ones. DuckDB is the oracle."""

import math
import tempfile
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.time_formats import PERIODS, read_time, rounded_fields, rounded_time
from tests.unit.merge.merge_tables import (
    METRICS,
    ROOM,
    TIMES,
    Inputs,
    built,
    cell_token,
    merge,
    partitioned,
    plan_of,
    read_rows,
    schemas,
    summed,
    tables,
    tokens,
    windows_of,
)

from merlot.errors import InvalidInputError
from merlot.merge.folds import SumOverflowError
from merlot.merge.plan import MergeMode, MergePlan
from merlot.merge.shuffle import shuffle
from merlot.segment.build.request import BuiltSegment
from merlot.spec.indexing import IndexingSpec, PartitioningSpec
from merlot.spec.schema import FieldRole, FieldSpec, TableSchema
from merlot.values import periods
from merlot.values.types import TypeName
from merlot.vectors.decimals import plain_text

ORACLE_TYPES = {
    TypeName.INT: pa.int32(),
    TypeName.LONG: pa.int64(),
    TypeName.FLOAT: pa.float32(),
    TypeName.DOUBLE: pa.float64(),
    TypeName.BOOLEAN: pa.bool_(),
    TypeName.TIMESTAMP: pa.int64(),
    TypeName.STRING: pa.string(),
    TypeName.JSON: pa.string(),
    TypeName.BYTES: pa.binary(),
}


def unsigned_zero(token: Any) -> Any:
    """A token with one zero: which of two equal ones a group shows is open."""
    if token == (0.0, -1.0):
        return (0.0, 1.0)
    return tuple(unsigned_zero(one) for one in token) if isinstance(token, tuple) else token


def oracle(inputs: Inputs, functions: dict[str, str], erased: frozenset[str], period: str) -> Counter[Any]:
    """What DuckDB groups the rows to."""
    names, columns = [], []
    rounding = periods.parse(period)
    for one in inputs.schema.fields:
        cells = inputs.rows[one.name]
        if one.name in erased:
            cells = [None] * len(cells)
        if one.role is FieldRole.DATE_TIME:
            cells = [rounded_time(one, cell, rounding) for cell in cells]
        names.append(one.name)
        columns.append(oracle_column(one, cells))
    rows = pa.table(columns, names=names)
    chosen = []
    keys = ", ".join(f'"{one.name}"' for one in inputs.schema.fields if one.role is not FieldRole.METRIC)
    apart = []
    for one in inputs.schema.fields:
        if one.role is not FieldRole.METRIC:
            chosen.append(f'"{one.name}"')
            continue
        function = functions.get(one.name, "SUM")
        default = plain_text(one.default_value) if isinstance(one.default_value, Decimal) else one.default_value
        argument = f"coalesce({one.name}, {default})" if function == "COUNT" else one.name
        chosen.append(f"{'SUM' if function == 'COUNT' else function}({argument}) AS {one.name}")
        if function in ("MIN", "MAX"):
            # Nulls that a query may count as the default are not lost beside a value that the default beats.
            is_beaten = (
                f"{function}({one.name}) OVER (PARTITION BY {keys}) {'>' if function == 'MIN' else '<'} {default}"
            )
            apart.append(f"{one.name} IS NULL AND coalesce({is_beaten}, false)")
    parted = ", ".join(f"{condition} AS apart_{place}" for place, condition in enumerate(apart))
    groups = ", ".join([keys, *(f"apart_{place}" for place in range(len(apart)))])
    source = f"(SELECT *{', ' if apart else ''}{parted} FROM rows)"
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        answer = connection.execute(f"SELECT {', '.join(chosen)} FROM {source} GROUP BY {groups}").fetchall()
    fields = inputs.schema.fields
    return Counter(tuple(oracle_token(one, cell) for one, cell in zip(fields, row, strict=True)) for row in answer)


def oracle_column(one: FieldSpec, cells: list[Any]) -> pa.Array:
    if one.type is TypeName.BIG_DECIMAL:
        if one.role is FieldRole.METRIC:
            return pa.array([None if cell is None else Decimal(cell) for cell in cells], pa.decimal128(30, 3))
        type_: pa.DataType = pa.string()
        cells = [unpadded(cell) for cell in cells]
    else:
        type_ = ORACLE_TYPES[one.type]
    if not one.multi_value:
        return pa.array(cells, type_)
    stand_in = plain_text(one.default_value) if isinstance(one.default_value, Decimal) else one.default_value
    lists = [None if cell is None else [stand_in if value is None else value for value in cell] for cell in cells]
    return pa.array(lists, pa.list_(type_))


def unpadded(cell: Any) -> Any:
    return [unpadded(one) for one in cell] if isinstance(cell, list) else cell


def oracle_token(one: FieldSpec, cell: Any) -> Any:
    if cell is None:
        return None
    if isinstance(cell, Decimal):
        cell = plain_text(cell) if one.type is TypeName.BIG_DECIMAL else int(cell)
    return unsigned_zero(cell_token(one, cell))


def read_all(outputs: list[Any], schema: TableSchema) -> Counter[Any]:
    return Counter(unsigned_zero(row) for segment in outputs for row in read_rows(segment, schema))


def sharded(plan: MergePlan, inputs: Inputs, directory: Path) -> list[BuiltSegment]:
    """The outputs of the merges of all shards."""
    found = []
    for number, shard in enumerate(shuffle(plan, inputs.paths, directory, 3, lambda *_: None, lambda: False)):
        own = replace(plan, segment_name_prefix=f"merged_{number}")
        found += merge(own, [shard.path], directory)
    return found


def partitionings(schema: TableSchema, name: str) -> list[PartitioningSpec]:
    """Some of a column, that inputs may be built by and a table may declare: they need not be the same."""
    field = schema.field(name)
    if field is None or field.multi_value or field.role is FieldRole.METRIC:
        return []
    return [partitioned(name, number, enforce) for number in (2, 3) for enforce in ("repartition", "assert")]


def is_in_one(segment: BuiltSegment, time: FieldSpec, windows: tuple[tuple[int, int], ...]) -> bool:
    """Whether all rows of a segment are of one window."""
    metadata = segment.metadata
    assert metadata.start_time is not None
    assert metadata.end_time is not None
    first, last = read_time(time, metadata.start_time), read_time(time, metadata.end_time)
    return any(start <= first <= last < end for start, end in windows)


@settings(max_examples=examples(40))
@given(data=st.data())
def test_rollup_is_group_by_in_one_go_in_steps_and_in_shards(data: Any) -> None:
    time, period = data.draw(rounded_fields())
    schema, rounding = data.draw(schemas(time)), periods.parse(period)
    dimensions = [one.name for one in schema.fields if one.role is FieldRole.DIMENSION]
    erased = frozenset(data.draw(st.sets(st.sampled_from(dimensions))) if dimensions else ())
    pick = st.sampled_from(["SUM", "MIN", "MAX", "COUNT"])
    functions = {one.name: data.draw(pick) for one in METRICS}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        indexing = IndexingSpec(sorted_columns=data.draw(st.sampled_from([(), ("at",)])))
        claims = [one for name in schema.names[:2] for one in partitionings(schema, name)]
        inputs: Inputs = data.draw(tables(directory, schema, indexing, claims))
        buckets = [one for one in PERIODS if periods.parse(one).is_multiple_of(rounding)]
        plan = plan_of(
            schema,
            indexing=indexing,
            partitioning=data.draw(st.sampled_from([None, *claims])),
            merge_type=MergeMode.ROLLUP,
            windows=windows_of(inputs, data.draw(st.sampled_from(buckets))),
            round_period=rounding,
            erased=erased,
            aggregations={name: summed(function) for name, function in functions.items()},
            max_records_per_segment=data.draw(st.sampled_from([2, 1000])),
        )
        expected = oracle(inputs, functions, erased, period)
        outputs = merge(plan, inputs.paths, directory)
        assert all(is_in_one(segment, time, plan.windows) for segment in outputs)
        assert read_all(outputs, schema) == expected
        assert all(segment.metadata.columns[name].is_sorted for segment in outputs for name in indexing.sorted_columns)
        again = merge(plan, inputs.paths, directory)
        assert [segment.metadata.crc for segment in again] == [segment.metadata.crc for segment in outputs]
        coarser = merge(replace(plan, segment_name_prefix="next"), [segment.path for segment in outputs], directory)
        assert read_all(coarser, schema) == expected
        assert read_all(sharded(plan, inputs, directory), schema) == expected
        after = rows_of(outputs, schema)
        before = {**inputs.rows, "at": [rounded_time(time, cell, rounding) for cell in inputs.rows["at"]]}
        for one in METRICS:
            for is_counted in (False, True):
                function = functions[one.name]
                # The rest is refused when a manifest is applied, or told in the documentation.
                if is_counted if function == "COUNT" else function != "SUM" or one.default_value == 0:
                    assert answers(before, one, function, is_counted) == answers(after, one, function, is_counted)


def rows_of(outputs: list[BuiltSegment], schema: TableSchema) -> dict[str, list[Any]]:
    """Columns of the outputs, floats as numbers."""
    rows = [row for segment in outputs for row in read_rows(segment, schema)]
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema.fields)
    return {
        one.name: [cell[0] if isinstance(cell, tuple) and not one.multi_value else cell for cell in column]
        for one, column in zip(schema.fields, columns, strict=True)
    }


def answers(rows: dict[str, list[Any]], metric: FieldSpec, function: str, is_counted: bool) -> dict[Any, Any]:
    """What a query by time and of all rows gives for a metric, a null being its default or nothing."""
    found: dict[Any, list[Any]] = {}
    for at, cell in zip(rows["at"], rows[metric.name], strict=True):
        value = metric.default_value if cell is None and is_counted else cell
        for key in (at, "all"):
            known = found.setdefault(key, [])
            if value is not None:
                known.append(Decimal(value) if metric.type is TypeName.BIG_DECIMAL else value)
    combine = {"SUM": sum, "COUNT": sum, "MIN": min, "MAX": max}[function]
    return {key: combine(known) if known else None for key, known in found.items()}


@settings(max_examples=examples(40))
@given(data=st.data())
def test_dedup_keeps_one_row_of_equal_ones(data: Any) -> None:
    schema = data.draw(schemas())
    claims = [one for name in schema.names[:2] for one in partitionings(schema, name)]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        inputs: Inputs = data.draw(tables(directory, schema, IndexingSpec(), claims))
        plan = plan_of(
            schema,
            partitioning=data.draw(st.sampled_from([None, *claims])),
            merge_type=MergeMode.DEDUP,
            windows=windows_of(inputs, data.draw(st.sampled_from(PERIODS))),
        )
        distinct = Counter({unsigned_zero(row): 1 for row in tokens(schema, inputs.rows)})
        assert read_all(merge(plan, inputs.paths, directory), schema) == distinct
        assert read_all(sharded(plan, inputs, directory), schema) == distinct


SCHEMA = TableSchema(
    fields=(
        TIMES[0],
        FieldSpec(name="who", type=TypeName.STRING),
        FieldSpec(name="flags", type=TypeName.INT),
        *METRICS,
    )
)


def many_rows(count: int, groups: int) -> dict[str, list[Any]]:
    return {
        "at": [place % 3 for place in range(count)],
        "who": [f"w{place * 7919 % groups}" for place in range(count)],
        "flags": [None if place % 5 == 0 else place % 5 for place in range(count)],
        "ints": [2_000_000_000 if place % 2 else -2_000_000_000 for place in range(count)],
        "longs": [None if place % 7 == 0 else 9 * 10**18 * (1 - place % 2 * 2) for place in range(count)],
        "floats": [place % 9 / 8 for place in range(count)],
        "doubles": [place % 17 / 16 for place in range(count)],
        "decimals": [f"{place % 13}.25" for place in range(count)],
    }


@pytest.mark.parametrize(("rows", "groups"), [(60_000, 7), (60_000, 9_001)])
def test_folding_in_steps_on_disk_gives_what_folding_at_once_gives(rows: int, groups: int, tmp_path: Path) -> None:
    cells = many_rows(rows, groups)
    half = {name: column[: rows // 2] for name, column in cells.items()}
    rest = {name: column[rows // 2 :] for name, column in cells.items()}
    paths = [
        built(tmp_path, f"in_{place}", SCHEMA, part, IndexingSpec()).path for place, part in enumerate((half, rest))
    ]
    functions = {"floats": summed("MIN"), "doubles": summed("MAX")}
    plan = plan_of(SCHEMA, merge_type=MergeMode.ROLLUP, aggregations=functions)
    at_once = merge(plan, paths, tmp_path, ROOM)
    expected = read_all(at_once, SCHEMA)
    in_steps = merge(replace(plan, segment_name_prefix="steps"), paths, tmp_path, memory_bytes=1 << 20)
    assert read_all(in_steps, SCHEMA) == expected
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    if len(in_steps) == len(at_once):
        assert [segment.metadata.crc for segment in in_steps] == [segment.metadata.crc for segment in at_once]


@pytest.mark.parametrize("memory_bytes", [ROOM, 1 << 20])
def test_a_sum_that_does_not_fit_says_what_to_do(memory_bytes: int, tmp_path: Path) -> None:
    schema = TableSchema(fields=(TIMES[0], *METRICS))
    cells: dict[str, list[Any]] = {one.name: [0] * 30_000 for one in schema.fields if one.name != "decimals"}
    cells |= {"decimals": ["0"] * 30_000, "floats": [0.0] * 30_000, "doubles": [0.0] * 30_000}
    for name, largest, wider in (("ints", 2**31 - 1, "LONG"), ("longs", 2**63 - 1, "BIG_DECIMAL")):
        over = {**cells, name: [largest] * 30_000}
        path = built(tmp_path, "in_0", schema, over, IndexingSpec()).path
        plan = plan_of(schema, merge_type=MergeMode.ROLLUP)
        out = tmp_path / f"out_{name}"
        out.mkdir()
        with pytest.raises(SumOverflowError, match=f"column={name}; widen the column to {wider}"):
            merge(plan, [path], out, memory_bytes)
        assert list(out.iterdir()) == []


def test_a_count_takes_a_null_for_its_default(tmp_path: Path) -> None:
    schema = TableSchema(fields=(TIMES[0], FieldSpec(name="who", type=TypeName.STRING), METRICS[1]))
    raw = TableSchema(fields=schema.fields[:2])
    paths = [
        built(tmp_path, "in_0", raw, {"at": [0, 1, 2], "who": ["a", "a", "b"]}, IndexingSpec()).path,
        built(tmp_path, "in_1", schema, {"at": [3], "who": ["a"], "longs": [10]}, IndexingSpec()).path,
    ]
    plan = plan_of(
        schema,
        merge_type=MergeMode.ROLLUP,
        round_period=periods.parse("1d"),
        aggregations={"longs": summed("COUNT")},
    )
    (output,) = merge(plan, paths, tmp_path)
    assert sorted(read_rows(output, schema)) == [(0, "a", 12), (0, "b", 1)]


def test_a_time_that_cannot_be_rounded_is_refused(tmp_path: Path) -> None:
    time = FieldSpec(
        name="at", type=TypeName.INT, role=FieldRole.DATE_TIME, format="SIMPLE_DATE_FORMAT|yyyyMMdd|Europe/Berlin"
    )
    plan = plan_of(TableSchema(fields=(time, *METRICS)), round_period=periods.parse("1mo"))
    with pytest.raises(InvalidInputError, match="time cannot be rounded table=t period=1mo: 1mo in Europe/Berlin may"):
        merge(plan, [tmp_path / "absent.mseg"], tmp_path)


def test_what_cannot_be_aggregated_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    schema = TableSchema(fields=(TIMES[0], FieldSpec(name="blob", type=TypeName.BYTES, role=FieldRole.METRIC)))
    with pytest.raises(InvalidInputError, match="BYTES cannot be summed column=blob"):
        merge(plan_of(schema, merge_type=MergeMode.ROLLUP), [tmp_path / "absent.mseg"], tmp_path)
    plan = plan_of(schema, merge_type=MergeMode.ROLLUP, aggregations={"blob": summed("MEDIAN")})
    with pytest.raises(InvalidInputError, match="unknown aggregation column=blob function=MEDIAN; one of SUM, MIN"):
        merge(plan, [tmp_path / "absent.mseg"], tmp_path)


def test_a_sum_of_floats_that_only_double_holds_fails_rather_than_be_infinite(tmp_path: Path) -> None:
    schema = TableSchema(fields=(TIMES[0], METRICS[2], METRICS[3]))
    cells: dict[str, list[Any]] = {"at": [0, 0], "floats": [3e38, 3e38], "doubles": [1e308, 1e308]}
    path = built(tmp_path, "in_0", schema, cells, IndexingSpec()).path
    with pytest.raises(SumOverflowError, match="a sum does not fit FLOAT column=floats; widen the column to DOUBLE"):
        merge(plan_of(schema, merge_type=MergeMode.ROLLUP), [path], tmp_path)
    plan = plan_of(schema, merge_type=MergeMode.ROLLUP, aggregations={"floats": summed("MAX")})
    (output,) = merge(plan, [path], tmp_path)
    assert rows_of([output], schema)["doubles"] == [math.inf], "as a query would add them"
    infinite = built(tmp_path, "in_1", schema, {**cells, "floats": [math.inf, 1.0]}, IndexingSpec()).path
    (output,) = merge(plan_of(schema, merge_type=MergeMode.ROLLUP), [infinite], tmp_path)
    assert rows_of([output], schema)["floats"] == [math.inf]


@pytest.mark.parametrize(
    ("type_name", "function", "values", "rows"),
    [
        ("INT", "MIN", [None, 3, 5], [3, None]),
        ("INT", "MIN", [None, -3, 5], [-3]),
        ("INT", "MAX", [None, -3, -5, None], [-3, None]),
        ("INT", "MAX", [None, 3, 5], [5]),
        ("DOUBLE", "MIN", [None, math.nan], [math.nan, None]),
        ("BIG_DECIMAL", "MIN", [None, "10.5", "9.25"], ["9.25", None]),
        ("STRING", "MIN", [None, "zebra"], ["zebra", None]),
        ("STRING", "MIN", [None, "ant"], ["ant"]),
    ],
)
def test_a_null_stays_apart_where_its_default_would_be_the_answer(
    type_name: str, function: str, values: list[Any], rows: list[Any], tmp_path: Path
) -> None:
    """The default of numbers is 0, that of text is null."""
    schema = TableSchema(fields=(TIMES[0], FieldSpec(name="metric", type=TypeName(type_name), role=FieldRole.METRIC)))
    path = built(tmp_path, "in_0", schema, {"at": [0] * len(values), "metric": values}, IndexingSpec()).path
    plan = plan_of(schema, merge_type=MergeMode.ROLLUP, aggregations={"metric": summed(function)})
    (output,) = merge(plan, [path], tmp_path)
    (again,) = merge(replace(plan, segment_name_prefix="again"), [output.path], tmp_path)
    for one in (output, again):
        found = ["NaN" if cell != cell else cell for cell in rows]
        assert [row[1][0] if isinstance(row[1], tuple) else row[1] for row in read_rows(one, schema)] == found
