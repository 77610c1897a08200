"""Rows to a segment file: the one entry point of a build."""

import logging
import zlib
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from merlot.errors import InvalidInputError
from merlot.segment.build.column_writer import ColumnRequest, WrittenColumn, write_column
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.build.partitions import NotPartitionedError, partition_info
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.build.rows import stored_column
from merlot.segment.build.sorting import sorted_rows
from merlot.segment.build.times import time_range
from merlot.segment.layout import FORMAT_VERSION, Footer
from merlot.segment.metadata import SegmentMetadata, parse_metadata
from merlot.spec.indexing import PartitionEnforcement
from merlot.spec.schema import FieldSpec

_LOG = logging.getLogger(__name__)

MAX_DOCS = (1 << 32) - 2
"""Doc ids are u32, and a run ends one past the last."""


def build_segment(request: BuildRequest, rows: pa.Table, directory: Path) -> BuiltSegment:
    """Write `<directory>/<name>.mseg`, replacing one that is there; nothing is left behind by a failure.

    `rows` has the columns of the schema (in any order), of types that cast to `arrow_types.arrow_schema` without loss.
    Raises InvalidInputError if they do not, UnavailableError if the file cannot be written."""
    _check(request, rows)
    ordered = sorted_rows(request, rows)
    with FileWriter(directory, request.name) as writer:
        columns = [_write(request, ordered, field, writer) for field in request.schema.fields]
        content = _content(request, ordered.num_rows, columns)
        unpartitioned = _add_partitions(content, request, ordered, columns)
        content_bytes = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        footer = Footer(content_bytes, {"name": request.name, "table": request.table}, _creation(request))
        size = writer.commit(footer)
    metadata = _metadata(content, footer)
    return BuiltSegment(path=writer.path, metadata=metadata, size_bytes=size, unpartitioned=unpartitioned)


def _check(request: BuildRequest, rows: pa.Table) -> None:
    names = request.schema.names
    if sorted(rows.column_names) != sorted(names):
        odd = sorted(set(rows.column_names) ^ set(names)) or sorted(rows.column_names)
        raise InvalidInputError(f"rows and schema differ segment={request.name} columns={','.join(odd)}")
    if rows.num_rows > MAX_DOCS:
        raise InvalidInputError(f"too many rows for a segment segment={request.name} rows={rows.num_rows}")
    if "/" in request.name or request.name.startswith(".") or "@" in request.name or not request.name:
        raise InvalidInputError(f"segment name cannot be a file name segment={request.name!r}")


def _write(request: BuildRequest, rows: pa.Table, field: FieldSpec, writer: FileWriter) -> WrittenColumn:
    indexing, name = request.indexing, field.name
    wishes = ColumnRequest(
        encoding=indexing.encoding_of(name),
        compression=indexing.compression.get(name),
        inverted=name in indexing.inverted,
        sort_key=name in indexing.sorted_columns,
    )
    return write_column(stored_column(field, rows.column(name)), wishes, writer)


def _content(request: BuildRequest, num_docs: int, columns: list[WrittenColumn]) -> dict[str, Any]:
    content: dict[str, Any] = {
        "columns": [column.metadata.model_dump(mode="json", exclude_defaults=True) for column in columns],
        "num_docs": num_docs,
        "sort_order": list(request.indexing.sorted_columns),
    }
    by_name = {column.metadata.name: column for column in columns}
    if request.time_column is not None:
        field, column = request.field(request.time_column), by_name[request.time_column]
        content |= {"time_column": request.time_column, "time_unit_format": field.format}
        content |= time_range(field, column.metadata, column.distinct)
    return content


def _add_partitions(
    content: dict[str, Any], request: BuildRequest, rows: pa.Table, columns: list[WrittenColumn]
) -> dict[str, str]:
    """Returns what is wrong with the columns that rows are not partitioned by, whatever the table declares."""
    if request.partitioning is None:
        return {}
    by_name = {column.metadata.name: column for column in columns}
    must_be_one = request.partitioning.enforce is PartitionEnforcement.ASSERT
    partitions, wrong = {}, {}
    for name, function in sorted(request.partitioning.columns.items()):
        field, values = request.field(name), by_name[name].distinct
        if values is None:
            values = stored_column(field, rows.column(name)).values
        try:
            partitions[name] = partition_info(field.type, function, values, must_be_one=must_be_one)
        except NotPartitionedError as error:
            wrong[name] = str(error)
            _LOG.warning("segment is not partitioned segment=%s column=%s cause=%s", request.name, name, error)
    content["partitions"] = partitions
    return wrong


def _creation(request: BuildRequest) -> dict[str, Any]:
    """Creation facts, cut to the room that a file has for them."""
    facts = request.creation
    return {
        "host": facts.host.encode("ascii", "replace").decode()[:100],
        "time_ms": facts.time_ms,
        "builder": facts.builder.encode("ascii", "replace").decode()[:50],
    }


def _metadata(content: dict[str, Any], footer: Footer) -> SegmentMetadata:
    columns = {column["name"]: column for column in content["columns"]}
    facts = {"crc": zlib.crc32(footer.content), "format_version": FORMAT_VERSION, "creation": footer.creation}
    return parse_metadata({**content, **footer.identity, **facts, "columns": columns})
