"""Build a segment file from rows: the entry point of a build."""

import logging
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from merlot.errors import InvalidInputError
from merlot.segment.build.column_writer import WrittenColumn, requests_of, write_column
from merlot.segment.build.file_writer import FileWriter
from merlot.segment.build.partitions import NotPartitionedError, partition_info
from merlot.segment.build.request import BuildRequest, BuiltSegment
from merlot.segment.build.rows import BuildColumn, ColumnarRows, stored_column, widened
from merlot.segment.build.sorting import sorted_order
from merlot.segment.build.times import time_range
from merlot.segment.derived import unit_of_column, write_derived
from merlot.segment.index import bloom
from merlot.segment.layout import FORMAT_VERSION, Footer
from merlot.segment.metadata import MAX_DOCS, ColumnMetadata, SegmentMetadata, parse_metadata
from merlot.segment.startree.source import TreeSources
from merlot.spec.indexing import Encoding, PartitionEnforcement, PartitioningSpec
from merlot.spec.star_tree import StarTreeChoice

_LOG = logging.getLogger(__name__)


def build_segment(request: BuildRequest, rows: ColumnarRows, directory: Path) -> BuiltSegment:
    """Write `<directory>/<name>.mseg`, replacing an existing file; a failure leaves the folder as it was.

    `rows`, a table or an object that makes its columns one after another on demand, has the columns of the schema (in
    any order), of types that cast to `arrow_types.arrow_schema` without loss.

    Raises InvalidInputError if the rows do not fit the schema, the request is impossible or a star-tree would be too
    large; UnavailableError if the file cannot be written."""
    check_columns(request, rows)
    order = sorted_order(request, rows)
    with SegmentWriter(request, rows.num_rows, directory) as writer:
        for field in request.schema.fields:
            column = rows.column(field.name)
            writer.add(stored_column(field, column if order is None else widened(column).take(order)))
        return writer.commit()


class SegmentWriter:
    """Writer of one segment file, a column at a time; used by one thread. It is a context manager: an exception in its
    block deletes what was written, and the block has to end with a commit.

    Columns come in the order of the schema, each in the order of rows that the table asks for. Raises as
    `build_segment` does."""

    def __init__(self, request: BuildRequest, num_docs: int, directory: Path) -> None:
        _check_identity(request, num_docs)
        self._request = request
        self._num_docs = num_docs
        self._requests = requests_of(request.indexing, request.schema)
        self._file = FileWriter(directory, request.name)
        self._columns: list[ColumnMetadata] = []
        self._derived: list[ColumnMetadata] = []
        self._time: dict[str, Any] = {}
        self._partitions: dict[str, Any] = {}
        self._unpartitioned: dict[str, str] = {}
        self._blooms: dict[str, str] = {}
        trees = request.indexing.star_tree_index_configs if num_docs else ()
        is_automatic = bool(num_docs) and request.indexing.star_tree is StarTreeChoice.AUTO
        self._trees = TreeSources(trees, is_automatic=is_automatic, may_leave_out=request.leaves_out_large_trees)

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, traceback)

    def add(self, column: BuildColumn) -> None:
        """Append the next column, and take from its values at once what the segment's metadata needs."""
        request, field = self._request, column.field
        assert field is request.schema.fields[len(self._columns)]
        assert column.num_docs == self._num_docs
        written = write_column(column, self._requests[len(self._columns)], self._file)
        self._columns.append(written.metadata)
        self._trees.take(written.metadata, column, written.coded)
        if request.indexing.may_derive:
            self._add_derived(column, written)
        words = written.indexes.get(bloom.WORDS)
        if words is not None and words.nbytes <= bloom.MAX_RECORD_BYTES:
            self._blooms[field.name] = bloom.to_text(words)
        if field.name == request.time_column:
            self._time = {"time_column": field.name, "time_unit_format": field.format}
            self._time |= time_range(field, written.metadata, written.distinct)
        if request.partitioning is not None and field.name in request.partitioning.columns:
            self._add_partitions(request.partitioning, column, written)

    def _add_derived(self, column: BuildColumn, written: WrittenColumn) -> None:
        indexing, unit = self._request.indexing, unit_of_column(written.metadata)
        for derived in indexing.derived:
            if derived.column != column.field.name or unit is None:
                continue
            encoding = Encoding.DICTIONARY if derived.name in indexing.tree_dimensions else Encoding.AUTO
            derived_column = write_derived(derived, column, written.coded, unit, encoding=encoding, file=self._file)
            self._derived.append(derived_column.metadata)
            self._trees.take(derived_column.metadata, column, derived_column.coded)

    def commit(self) -> BuiltSegment:
        """Write star-trees and the footer; the file is complete afterwards."""
        content = self._content()
        trees, lacks_tree = self._trees.write(self._file, self._num_docs)
        if lacks_tree:
            content["lacks_automatic_tree"] = True
        if trees:
            content["star_trees"] = [tree.model_dump(mode="json", exclude_defaults=True) for tree in trees]
        content_bytes = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        identity = {"name": self._request.name, "table": self._request.table}
        footer = Footer(content_bytes, identity, _creation(self._request))
        size = self._file.commit(footer)
        metadata = _metadata(content, footer, self._columns)
        return BuiltSegment(
            path=self._file.path,
            metadata=metadata,
            size_bytes=size,
            unpartitioned=self._unpartitioned,
            blooms=self._blooms,
        )

    def _content(self) -> dict[str, Any]:
        request = self._request
        content: dict[str, Any] = {
            "columns": [column.model_dump(mode="json", exclude_defaults=True) for column in self._columns],
            "num_docs": self._num_docs,
            "sort_order": list(request.indexing.sorted_columns),
            **self._time,
        }
        if self._derived:
            content["derived"] = [column.model_dump(mode="json", exclude_defaults=True) for column in self._derived]
        return content if request.partitioning is None else {**content, "partitions": self._partitions}

    def _add_partitions(self, partitioning: PartitioningSpec, column: BuildColumn, written: WrittenColumn) -> None:
        """Record the partitions that a column's values fall into, or the reason why they have none."""
        name = column.field.name
        values = column.values if written.distinct is None else written.distinct
        must_be_one = partitioning.enforce is PartitionEnforcement.ASSERT
        try:
            self._partitions[name] = partition_info(
                column.field.type, partitioning.columns[name], values, must_be_one=must_be_one
            )
        except NotPartitionedError as error:
            self._unpartitioned[name] = str(error)
            _LOG.warning("segment is not partitioned segment=%s column=%s cause=%s", self._request.name, name, error)


def check_columns(request: BuildRequest, rows: ColumnarRows) -> None:
    """Raise InvalidInputError unless rows have the columns of the schema, in any order."""
    names = request.schema.names
    if sorted(rows.column_names) != sorted(names):
        odd = sorted(set(rows.column_names) ^ set(names)) or sorted(rows.column_names)
        raise InvalidInputError(f"rows and schema differ segment={request.name} columns={','.join(odd)}")


def _check_identity(request: BuildRequest, num_docs: int) -> None:
    if num_docs > MAX_DOCS:
        raise InvalidInputError(f"too many rows for a segment segment={request.name} rows={num_docs}")
    if "/" in request.name or request.name.startswith(".") or "@" in request.name or not request.name:
        raise InvalidInputError(f"segment name cannot be a file name segment={request.name!r}")
    for name in (request.time_column, *(request.partitioning.columns if request.partitioning else ())):
        if name is not None:
            request.field(name)


def _creation(request: BuildRequest) -> dict[str, Any]:
    """Return creation facts, cut to the room that a file has for them."""
    facts = request.creation
    return {
        "host": facts.host.encode("ascii", "replace").decode()[:100],
        "time_ms": facts.time_ms,
        "builder": facts.builder.encode("ascii", "replace").decode()[:50],
    }


def _metadata(content: dict[str, Any], footer: Footer, columns: Sequence[ColumnMetadata]) -> SegmentMetadata:
    facts = {"crc": zlib.crc32(footer.content), "format_version": FORMAT_VERSION, "creation": footer.creation}
    metadata = parse_metadata({**content, **footer.identity, **facts, "columns": {}})
    return metadata.model_copy(update={"columns": {column.name: column for column in columns}})
