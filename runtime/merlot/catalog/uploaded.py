"""Take in a segment file that a client sends: check it against its table, and upload it to the table's deep store."""

from __future__ import annotations

from pathlib import Path

from merlot.catalog.publish import record_of
from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.publish import PublishRequest
from merlot.cluster.segments.shapes import check_shape
from merlot.errors import CorruptionError, InvalidInputError
from merlot.ids import TableName, raw_name
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.json_values import to_json
from merlot.segment.layout import HEADER_MAGIC
from merlot.segment.metadata import ColumnMetadata
from merlot.segment.observed import small_blooms
from merlot.spec.evolution import can_widen
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.spec.table import TableSpec
from merlot.store.deepstore import DeepStore

_GZIP = b"\x1f\x8b"
_TAR = b"ustar"
_TAR_AT = 257


def accept_upload(path: Path, table: TableName, spec: TableSpec, store_uri: str) -> SegmentRecord:
    """Upload a file, and return the record to publish. Running it again is harmless.

    Raise InvalidInputError, before anything is uploaded, if the file is no segment or does not fit this table."""
    _check_kind(path)
    try:
        segment = ImmutableSegment.open(path, verify=True)
    except CorruptionError as error:
        raise InvalidInputError(f"the file is damaged: {error}") from error
    with segment:
        _check(segment, table, spec)
        store = DeepStore(store_uri)
        url = store.url_of(table, segment.metadata.key)
        record = record_of(segment.metadata, url, path.stat().st_size, small_blooms(segment, spec.indexing))
        check_shape(raw_name(table), spec, PublishRequest(records=(record,)))
        store.put(path, url)
        return record


def _check_kind(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(_TAR_AT + len(_TAR))
    if start.startswith(HEADER_MAGIC):
        return
    if start.startswith(_GZIP) or start[_TAR_AT:] == _TAR:
        raise InvalidInputError(
            "this is an archive, as Pinot's segments are, which Merlot does not read: build segments of the rows "
            "instead, by spec.ingestion.batch of the manifest or merlot_spark.build_segments (docs/ingestion.md)"
        )
    raise InvalidInputError("this is no segment file of Merlot's (*.mseg)")


def _check(segment: ImmutableSegment, table: TableName, spec: TableSpec) -> None:
    metadata = segment.metadata
    if metadata.table != raw_name(table):
        raise InvalidInputError(f"the segment is of another table expected={raw_name(table)} got={metadata.table}")
    if metadata.time_column != spec.time_column:
        raise InvalidInputError(
            f"the segment has another timeColumn expected={spec.time_column} got={metadata.time_column}"
        )
    for field in spec.table_schema.fields:
        stored = metadata.columns.get(field.name)
        if stored is not None:
            _check_column(stored, field)


def _check_column(stored: ColumnMetadata, field: FieldSpec) -> None:
    """Raise InvalidInputError if values of the stored column, nulls included, differ in meaning from the field's."""
    expected_type, stored_type = (
        f"{field.type}{'[]' if field.multi_value else ''}",
        f"{stored.type}{'[]' if stored.multi_value else ''}",
    )
    facts: list[tuple[str, object, object]] = [
        ("type", expected_type, expected_type if _is_read_as(stored, field) else stored_type),
        ("role", field.role, stored.role),
    ]
    if field.role is FieldRole.DATE_TIME:
        facts.append(("format", field.format or "TIMESTAMP", stored.format or "TIMESTAMP"))
    if stored.type is field.type:
        facts.append(("defaultNullValue", to_json(field.type, field.default_value), stored.default_null_value))
    for name, expected, got in facts:
        if expected != got:
            raise InvalidInputError(
                f"the segment has another {name} of a column column={field.name} expected={expected} got={got}"
            )


def _is_read_as(stored: ColumnMetadata, field: FieldSpec) -> bool:
    return stored.multi_value == field.multi_value and can_widen(stored.type, field.type)
