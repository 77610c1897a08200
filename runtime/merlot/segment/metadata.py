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
"""Of a segment: doc ids and where a doc's values start have 32 bits."""


class ColumnEncoding(StrEnum):
    """How the values of a column are stored."""

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
"""What a buffer must be by what the footer says of its column: any of these dtypes, and so many elements; None if only
the content tells."""
Shapes = dict[str, Shape]
"""By the name of a buffer."""


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ColumnMetadata(Model):
    """What is known of one column without reading it."""

    name: str
    type: TypeName
    role: str
    multi_value: bool = False
    format: str | None = None
    default_null_value: JsonValue
    encoding: ColumnEncoding
    cardinality: int | None = None
    """Distinct values, the default of nulls included; None where no dictionary counted them."""
    min: JsonValue | None = None
    """Smallest stored value, the default of nulls included; None if unknown or no rows. NaN is never the smallest,
    unless alone."""
    max: JsonValue | None = None
    """Largest stored value; NaN is larger than all."""
    num_nulls: int = 0
    is_sorted: bool = False
    compression: str = "AUTO"
    """What the table asked for: NONE, LZ4, ZSTD, or AUTO if it said nothing. What would not shrink is plain all the
    same."""
    bits: int | None = None
    """Width of a packed id or distance."""
    base: int = 0
    """What RAW_PACKED distances are counted from."""
    total_values: int
    """Values, more or fewer than docs if multi-value."""
    max_values_per_doc: int = 1
    buffers: dict[str, BufferRef]


class PartitionInfo(Model):
    """Which partitions of a partition function the rows of a segment fall into."""

    function_name: str
    num_partitions: int
    function_config: dict[str, str] = {}
    partitions: tuple[int, ...]


class StarTreeFunction(Model):
    """What a star-tree keeps of a column: the states of an aggregate, a column per part of a state."""

    function: str
    column: str = ""
    """Empty for the count of rows."""
    type: TypeName | None = None
    """Of the column's values when the tree was built."""
    states: tuple[ColumnMetadata, ...]


class StarTreeMetadata(Model):
    """One star-tree. FORMAT.md §5.14."""

    dimensions: tuple[str, ...]
    """In the order in which the tree is split."""
    skipped: tuple[str, ...] = ()
    """Those without star nodes."""
    is_automatic: bool = False
    """Whether it was chosen by the columns, for `starTree: auto`."""
    max_leaf_records: int
    num_docs: int
    """Documents of the tree."""
    num_nodes: int
    ids: tuple[ColumnMetadata, ...]
    """Of each dimension, the dict ids of the documents."""
    functions: tuple[StarTreeFunction, ...]
    buffers: dict[str, BufferRef]


class CreationFacts(Model):
    """Who made the file and when; outside the content crc."""

    host: str = ""
    time_ms: int = 0
    builder: str = ""


class SegmentMetadata(Model):
    """All that a footer says."""

    format_version: int
    name: str
    table: str
    """Raw table name."""
    num_docs: int
    crc: int
    """Content crc: equal rows built with equal configuration have equal ones, whoever builds them."""
    columns: Mapping[str, ColumnMetadata]
    time_column: str | None = None
    time_unit_format: str | None = None
    start_time: JsonValue | None = None
    end_time: JsonValue | None = None
    start_time_ms: int | None = None
    """None if there are no rows or a value is not an instant: such a segment must not be pruned by time."""
    end_time_ms: int | None = None
    sort_order: tuple[str, ...] = ()
    partitions: dict[str, PartitionInfo] = {}
    derived: tuple[ColumnMetadata, ...] = ()
    """Columns computed from others, `$ts$DAY`, which no schema has. FORMAT.md §5.15."""
    star_trees: tuple[StarTreeMetadata, ...] = ()
    lacks_automatic_tree: bool = False
    """Whether the rows make none that is worth its documents."""
    creation: CreationFacts = CreationFacts()

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(SegmentName(self.name), self.crc)


class ColumnsWhenAsked(Mapping[str, ColumnMetadata]):
    """Columns of a footer, each made when it is first asked for: queries read few of them, and JSON takes a tenth of
    what it stands for."""

    __slots__ = ("_fields", "_made", "_make")

    def __init__(self, fields: Mapping[str, dict[str, Any]], make: Callable[[bytes], ColumnMetadata]) -> None:
        """fields: of a footer as it was read. make: from JSON; raises CorruptionError if there cannot be such a column.
        Called for each column when it is asked for."""
        # Copied: what orjson returns has room for a kilobyte and more.
        self._fields = {sys.intern(name): bytes(memoryview(orjson.dumps(column))) for name, column in fields.items()}
        self._make = make
        self._made: dict[str, ColumnMetadata] = {}

    def __getitem__(self, name: str) -> ColumnMetadata:
        """KeyError if there is no such column; CorruptionError if its entry is not what it should be."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(self._fields[name])
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def parse_metadata(fields: dict[str, Any]) -> SegmentMetadata:
    """Validate; raises pydantic.ValidationError, which the caller turns into CorruptionError with its path."""
    return SegmentMetadata.model_validate(fields)
