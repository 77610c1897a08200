"""Pinot's JSON form of a Schema, which `/tables/{t}/schema` answers on controllers and brokers. Pure."""

from __future__ import annotations

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
