"""Pinot's JSON form of a Schema, which `/tables/{t}/schema` answers on controllers and brokers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from merlot.spec.schema import FieldRole, FieldSpec, TableSchema

Json = dict[str, Any]


def to_pinot(name: str, table_schema: TableSchema) -> Json:
    """Return the columns by role, in the order of the manifest. name: the table's raw name."""
    by_role: dict[FieldRole, list[Json]] = {role: [] for role in FieldRole}
    for field in table_schema.fields:
        by_role[field.role].append(_field(field))
    answer: Json = {
        "schemaName": name,
        "dimensionFieldSpecs": by_role[FieldRole.DIMENSION],
        "metricFieldSpecs": by_role[FieldRole.METRIC],
        "dateTimeFieldSpecs": by_role[FieldRole.DATE_TIME],
    }
    if table_schema.primary_key:
        answer["primaryKeyColumns"] = list(table_schema.primary_key)
    return answer


def without_columns(schema: Mapping[str, Any], hidden: Collection[str]) -> Mapping[str, Any]:
    """Return a schema in Pinot's form without some columns, whose names are in lower case."""
    if not hidden:
        return schema
    return {name: _shown(part, hidden) if isinstance(part, list) else part for name, part in schema.items()}


def _shown(part: list[Any], hidden: Collection[str]) -> list[Any]:
    """Return the fields, or names, of columns that are not hidden."""
    return [
        column for column in part if str(column["name"] if isinstance(column, dict) else column).lower() not in hidden
    ]


def _field(field: FieldSpec) -> Json:
    answer: Json = {"name": field.name, "dataType": str(field.type)}
    if field.role is FieldRole.DIMENSION:
        answer["singleValueField"] = not field.multi_value
    if field.role is FieldRole.DATE_TIME:
        answer["format"] = field.format or "TIMESTAMP"
        answer["granularity"] = field.granularity or "1:MILLISECONDS"
    if field.default_null_value is not None:
        answer["defaultNullValue"] = field.default_null_value
    return answer
