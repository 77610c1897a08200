"""Convert Pinot's Schema to `spec.schema`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from merlot.pinot.configs.source import ConfigReader, Json, without_empty

_NO_EQUIVALENT: Final[Mapping[str, str]] = {
    "notNull": "a column takes nulls; leave rows without a value out by a filter",
    "virtualColumnProvider": "there are no virtual columns of a table's own",
    "allowTrailingZeros": "a BIG_DECIMAL is its number, 1.50 is 1.5",
}


def schema(source: ConfigReader, transforms: dict[str, str] | None = None) -> Json:
    """Return the schema with its fields in Pinot's order: dimensions, metrics, times. Functions that fill columns are
    added to `transforms`; without it, they become notes."""
    fields = [_field(field, {}, transforms) for field in source.each("dimensionFieldSpecs")]
    fields += [_field(field, {"role": "metric"}, transforms) for field in source.each("metricFieldSpecs")]
    fields += [_field(field, _time(field), transforms) for field in source.each("dateTimeFieldSpecs")]
    source.leave(
        {
            "timeFieldSpec": "is Pinot's old form: declare the column in dateTimeFieldSpecs, and convert again",
            "complexFieldSpecs": "columns of maps and structs have no equivalent; a JSON column holds them as text",
        }
    )
    source.ignore("schemaName")
    source.leave({"enableColumnBasedNullHandling": "nulls are stored in any case; enableNullHandling is of a query"})
    return without_empty({"fields": fields, "primaryKey": source.names("primaryKeyColumns")})


def _field(source: ConfigReader, more: Json, transforms: dict[str, str] | None) -> Json:
    is_single = str(source.take("singleValueField", True)).lower() != "false"
    source.ignore("fieldType")
    source.leave(_NO_EQUIVALENT)
    if source.text("maxLengthExceedStrategy") not in ("", "TRIM_LENGTH"):
        source.note("maxLengthExceedStrategy", "longer values are cut, and counted; there is no other way")
    field = {
        "name": source.text("name"),
        "type": source.text("dataType").upper(),
        **more,
        "multiValue": None if is_single else True,
        "maxLength": source.take("maxLength"),
    }
    default, transform = source.take("defaultNullValue"), source.text("transformFunction")
    if transform and transforms is not None:
        transforms[field["name"]] = transform
    elif transform:
        source.note("transformFunction", f"belongs into derivedColumns of the ingestion: {transform}")
    members = without_empty(field)
    return members if default is None else {**members, "defaultNullValue": default}


def _time(source: ConfigReader) -> Json:
    return {"role": "dateTime", "format": source.text("format"), "granularity": source.text("granularity")}
