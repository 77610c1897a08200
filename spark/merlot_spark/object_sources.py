"""Batch sources in S3, read by pyarrow in the executors: Spark's own reader would need Hadoop's client and Amazon's,
half a gigabyte of jars that pyspark does not bring.

`s3://bucket/path?region=…&endpoint_override=…&scheme=…`, where path is a file, a folder or a glob; credentials come
from the environment of driver and executors. Parquet and ORC are read by row group or file, text by file.
"""

from __future__ import annotations

import fnmatch
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from merlot.errors import InvalidInputError, NotFoundError, UnavailableError
from merlot.spec.formats import BatchFormat
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import TableSchema
from merlot.uris import S3_OPTIONS

SCHEMES = ("s3://", "s3a://")
LIST_THREADS = 16
_WILDCARDS = "*?["
_WIDER: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
"""Types that Spark lacks, by the nearest that loses nothing."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where the objects of one source are; opens its file system wherever it is sent."""

    options: tuple[tuple[str, str], ...]
    path: str
    """Bucket and key: a file, a folder or a glob."""

    @classmethod
    def of(cls, uri: str) -> Bucket:
        """Of a source's URI; InvalidInputError for options that there are none of."""
        # A glob's question mark is not the beginning of the options: those hold an equals sign.
        path, mark, query = uri.rpartition("?")
        if not mark or "=" not in query:
            path, query = uri, ""
        options = dict(parse_qsl(query))
        if unknown := sorted(options.keys() - S3_OPTIONS):
            raise InvalidInputError(f"unknown option in source uri options={unknown} known={sorted(S3_OPTIONS)}")
        parts = urlsplit(path)
        return cls(tuple(sorted(options.items())), parts.netloc + path.partition(parts.netloc)[2].rstrip("/"))

    def open(self) -> fs.S3FileSystem:
        """A file system of this process."""
        return fs.S3FileSystem(**dict(self.options))

    def files(self) -> list[str]:
        """Paths of the objects, sorted, without hidden ones (`_SUCCESS`, `.tmp`). NotFoundError if there are none."""
        found = [path for path in self._listed() if not path.rpartition("/")[2].startswith(("_", "."))]
        if not found:
            raise NotFoundError(f"no source files uri=s3://{self.path}")
        return sorted(found)

    def _listed(self) -> list[str]:
        at = min((self.path.find(sign) for sign in _WILDCARDS if sign in self.path), default=-1)
        root = self.path if at < 0 else self.path[:at].rpartition("/")[0]
        try:
            store = self.open()
            if at < 0 and store.get_file_info(root).is_file:
                return [root]
            infos = store.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise UnavailableError(f"cannot list source uri=s3://{self.path} reason={reason}") from error
        paths = [info.path for info in infos if info.is_file]
        return paths if at < 0 else [path for path in paths if _matches(path, self.path)]


def read_columns(spark: SparkSession, source: BatchIngestion, schema: TableSchema) -> DataFrame:
    """Parquet or ORC. Columns and types are the first file's; a file that lacks a column has nulls in it."""
    bucket = Bucket.of(source.source_uri)
    paths = bucket.files()
    format_name = source.format.lower()
    target = _target_schema(bucket, paths[0], format_name, _wanted(source, schema))
    pieces = _pieces(bucket, paths) if source.format is BatchFormat.PARQUET else [(path, -1) for path in paths]
    rows = spark.sparkContext.parallelize(pieces, len(pieces))
    described = spark.createDataFrame(rows, "path string, part int")
    return described.mapInArrow(_reader(bucket, format_name, target), from_arrow_schema(target))


def read_lines(spark: SparkSession, source: BatchIngestion) -> RDD[str]:
    """Lines of text files, unpacked by the ending of their names (`.gz`, `.zst`, …)."""
    bucket = Bucket.of(source.source_uri)
    paths = bucket.files()

    def lines(path: str) -> Iterator[str]:
        with io.TextIOWrapper(bucket.open().open_input_stream(path), encoding="utf-8", errors="replace") as text:
            for line in text:
                yield line.rstrip("\r\n")

    return spark.sparkContext.parallelize(paths, len(paths)).flatMap(lines)


def _matches(path: str, pattern: str) -> bool:
    """As Hadoop globs: a star stays within a folder; a folder that matches stands for what is in it."""
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) >= len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def _wanted(source: BatchIngestion, schema: TableSchema) -> frozenset[str] | None:
    """Columns to read, lower case; None for all, where SQL expressions may name any."""
    if source.filter is not None or source.derived_columns:
        return None
    return frozenset(name.lower() for name in schema.names)


def _target_schema(bucket: Bucket, path: str, format_name: str, wanted: frozenset[str] | None) -> pa.Schema:
    found = _file_schema(bucket, path, format_name)
    fields = [field for field in found if wanted is None or field.name.lower() in wanted] or list(found)
    return pa.schema([pa.field(field.name, spark_type(field.type)) for field in fields])


def _file_schema(bucket: Bucket, path: str, format_name: str) -> pa.Schema:
    try:
        return ds.dataset(path, filesystem=bucket.open(), format=format_name).schema
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"cannot read source file=s3://{path} format={format_name} reason={reason}") from error
    except OSError as error:
        raise UnavailableError(f"cannot read source file=s3://{path} reason={str(error).splitlines()[0]}") from error


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type, of those that Spark knows, that holds every value of `kind`."""
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, spark_type(field.type)) for field in kind])
    return _WIDER.get(kind, kind)


def _pieces(bucket: Bucket, paths: Sequence[str]) -> list[tuple[str, int]]:
    """File and row group, of every file."""
    store = bucket.open()
    parquet = ds.ParquetFileFormat()

    def groups_of(path: str) -> list[tuple[str, int]]:
        try:
            return [(path, group) for group in range(parquet.make_fragment(path, store).num_row_groups)]
        except pa.ArrowInvalid as error:
            reason = str(error).splitlines()[0]
            raise InvalidInputError(f"cannot read source file=s3://{path} format=parquet reason={reason}") from error

    with ThreadPoolExecutor(LIST_THREADS) as threads:
        found = [piece for pieces in threads.map(groups_of, paths) for piece in pieces]
    return found or [(paths[0], -1)]


def _reader(
    bucket: Bucket, format_name: str, target: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What executors run: from batches of (path, part) to batches of rows."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = bucket.open()
        for batch in batches:
            for path, part in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                for rows in _fragment(store, format_name, path, part).to_batches(schema=None):
                    yield _conformed(rows, target)

    return read


def _fragment(store: fs.FileSystem, format_name: str, path: str, part: int) -> ds.Fragment:
    if format_name == "parquet":
        return ds.ParquetFileFormat().make_fragment(path, store, row_groups=None if part < 0 else [part])
    return ds.OrcFileFormat().make_fragment(path, store)


def _conformed(rows: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for field in target:
        found = rows.schema.get_field_index(field.name)
        arrays.append(pa.nulls(rows.num_rows, field.type) if found < 0 else rows.column(found).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=target)
