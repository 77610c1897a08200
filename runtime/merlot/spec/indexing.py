"""Storage and indexes of columns, and how rows are spread over partitions."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from merlot.spec.column_names import ColumnName
from merlot.spec.derived import DerivedColumn, Granularity, derived_of
from merlot.spec.model import SpecModel
from merlot.spec.star_tree import StarTreeChoice, StarTreeSpec
from merlot.values.types import TypeName

NUMBERS: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.FLOAT, TypeName.DOUBLE, TypeName.TIMESTAMP})
TEXTS: Final = frozenset({TypeName.STRING, TypeName.JSON})
MAX_STAR_TREES: Final = 16
"""Most star-trees of a table."""
DEFAULT_FPP: Final = 0.01
"""Default false-positive rate of Bloom filters, which takes 10 bits a value."""


class Encoding(StrEnum):
    """How values are stored. AUTO decides by the statistics of each segment."""

    AUTO = "AUTO"
    DICTIONARY = "DICTIONARY"
    RAW = "RAW"


class Compression(StrEnum):
    """How the chunks of a raw column are compressed."""

    NONE = "NONE"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexKind:
    """Columns that an index can cover.

    A field of `IndexingSpec` with an `IndexKind` in its annotation declares an index. The field's name is also the name
    of the index kind, of the module in `segment.index` that writes and reads it, and the first part of its buffers'
    names."""

    raw_types: frozenset[TypeName] = frozenset()
    """Types whose columns need no dictionary for it; columns of other types need one."""
    types: frozenset[TypeName] = frozenset(TypeName)
    takes_lists: bool = True
    """True if it covers multi-value columns."""


IndexedColumns = tuple[ColumnName, ...]


class IndexingSpec(SpecModel):
    """Storage and indexes, by column. A change of storage applies to segments that are built after it. An index that is
    added is also built for older segments, while queries go on; an index that is removed is no longer used. Consuming
    segments have no indexes until they are sealed."""

    sorted_columns: tuple[ColumnName, ...] = ()
    """Columns by which rows are sorted within a segment, most significant first."""
    inverted: Annotated[IndexedColumns, IndexKind()] = ()
    """Columns with an inverted index, from each value to its rows; for columns that queries filter by."""
    bloom: Annotated[IndexedColumns, IndexKind(raw_types=frozenset(TypeName))] = ()
    """Columns with a Bloom filter, which shows that a segment lacks a value; for columns of many values that queries
    look up individually, such as ids. Brokers use small filters too: see the pruner `bloom`."""
    range: Annotated[IndexedColumns, IndexKind(raw_types=NUMBERS, takes_lists=False)] = ()
    """Columns with a range index, which finds the rows of a range of values without reading the others. It is for
    numbers and times by which rows are not sorted, and of which queries select few. Four bytes a row."""
    json_paths: Annotated[IndexedColumns, IndexKind(types=TEXTS, raw_types=TEXTS, takes_lists=False)] = ()
    """Columns of JSON with an index of every scalar by its path, which answers JSON_MATCH."""
    text: Annotated[IndexedColumns, IndexKind(types=TEXTS, raw_types=TEXTS, takes_lists=False)] = ()
    """Columns of text with an index of every word, which answers TEXT_MATCH."""
    ngram: Annotated[IndexedColumns, IndexKind(types=TEXTS, raw_types=TEXTS, takes_lists=False)] = ()
    """Columns of text with an index of every three consecutive bytes, for LIKE '%…%' and REGEXP_LIKE that match few
    rows."""
    bloom_fpp: Mapping[ColumnName, Annotated[float, Field(gt=0.0, lt=1.0)]] = {}
    """Share of absent values that may pass a filter, by column; 0.01 if left out. A tenth of it takes half as much
    space again."""
    no_dictionary: tuple[ColumnName, ...] = ()
    """Columns stored raw; the same as the encoding RAW."""
    encodings: Mapping[ColumnName, Encoding] = {}
    """Encoding by column; AUTO if left out."""
    compression: Mapping[ColumnName, Compression] = {}
    """Compression by column. If left out, columns that become four times smaller are compressed by ZSTD."""
    star_tree_index_configs: Annotated[tuple[StarTreeSpec, ...], Field(max_length=MAX_STAR_TREES)] = ()
    """Star-trees: pre-aggregated rows, for queries that name only their dimensions and functions."""

    star_tree: StarTreeChoice = StarTreeChoice.NONE
    """auto: each segment gets a star-tree chosen by its columns, in addition to the declared ones. It has dimensions of
    up to 10,000 values, COUNT and the SUM of metrics, and at most a tenth as many documents as rows."""
    timestamp_granularities: Mapping[ColumnName, tuple[Granularity, ...]] = {}
    """Units to which time columns are truncated in advance, in UTC. In segments that are built with it,
    DATETRUNC('DAY', ts), also called $ts$DAY, is read instead of computed."""

    @property
    def may_derive(self) -> bool:
        """True if there may be derived columns. Cheaper than `derived`."""
        return bool(self.star_tree_index_configs or self.timestamp_granularities)

    @property
    def derived(self) -> tuple[DerivedColumn, ...]:
        """Derived columns of `timestampGranularities` and among the dimensions of star-trees, sorted."""
        declared = {DerivedColumn(name, unit) for name, units in self.timestamp_granularities.items() for unit in units}
        of_trees = (derived_of(name) for tree in self.star_tree_index_configs for name in tree.dimensions_split_order)
        return tuple(sorted(declared | {column for column in of_trees if column is not None}))

    def bloom_fpp_of(self, column: str) -> float | None:
        """Return the false-positive rate of the column's Bloom filter; None if the column has no filter."""
        return self.bloom_fpp.get(column, DEFAULT_FPP) if column in self.bloom else None

    def encoding_of(self, column: str) -> Encoding:
        """Return the declared encoding: RAW for `noDictionary`, AUTO if none is declared."""
        return Encoding.RAW if column in self.no_dictionary else self.encodings.get(column, Encoding.AUTO)

    @property
    def tree_dimensions(self) -> frozenset[str]:
        """Dimensions of star-trees, which need a dictionary."""
        return frozenset(name for tree in self.star_tree_index_configs for name in tree.dimensions_split_order)

    @property
    def has_star_trees(self) -> bool:
        """True if segments may have star-trees, declared or chosen."""
        return bool(self.star_tree_index_configs) or self.star_tree is StarTreeChoice.AUTO

    @property
    def asks_for_indexes(self) -> bool:
        """True if an index, star-tree or derived column is declared, so that a segment may lack it."""
        return (
            self.has_star_trees
            or bool(self.timestamp_granularities)
            or any(self.columns_of(kind) for kind in INDEX_KINDS)
        )

    def columns_of(self, kind: str) -> IndexedColumns:
        """Return the columns for which an index of this kind is declared."""
        columns: IndexedColumns = getattr(self, kind)
        return columns

    def kinds_of(self, column: str) -> tuple[str, ...]:
        """Return the kinds of index that are declared for a column."""
        return tuple(kind for kind in INDEX_KINDS if column in self.columns_of(kind))


INDEX_KINDS: Final[Mapping[str, IndexKind]] = {
    name: kind
    for name, field in IndexingSpec.model_fields.items()
    for kind in field.metadata
    if isinstance(kind, IndexKind)
}
"""Every kind of index, by name."""


class PartitionEnforcement(StrEnum):
    """How batch ingestion treats partitions."""

    ASSERT = "assert"
    REPARTITION = "repartition"


class PartitionFunctionSpec(SpecModel):
    """A function from a column's value to a partition number; Pinot's names and options."""

    function_name: str
    """Modulo, Murmur, Murmur3, HashCode, ByteArray, FNV or BoundedColumnValue; case does not matter."""
    num_partitions: int = Field(ge=1, le=100_000)
    """Number of partitions."""
    function_config: Mapping[str, str] = {}
    """Options of the function, such as seed, variant or partitionIdNormalizer."""


class PartitioningSpec(SpecModel):
    """How rows are spread over partitions; every segment records which partitions it holds."""

    columns: Annotated[Mapping[ColumnName, PartitionFunctionSpec], Field(min_length=1)]
    """Partition function by column."""
    enforce: PartitionEnforcement = PartitionEnforcement.REPARTITION
    """repartition: ingestion moves rows so that a segment holds one partition. assert: the source is partitioned
    already; a segment that holds several partitions is reported, and never pruned by partition."""
