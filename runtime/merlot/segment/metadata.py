"""The footer of a segment as typed values. FORMAT.md §3.

Readers ignore fields they do not know. `JsonValue`s are column values in JSON: numbers, strings, BYTES as hex,
non-finite floats as "NaN", "Infinity", "-Infinity"; BOOLEAN as 0 and 1, TIMESTAMP as milliseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict

from merlot.ids import SegmentKey, SegmentName
from merlot.values.types import TypeName

JsonValue = str | int | float
MAX_DOCS: Final = (1 << 32) - 2
"""Limit for the docs of a segment: doc ids, and the starts of docs' values, have 32 bits."""


class ColumnEncoding(StrEnum):
    """Layout in which the values of a column are stored."""

    DICTIONARY_ALIGNED = "DICTIONARY_ALIGNED"
    """Dict ids in 1, 2 or 4 bytes."""
    DICTIONARY_PACKED = "DICTIONARY_PACKED"
    """Dict ids in as few bits as the cardinality needs."""
    DICTIONARY_RUNS = "DICTIONARY_RUNS"
    """Sorted column: the first doc of each dict id."""
    RAW_FIXED = "RAW_FIXED"
    """Values of fixed width."""
    RAW_PACKED = "RAW_PACKED"
    """Integers as bit-packed distances from the smallest."""
    RAW_VARIABLE = "RAW_VARIABLE"
    """Offsets and bytes."""

    @property
    def has_dictionary(self) -> bool:
        return self.startswith("DICTIONARY")


class BufferRef(NamedTuple):
    """A typed array of the segment: which buffer, how to view it, and the crc of its decoded bytes."""

    number: int
    dtype: str
    size: int
    crc: int


Shape = tuple[tuple[str, ...], int | None]
"""Dtypes that a buffer may have according to its column's entry in the footer, and its number of elements; None if only
the content determines the number."""
Shapes = dict[str, Shape]
"""Shapes by the names of buffers."""


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class ColumnMetadata(Model):
    """Facts about one column that are known without reading it."""

    name: str
    type: TypeName
    role: str
    multi_value: bool = False
    format: str | None = None
    default_null_value: JsonValue
    encoding: ColumnEncoding
    cardinality: int | None = None
    """Number of distinct values, the default of nulls included; None if they were not counted."""
    min: JsonValue | None = None
    """Smallest stored value, the default of nulls included; None if unknown, or if there are no rows. NaN is the
    smallest only if all values are NaN."""
    max: JsonValue | None = None
    """Largest stored value; NaN is larger than all."""
    num_nulls: int = 0
    is_sorted: bool = False
    compression: str = "AUTO"
    """Compression that the table asked for: NONE, LZ4, ZSTD, or AUTO if it asked for none. A buffer that would not
    shrink is stored uncompressed anyway."""
    bits: int | None = None
    """Width of a packed id or distance."""
    base: int = 0
    """Number that RAW_PACKED distances are counted from."""
    total_values: int
    """Number of values; it may differ from the number of docs if the column is multi-value."""
    max_values_per_doc: int = 1
    buffers: dict[str, BufferRef]


class PartitionInfo(Model):
    """Partitions of a partition function that the rows of a segment fall into."""

    function_name: str
    num_partitions: int
    function_config: dict[str, str] = {}
    partitions: tuple[int, ...]


class StarTreeFunction(Model):
    """Function of a star-tree on a column: states of an aggregate, with one stored column per part of a state."""

    function: str
    column: str = ""
    """Empty for the count of rows."""
    type: TypeName | None = None
    """Type of the column's values when the tree was built."""
    states: tuple[ColumnMetadata, ...]


class StarTreeMetadata(Model):
    """One star-tree. FORMAT.md §5.14."""

    dimensions: tuple[str, ...]
    """Dimensions in the order in which the tree is split."""
    skipped: tuple[str, ...] = ()
    """Dimensions without star nodes."""
    is_automatic: bool = False
    """True if the builder chose the dimensions and functions from the columns, for `starTree: auto`."""
    max_leaf_records: int
    num_docs: int
    """Documents of the tree."""
    num_nodes: int
    ids: tuple[ColumnMetadata, ...]
    """Dict ids of the documents, by dimension."""
    functions: tuple[StarTreeFunction, ...]
    buffers: dict[str, BufferRef]


class CreationFacts(Model):
    """Origin of the file. It is not part of the content crc."""

    host: str = ""
    time_ms: int = 0
    builder: str = ""


class SegmentMetadata(Model):
    """Everything that a footer says."""

    format_version: int
    name: str
    table: str
    """Raw table name."""
    num_docs: int
    crc: int
    """Content crc. Segments of equal rows and equal configuration have equal crcs, whoever builds them."""
    columns: Mapping[str, ColumnMetadata]
    time_column: str | None = None
    time_unit_format: str | None = None
    start_time: JsonValue | None = None
    end_time: JsonValue | None = None
    start_time_ms: int | None = None
    """First instant, in milliseconds since 1970; None if unknown, for example without rows or if a value is not an
    instant. Such a segment must not be pruned by time."""
    end_time_ms: int | None = None
    sort_order: tuple[str, ...] = ()
    partitions: dict[str, PartitionInfo] = {}
    derived: tuple[ColumnMetadata, ...] = ()
    """Columns computed from others, such as `$ts$DAY`. They are in no schema. FORMAT.md §5.16."""
    star_trees: tuple[StarTreeMetadata, ...] = ()
    lacks_automatic_tree: bool = False
    """True if an automatic star-tree was wanted, but none was small enough to be worth building."""
    creation: CreationFacts = CreationFacts()

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(SegmentName(self.name), self.crc)


class LazyColumns(Mapping[str, ColumnMetadata]):
    """Columns of a footer, each parsed on first use. Queries read few of them, and the JSON takes a tenth of the memory
    of its parsed form."""

    __slots__ = ("_fields", "_parse", "_parsed")

    def __init__(self, fields: Mapping[str, dict[str, Any]], make: Callable[[bytes], ColumnMetadata]) -> None:
        """fields: entries of the footer, by column. make: parses an entry's JSON on first use of the column, and raises
        CorruptionError if the entry is invalid."""
        # Copied, because the bytes that orjson returns own a kilobyte or more of unused memory.
        self._fields = {sys.intern(name): bytes(memoryview(orjson.dumps(column))) for name, column in fields.items()}
        self._parse = make
        self._parsed: dict[str, ColumnMetadata] = {}

    def __getitem__(self, name: str) -> ColumnMetadata:
        """Return a column. Raises KeyError if there is none, CorruptionError if its entry is invalid."""
        column = self._parsed.get(name)
        if column is None:
            column = self._parsed[name] = self._parse(self._fields[name])
        return column

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def parse_metadata(fields: dict[str, Any]) -> SegmentMetadata:
    """Return a footer's fields, validated. Raises pydantic.ValidationError, which the caller turns into a
    CorruptionError that names the file."""
    return SegmentMetadata.model_validate(fields)
