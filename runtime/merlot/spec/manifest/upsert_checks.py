"""Checks of an UpsertConfig that need more than one field, on the plain document, and those against its Table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from merlot.spec.manifest.problems import Problem, suggestion
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.spec.table import TableSpec
from merlot.spec.upsert import PartialUpsertStrategy, UpsertMode, UpsertSpec
from merlot.values.types import TypeName

JsonObject = Mapping[str, Any]
NUMBERS = (TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.BIG_DECIMAL)


def check(document: JsonObject) -> Iterator[Problem]:
    """The problems between the fields of an UpsertConfig document."""
    spec = _mapping(document.get("spec"))
    yield from _check_mode(spec)
    yield from _check_order(spec)
    yield from _check_ttl(spec)
    yield from _check_consistency(spec)
    columns = spec.get("comparisonColumns")
    listed = columns if isinstance(columns, list) else []
    for place, name in enumerate(listed):
        path = f"spec.comparisonColumns[{place}]"
        if name in listed[:place]:
            yield Problem(path, f'"{name}" is named twice; keep one')
        if isinstance(name, str) and name in _mapping(spec.get("partialUpsertStrategies")):
            yield Problem(f"spec.partialUpsertStrategies.{name}", "a comparison column is never merged; remove it")


def _check_mode(spec: JsonObject) -> Iterator[Problem]:
    if spec.get("mode") != UpsertMode.FULL:
        return
    for key in ("partialUpsertStrategies", "defaultPartialUpsertStrategy"):
        if key in spec and spec[key] not in ({}, PartialUpsertStrategy.OVERWRITE):
            yield Problem(f"spec.{key}", "FULL replaces whole rows; write mode: PARTIAL, or remove it")


def _check_order(spec: JsonObject) -> Iterator[Problem]:
    if spec.get("dropOutOfOrderRecord") is True and "outOfOrderRecordColumn" in spec:
        text = "rows out of order are dropped, so none is left to be marked; remove it or dropOutOfOrderRecord"
        yield Problem("spec.outOfOrderRecordColumn", text)


def _check_ttl(spec: JsonObject) -> Iterator[Problem]:
    has_ttl = "primaryKeyTtl" in spec
    columns = spec.get("comparisonColumns")
    if has_ttl and isinstance(columns, list) and len(columns) > 1:
        yield Problem(
            "spec.primaryKeyTtl", f"needs one comparison column, a number or a time; there are {len(columns)}"
        )
    if has_ttl and spec.get("snapshot") == "DISABLE":
        text = "primaryKeyTtl needs snapshots: what is valid cannot be derived from keys that have expired"
        yield Problem("spec.snapshot", text)
    if "deletedKeysTtl" in spec and "deleteRecordColumn" not in spec:
        yield Problem("spec.deletedKeysTtl", "needs deleteRecordColumn, which tells what is deleted")
    if spec.get("skipLateEvents") is True and not has_ttl:
        yield Problem("spec.skipLateEvents", "needs primaryKeyTtl, which tells what is late")
    if spec.get("pruning", "COMMIT") in ("SCAN", "ROTATION") and not has_ttl:
        yield Problem("spec.pruning", "needs primaryKeyTtl; without it no key expires")
    if "pruningInterval" in spec and spec.get("pruning") != "SCAN":
        yield Problem("spec.pruningInterval", "only pruning: SCAN has an interval; remove it")


def _check_consistency(spec: JsonObject) -> Iterator[Problem]:
    mode = spec.get("consistencyMode", "NONE")
    if mode not in ("SYNC", "SNAPSHOT"):
        return
    if spec.get("newSegmentTrackingTimeMs") == 0:
        yield Problem("spec.newSegmentTrackingTimeMs", f"consistencyMode {mode} needs more than 0")
    if spec.get("dropOutOfOrderRecord") is True:
        yield Problem("spec.dropOutOfOrderRecord", f"does not go with consistencyMode {mode}; remove one of them")
    if "outOfOrderRecordColumn" in spec:
        yield Problem("spec.outOfOrderRecordColumn", f"does not go with consistencyMode {mode}; remove one of them")


def against_table(spec: UpsertSpec, table: TableSpec) -> list[Problem]:
    """Why this table cannot be upserted like this; none if it can. Paths are of the UpsertConfig."""
    return list(_table_problems(spec, table))


def _table_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[Problem]:
    if not table.table_schema.primary_key:
        yield Problem("spec", "the table has no schema.primaryKey, which tells rows of the same key")
    if not spec.comparison_columns and table.time_column is None:
        yield Problem("spec.comparisonColumns", "is missing, and the table has no timeColumn to compare by")
    for place, name in enumerate(spec.comparison_columns):
        yield from _single_value(f"spec.comparisonColumns[{place}]", name, table)
    yield from _ttl_problems(spec, table)
    if spec.delete_record_column is not None:
        types = (TypeName.BOOLEAN, TypeName.STRING, *NUMBERS)
        yield from _single_value("spec.deleteRecordColumn", spec.delete_record_column, table, types)
    if spec.out_of_order_record_column is not None:
        name = spec.out_of_order_record_column
        yield from _single_value("spec.outOfOrderRecordColumn", name, table, (TypeName.BOOLEAN,))
    for name, strategy in spec.partial_upsert_strategies.items():
        yield from _strategy_problems(f"spec.partialUpsertStrategies.{name}", name, strategy, table)


def _ttl_problems(spec: UpsertSpec, table: TableSpec) -> Iterator[Problem]:
    if spec.primary_key_ttl is None:
        return
    name = spec.comparison_columns[0] if spec.comparison_columns else table.time_column
    field = None if name is None else table.table_schema.field(name)
    if field is None:
        return
    is_time = field.role is FieldRole.DATE_TIME
    if not is_time and field.type not in NUMBERS:
        yield Problem("spec.primaryKeyTtl", f'the comparison column "{name}" is {field.type}, no number and no time')
    elif not is_time and not spec.primary_key_ttl.isdecimal():
        text = (
            f'the comparison column "{name}" is no time; write a bare number in its units, not {spec.primary_key_ttl}'
        )
        yield Problem("spec.primaryKeyTtl", text)


def _strategy_problems(path: str, name: str, strategy: PartialUpsertStrategy, table: TableSpec) -> Iterator[Problem]:
    field = _field(table, name)
    if field is None:
        yield Problem(path, f'the table has no column "{name}"{suggestion(name, table.table_schema.names)}')
    elif name in table.table_schema.primary_key:
        yield Problem(path, "a column of the primary key is never merged; remove it")
    elif strategy in (PartialUpsertStrategy.APPEND, PartialUpsertStrategy.UNION) and not field.multi_value:
        yield Problem(path, f'{strategy} needs a multi-valued column; "{name}" has one value')
    elif strategy is PartialUpsertStrategy.INCREMENT and (field.multi_value or field.type not in NUMBERS):
        yield Problem(path, f'INCREMENT needs a number; "{name}" is {field.type}')
    elif strategy in (PartialUpsertStrategy.MAX, PartialUpsertStrategy.MIN) and field.multi_value:
        yield Problem(path, f'{strategy} needs one value per row; "{name}" is multi-valued')


def _single_value(path: str, name: str, table: TableSpec, types: tuple[TypeName, ...] = ()) -> Iterator[Problem]:
    field = _field(table, name)
    if field is None:
        yield Problem(path, f'the table has no column "{name}"{suggestion(name, table.table_schema.names)}')
    elif field.multi_value:
        yield Problem(path, f'"{name}" is multi-valued; it needs one value per row')
    elif types and field.type not in types:
        yield Problem(path, f'"{name}" is {field.type}; it needs {" or ".join(types)}')


def _field(table: TableSpec, name: str) -> FieldSpec | None:
    return table.table_schema.field(name)


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}
