"""Pinot's Schema as `spec.schema`."""

from __future__ import annotations

from merlot.spec.pinot_import.source import Json, Source, without_empty


def schema(source: Source) -> Json:
    """Fields in the order of Pinot's: dimensions, metrics, times."""
    fields = [_field(one, {}) for one in source.each("dimensionFieldSpecs")]
    fields += [_field(one, {"role": "metric"}) for one in source.each("metricFieldSpecs")]
    fields += [_field(one, _time(one)) for one in source.each("dateTimeFieldSpecs")]
    source.leave(
        {
            "timeFieldSpec": "is Pinot's old form: declare the column in dateTimeFieldSpecs, and convert again",
            "complexFieldSpecs": "columns of maps and structs have no equivalent; a JSON column holds them as text",
        }
    )
    source.ignore("schemaName", "enableColumnBasedNullHandling")
    return without_empty({"fields": fields, "primaryKey": source.names("primaryKeyColumns")})


def _field(source: Source, more: Json) -> Json:
    is_single = str(source.take("singleValueField", True)).lower() != "false"
    source.ignore("notNull", "fieldType", "virtualColumnProvider", "allowTrailingZeros")
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
    if transform:
        source.note("transformFunction", f"belongs into derivedColumns of the ingestion: {transform}")
    found = without_empty(field)
    return found if default is None else {**found, "defaultNullValue": default}


def _time(source: Source) -> Json:
    return {"role": "dateTime", "format": source.text("format"), "granularity": source.text("granularity")}
