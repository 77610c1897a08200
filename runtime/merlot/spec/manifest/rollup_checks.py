"""Check a MergeRollupTask as a plain document for what CEL cannot express, and its model against its Table.

A problem in one field must not hide problems in others, so malformed values are skipped here: the model reports them.
Rules that CEL can express are in `merlot.spec.rules.rollup`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from merlot.errors import InvalidInputError
from merlot.spec import time_rounding
from merlot.spec.manifest.problems import ManifestProblem, suggestion
from merlot.spec.rules.rollup import LOOKS_LIKE_A_SCHEDULE
from merlot.spec.schema import FieldRole
from merlot.spec.table import PushType, TableSpec
from merlot.spec.tasks import (
    COMPRESSION_FACTOR,
    LEAST_COMPRESSION,
    MOST_COMPRESSION,
    SKETCHES,
    TDIGESTS,
    MergeRollupSpec,
    MergeType,
    RollupFunction,
)
from merlot.values import schedules
from merlot.values.periods import Period
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
NUMBERS = (TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL)
SUMS = (RollupFunction.SUM, RollupFunction.COUNT)


def check(document: JsonObject) -> Iterator[ManifestProblem]:
    """Yield the problems of a MergeRollupTask document that CEL cannot find."""
    spec = _mapping(document.get("spec"))
    yield from _check_schedule(spec)
    for number, level in enumerate(_list(spec.get("levels"))):
        yield from _check_repeated(f"spec.levels[{number}].eraseDimensionValues", _mapping(level))
    for name, aggregation in _mapping(spec.get("aggregations")).items():
        yield from _check_parameters(f"spec.aggregations.{name}.parameters", _mapping(aggregation))


def against_table(spec: MergeRollupSpec, table: TableSpec) -> list[ManifestProblem]:
    """Return the reasons why this table cannot be merged as the task says; empty if it can."""
    return [*_table_problems(table), *_column_problems(spec, table)]


def _table_problems(table: TableSpec) -> Iterator[ManifestProblem]:
    if table.push_type is PushType.REFRESH:
        yield ManifestProblem(
            "spec.table", "the table is REFRESH: each batch replaces all segments, so there is nothing to merge"
        )
    if table.upsert is not None:
        yield ManifestProblem(
            "spec.table", "the table is an upsert table: merging would bring back rows that were replaced"
        )
    if table.time_column is None:
        yield ManifestProblem("spec.table", "the table has no timeColumn, which tells the bucket of a row")


def _column_problems(spec: MergeRollupSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    schema = table.table_schema
    for name in spec.aggregations:
        path = f"spec.aggregations.{name}"
        field = schema.field(name)
        metrics = [column.name for column in schema.fields if column.role is FieldRole.METRIC]
        if field is None:
            yield ManifestProblem(path, f'the table has no column "{name}"{suggestion(name, metrics)}')
        elif field.role is not FieldRole.METRIC:
            yield ManifestProblem(path, f'"{name}" is a {field.role} of the table; only metrics are aggregated')
        elif spec.aggregations[name].aggregation_type in SKETCHES:
            if field.type is not TypeName.BYTES:
                kind = spec.aggregations[name].aggregation_type
                text = f'"{name}" is {field.type}; {kind} merges serialized sketches, which a BYTES metric holds'
                yield ManifestProblem(path, text)
        elif field.type not in NUMBERS and spec.aggregations[name].aggregation_type in SUMS:
            kind = spec.aggregations[name].aggregation_type
            yield ManifestProblem(path, f'"{name}" is {field.type}, of which {kind} makes no sense; write min or max')
    yield from _rounding_problems(spec, table)
    yield from _boundary_problems(spec, table)
    yield from _answer_problems(spec, table)
    for number, level in enumerate(spec.levels):
        for place, name in enumerate(level.erase_dimension_values):
            yield from _erasure_problems(f"spec.levels[{number}].eraseDimensionValues[{place}]", name, table)
        if level.merge_type is MergeType.ROLLUP and not any(
            column.role is FieldRole.METRIC for column in schema.fields
        ):
            yield ManifestProblem(
                f"spec.levels[{number}].mergeType", "the table has no metric to roll up; write dedup or concat"
            )
        if level.merge_type is MergeType.ROLLUP:
            yield from _default_sum_problems(f"spec.levels[{number}].mergeType", spec, table)


def _rounding_problems(spec: MergeRollupSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    field = None if table.time_column is None else table.table_schema.field(table.time_column)
    for number, level in enumerate(spec.levels):
        if field is None or level.rounding is None:
            continue
        why = time_rounding.problem(field, level.rounding)
        if why is not None:
            path = f"spec.levels[{number}].roundBucketTimePeriod"
            yield ManifestProblem(path, f'"{field.name}" cannot be rounded to {level.rounding}: {why}')


def _boundary_problems(spec: MergeRollupSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    """Yield a problem if rounding may take a row across a hybrid table's time boundary. Queries would then see it
    twice, or not at all."""
    boundary = table.ingestion.time_boundary
    for number, level in enumerate(spec.levels):
        if boundary is None or level.rounding is None:
            continue
        if not Period(boundary.unit, fixed_ms=boundary.unit_ms).is_multiple_of(level.rounding):
            path = f"spec.levels[{number}].roundBucketTimePeriod"
            text = f"the table's time boundary lies at whole units of {boundary.unit}, which this does not divide"
            yield ManifestProblem(path, text)


def _erasure_problems(path: str, name: str, table: TableSpec) -> Iterator[ManifestProblem]:
    field = table.table_schema.field(name)
    dimensions = [column.name for column in table.table_schema.fields if column.role is FieldRole.DIMENSION]
    partitioned = () if table.partitioning is None else table.partitioning.columns
    if field is None:
        yield ManifestProblem(path, f'the table has no column "{name}"{suggestion(name, dimensions)}')
    elif field.role is not FieldRole.DIMENSION:
        yield ManifestProblem(path, f'"{name}" is a {field.role} of the table; only dimensions are erased')
    elif name in partitioned:
        yield ManifestProblem(path, f'the table is partitioned by "{name}"; its values are needed')
    elif name in table.table_schema.primary_key:
        yield ManifestProblem(path, f'"{name}" is part of the primary key; its values are needed')


def _default_sum_problems(path: str, spec: MergeRollupSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    """Yield a problem for each metric without an aggregation that cannot be summed, which is the default."""
    for field in table.table_schema.fields:
        is_unsummable = field.type not in NUMBERS
        if field.role is FieldRole.METRIC and is_unsummable and field.name not in spec.aggregations:
            text = (
                f'metric "{field.name}" is {field.type} and cannot be summed; name it in spec.aggregations, min or max'
            )
            yield ManifestProblem(path, text)


def _answer_problems(spec: MergeRollupSpec, table: TableSpec) -> Iterator[ManifestProblem]:
    """Yield a problem for each metric whose SUM a rollup would silently change."""
    first = next((n for n, level in enumerate(spec.levels) if level.merge_type is MergeType.ROLLUP), None)
    if first is None:
        return
    for field in table.table_schema.fields:
        if field.role is not FieldRole.METRIC:
            continue
        named = spec.aggregations.get(field.name)
        kind = RollupFunction.SUM if named is None else named.aggregation_type
        path = f"spec.levels[{first}].mergeType" if named is None else f"spec.aggregations.{field.name}"
        if field.type is TypeName.FLOAT and kind in SUMS:
            yield ManifestProblem(
                path,
                f'metric "{field.name}" is FLOAT, in which a {kind} loses digits that queries keep; widen it to DOUBLE '
                "in the Table, or aggregate it by min or max",
            )
        if kind is RollupFunction.SUM and field.type in NUMBERS and field.default_value != 0:
            text = f'queries count a null of metric "{field.name}" as {field.default_null_value}, and sum counts none'
            yield ManifestProblem(
                path, f"{text}; name it in spec.aggregations, count, which takes each for its default"
            )


def _check_parameters(path: str, aggregation: JsonObject) -> Iterator[ManifestProblem]:
    kind, parameters = aggregation.get("aggregationType", RollupFunction.SUM), aggregation.get("parameters")
    if kind not in TDIGESTS:
        if _mapping(parameters):
            yield ManifestProblem(path, f"{kind} has no parameters; remove them")
        return
    for name, value in _mapping(parameters).items():
        if name != COMPRESSION_FACTOR:
            yield ManifestProblem(f"{path}.{name}", f"{kind} has no such parameter; it has {COMPRESSION_FACTOR}")
        elif not _is_compression(value):
            text = f'"{value}" is no whole number from {LEAST_COMPRESSION} to {MOST_COMPRESSION}'
            yield ManifestProblem(f"{path}.{name}", text)


def _is_compression(value: object) -> bool:
    text = value if isinstance(value, str) else ""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_COMPRESSION))):
        return False
    return LEAST_COMPRESSION <= int(text) <= MOST_COMPRESSION


def _check_schedule(spec: JsonObject) -> Iterator[ManifestProblem]:
    """Parse the schedule if it looks like one; a rule refuses any other text."""
    schedule = spec.get("schedule")
    if isinstance(schedule, str) and LOOKS_LIKE_A_SCHEDULE.holds({"self": spec}):
        try:
            schedules.parse(schedule)
        except InvalidInputError as error:
            yield ManifestProblem("spec.schedule", str(error))


def _check_repeated(path: str, level: JsonObject) -> Iterator[ManifestProblem]:
    """Yield a problem for each repeated name: an API server treats the list as a set."""
    names = _list(level.get("eraseDimensionValues"))
    for place, name in enumerate(names):
        if name in names[:place]:
            yield ManifestProblem(f"{path}[{place}]", f'"{name}" is named twice; keep one')


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
