"""Many small segments coalesced into one: their columns are concatenated over merged dictionaries and kept in memory.

A query costs about 0.1 ms per segment before it reads a row, so 366 daily segments cost more than all their rows. When
the same small segments are queried again, each column is coalesced once, as a query first needs it, and later queries
run as over one segment. The coalesced columns hold no reference to the files. The cache is bounded by bytes and evicts
the least recently used batch. Any thread may use it; two threads that coalesce the same column at the same time get
equal columns.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot import memory
from merlot.kernels.jit import read_only
from merlot.query.context import ExecutionContext
from merlot.query.plan.expressions import columns_of
from merlot.query.plan.nodes import Leaf, LeafKind
from merlot.query.read.columns import SegmentColumns, StatesOf
from merlot.query.shortcuts import block_signatures
from merlot.query.shortcuts.block_signatures import BlockSignatures
from merlot.query.shortcuts.coalesced_decimals import CoalescedDecimals, coalesce_decimals
from merlot.query.targets import LeafSource, Sources, apart
from merlot.segment.concat import Values, concat_columns, concat_nulls, nulls_of, rows_of
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index import nulls as null_words
from merlot.segment.index.dictionary import TEXTS as DICTIONARY_TEXTS
from merlot.segment.index.dictionary import ValueDictionary, of_values
from merlot.segment.index.kind import ColumnIndexes
from merlot.segment.index.variable import TEXTS
from merlot.segment.index.zones import BLOCK_DOCS, ZoneMaps
from merlot.segment.metadata import ColumnMetadata
from merlot.segment.reader import EVERY_DOC, Reader, Segment, ValidDocs
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName
from merlot.vectors.scaled import Scaled

SMALL_DOCS = 65_536
"""Most docs of a segment that is always coalesced."""
MEDIUM_DOCS = 1 << 18
"""Most docs of a segment that is coalesced if all docs fit one batch and the filter has no use for an index. Python per
segment and merging the results cost more than reading: with eight segments of 125,000 docs as one, COUNT(DISTINCT) of
166,000 users takes 2.5 ms instead of 12, GROUP BY of them 2.8 instead of 23."""
MEDIUM_BYTES = 128 << 20
"""Most bytes of the columns that a query reads for segments above SMALL_DOCS to be coalesced. All 105 columns of
1,000,000 rows take 700 ms to coalesce, and a query of them is as fast without."""
MIN_SEGMENTS = 8
MAX_BATCH_DOCS = 8 * 1024 * 1024
SIGHTINGS = 2
"""Number of queries of the same segments, the running query included, from which on they are coalesced."""
MAX_BATCHES = 256
SEGMENTS_PER_ENTRY = 8
"""Number of segments that are assumed to share an entry of a dictionary, to estimate the merged dictionary."""
MOST_BYTES = 512 << 20

Array = NDArray[Any]
Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CoalescedColumn:
    """Reader of one column of several segments."""

    type: TypeName
    multi_value: bool
    dictionary: ValueDictionary | None
    nulls: NDArray[np.uint64] | None
    zones: ZoneMaps | None
    runs: NDArray[np.uint32] | None
    ids_or_values: Any
    value_offsets: NDArray[np.uint32] | None
    bounds: tuple[int, int] | None
    indexes: ColumnIndexes | None = None
    decimals: CoalescedDecimals | None = None
    """Values of a BIG_DECIMAL column. Without a dictionary, the column may have no other values."""
    signatures: list[BlockSignatures | None] = field(default_factory=list)
    """Bloom signatures of the column's blocks, or None if they are of no use; empty until a scan looks for a single
    value."""

    @property
    def is_sorted(self) -> bool:
        """True if values ascend from doc to doc; false if that was not checked."""
        return self.runs is not None

    def dict_ids(self) -> Array:
        assert self.dictionary is not None
        ids: Array = self.ids_or_values
        return ids

    def values(self) -> Array:
        values: Array = self.ids_or_values
        return values

    def strings(self) -> pa.Array:
        return self.ids_or_values if self.decimals is None else self.decimals.texts()

    @property
    def is_scaled(self) -> bool:
        return self.decimals is not None and self.decimals.is_scaled

    def scaled(self) -> Scaled | None:
        return None if self.decimals is None else self.decimals.scaled()

    def docs_of(self, wanted: int) -> NDArray[np.uint32] | None:
        signatures = self.signatures[0] if self.signatures else None
        return None if signatures is None else signatures.docs(self.ids_or_values, wanted)

    def note_scan(self) -> None:
        if self.signatures:
            return
        self.signatures.append(None)
        num_values = None if self.dictionary is None else len(self.dictionary)
        if not self.multi_value:
            self.signatures[0] = block_signatures.worth_having(self.ids_or_values, num_values)

    def offsets(self) -> NDArray[np.uint32]:
        assert self.value_offsets is not None
        return self.value_offsets

    @property
    def nbytes(self) -> int:
        """Memory of the column's arrays."""
        parts = (self.ids_or_values, self.nulls, self.runs, self.value_offsets, self.decimals, *self.signatures)
        num_bytes: int = sum(part.nbytes for part in parts if part is not None)
        return num_bytes + self._dictionary_bytes

    @property
    def _dictionary_bytes(self) -> int:
        if self.dictionary is None or self.decimals is not None:
            return 0
        numbers = self.dictionary.numeric
        return int(self.dictionary.arrow().nbytes if numbers is None else numbers.nbytes)


@dataclass(slots=True)
class SegmentBatch:
    """Segments that are queried together, with the columns coalesced so far. It has weak references to them."""

    segments: list[weakref.ref[ImmutableSegment]]
    starts: NDArray[np.int64]
    """First doc of each segment, and the number of all docs."""
    sightings: int = 0
    columns: dict[object, CoalescedColumn] = field(default_factory=dict)
    claimed: set[object] = field(default_factory=set)
    """Columns that are scheduled to be coalesced later."""
    sizes: dict[object, int] = field(default_factory=dict)
    """Bytes of columns: estimated, and measured once a column was coalesced."""

    def is_of(self, segments: Sequence[ImmutableSegment]) -> bool:
        """Return whether the batch is of these very segments: Python may have used an id again."""
        return all(reference() is segment for reference, segment in zip(self.segments, segments, strict=True))

    @property
    def nbytes(self) -> int:
        """Memory of the columns coalesced so far. Queries may be adding columns at the same time."""
        return sum(column.nbytes for column in list(self.columns.values()))


def _batch_of(segments: Sequence[ImmutableSegment]) -> SegmentBatch:
    starts = np.concatenate([[0], np.cumsum([segment.num_docs for segment in segments])])
    return SegmentBatch([weakref.ref(segment) for segment in segments], starts)


class BatchCache:
    """Batches by the ids of their segments."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._batches: OrderedDict[Key, SegmentBatch] = OrderedDict()
        self._hits = 0
        self._misses = 0
        self._evictions = 0
        self._lock = threading.Lock()

    def batch(self, segments: Sequence[ImmutableSegment]) -> SegmentBatch | None:
        """Count a query of these segments. Return their batch once they were queried often enough, else None."""
        with self._lock:
            batch = self._found(segments)
            batch.sightings += 1
            is_hit = batch.sightings >= SIGHTINGS
            self._hits += is_hit
            self._misses += not is_hit
            return batch if is_hit else None

    def due(self, segments: Sequence[ImmutableSegment]) -> SegmentBatch | None:
        """Return what `batch` would return for the next query, without counting a query."""
        with self._lock:
            batch = self._found(segments)
            return batch if batch.sightings + 1 >= SIGHTINGS else None

    def _found(self, segments: Sequence[ImmutableSegment]) -> SegmentBatch:
        key = tuple(map(id, segments))
        batch = self._batches.get(key)
        if batch is None or not batch.is_of(segments):
            batch = self._batches[key] = _batch_of(segments)
            self._evict()
        self._batches.move_to_end(key)
        return batch

    def peek(self, segments: Sequence[ImmutableSegment]) -> SegmentBatch | None:
        """Return the batch of these segments if there is one, without counting a query."""
        key = tuple(map(id, segments))
        with self._lock:
            batch = self._batches.get(key)
            if batch is None or not batch.is_of(segments):
                return None
            self._batches.move_to_end(key)
            return batch

    def note_hits(self, num_batches: int) -> None:
        """Count batches that a query got by `peek` and used."""
        with self._lock:
            self._hits += num_batches

    def has_room(self, num_bytes: int) -> bool:
        """Return True if a batch of this size fits into the cache once all other batches are evicted."""
        return num_bytes <= self._capacity

    def trim(self) -> None:
        """Evict batches and columns beyond the bound, after a batch has grown."""
        with self._lock:
            self._evict()

    def resize(self, capacity_bytes: int) -> None:
        """Set the bound, and evict at once."""
        with self._lock:
            self._capacity = capacity_bytes
            self._evict()

    def stats(self) -> dict[str, int]:
        """Return counters for metrics."""
        with self._lock:
            return {
                "bytes": sum(batch.nbytes for batch in self._batches.values()),
                "capacity_bytes": self._capacity,
                "entries": len(self._batches),
                "hits": self._hits,
                "misses": self._misses,
                "evictions": self._evictions,
            }

    def _evict(self) -> None:
        used = sum(batch.nbytes for batch in self._batches.values())
        while len(self._batches) > 1 and (used > self._capacity or len(self._batches) > MAX_BATCHES):
            _, dropped = self._batches.popitem(last=False)
            used -= dropped.nbytes
            self._evictions += 1
        if used > self._capacity:
            self._evict_columns(next(iter(self._batches.values())), used - self._capacity)

    def _evict_columns(self, batch: SegmentBatch, surplus: int) -> None:
        """Drop the columns that were coalesced first, all but the last one."""
        for key in list(batch.columns)[:-1]:
            if surplus <= 0:
                return
            surplus -= batch.columns.pop(key).nbytes
            self._evictions += 1


def default_bytes(memory_bytes: int) -> int:
    """Return how much of the memory coalesced segments may take. More than MOST_BYTES has never been of use."""
    return min(MOST_BYTES, memory_bytes // 8)


BATCH_CACHE = BatchCache(default_bytes(memory.total_bytes()))
"""Cache of this process. A server sets its own bound."""


class BatchColumns:
    """Columns of a batch for one query."""

    valid_docs: Final[ValidDocs] = EVERY_DOC
    stored_states: Final[Sequence[StatesOf] | None] = None
    """Always None: each doc of a coalesced segment is a row."""

    def __init__(self, batch: SegmentBatch, segments: Sequence[ImmutableSegment], schema: TableSchema) -> None:
        self._batch = batch
        self._segments = segments
        self._schema = schema
        self._readers: dict[str, CoalescedColumn] = {}
        self.starts = batch.starts
        self.num_docs = int(self.starts[-1])

    def reader(self, name: str) -> Reader:
        """Return the reader of a column of the schema, which is coalesced now if it was not before."""
        return self._coalesced(name)

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Return the smallest and the largest whole number of a column, if known."""
        return self._coalesced(name).bounds

    def _coalesced(self, name: str) -> CoalescedColumn:
        column = self._readers.get(name)
        if column is not None:
            return column
        key = _column_key(self._schema, name)
        column = self._batch.columns.get(key)
        if column is None:
            parts = [SegmentColumns(segment, self._schema) for segment in self._segments]
            column = coalesce([part.reader(name) for part in parts], [part.num_docs for part in parts])
            self._batch.columns[key] = column
            self._batch.sizes[key] = column.nbytes
            BATCH_CACHE.trim()
        self._readers[name] = column
        return column

    def has(self, names: Iterable[str]) -> bool:
        """Return whether all of these columns are coalesced. They stay so for this query."""
        for name in names:
            column = self._batch.columns.get(_column_key(self._schema, name))
            if column is None:
                return False
            self._readers[name] = column
        return True

    def fits(self, names: Iterable[str]) -> bool:
        """Return whether the cache has room for these columns."""
        return BATCH_CACHE.has_room(sum(map(self._size, names)))

    def _size(self, name: str) -> int:
        key = _column_key(self._schema, name)
        size = self._batch.sizes.get(key)
        if size is None:
            columns = [segment.column(name) for segment in self._segments]
            size = sum(_coalesced_bytes(column.metadata) for column in columns if column is not None)
            self._batch.sizes[key] = size
        return size

    def claim(self, names: Iterable[str]) -> list[str]:
        """Return the columns that the caller is to coalesce later. Each column is returned once, however many queries
        ask before it is done."""
        keys = {_column_key(self._schema, name): name for name in sorted(names)}
        new = keys.keys() - self._batch.claimed - self._batch.columns.keys()
        self._batch.claimed |= new
        return [name for key, name in keys.items() if key in new]

    def coalesce(self, name: str) -> None:
        """Coalesce a claimed column unless that is done. If it fails, the column may be claimed again."""
        try:
            self._coalesced(name)
        finally:
            self._batch.claimed.discard(_column_key(self._schema, name))


def _column_key(schema: TableSchema, name: str) -> object:
    declared = schema.field(name)
    assert declared is not None, name
    return name, declared.type, declared.multi_value, str(declared.default_value)


def sources(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> Sources | None:
    """Return the segments, with small segments coalesced; None if no segments are coalesced or are to be.

    The query is counted when it runs, by `Sources.on_run`. With `context.coalesce_later`, batches are used only if all
    columns of the query are coalesced already, and nothing is counted yet: the caller may still decide against the
    query."""
    work = leaf.work
    is_few_rows = work.kind is LeafKind.SELECTION and not work.order_by and leaf.filter is None
    names = leaf.columns_read
    if is_few_rows or work.skips_pruning or any(name.startswith("$") for name in names):
        return None
    small, others = _small(segments, leaf, names)
    if len(small) < MIN_SEGMENTS:
        return None
    is_hurried = context.coalesce_later is not None
    coalesced: list[LeafSource] = []
    uncounted: list[list[ImmutableSegment]] = []
    for group in _groups(small):
        batch = BATCH_CACHE.peek(group) if is_hurried else BATCH_CACHE.due(group)
        columns = None if batch is None else BatchColumns(batch, group, context.schema)
        is_coalesced = columns is not None and (columns.has(names) if is_hurried else columns.fits(names))
        if columns is not None and is_coalesced:
            coalesced.append(LeafSource(columns, columns.starts))
        else:
            others.extend(group)
        if not (is_hurried and is_coalesced):
            uncounted.append(group)
    num_hits = len(coalesced) if is_hurried else 0
    count = functools.partial(_count, num_hits, uncounted, names, context)
    return Sources([*coalesced, *apart(others, context)], count)


def _small(
    segments: Sequence[Segment], leaf: Leaf, names: frozenset[str]
) -> tuple[list[ImmutableSegment], list[Segment]]:
    """Return the segments worth coalescing, and the others. Consuming segments are others: their rows change from
    moment to moment."""
    most_docs = MEDIUM_DOCS if _takes_medium(segments, leaf, names) else SMALL_DOCS
    small: list[ImmutableSegment] = []
    others: list[Segment] = []
    for segment in segments:
        is_small = segment.num_docs <= most_docs and segment.valid_docs is EVERY_DOC
        if is_small and isinstance(segment, ImmutableSegment):
            small.append(segment)
        else:
            others.append(segment)
    return small, others


def _takes_medium(segments: Sequence[Segment], leaf: Leaf, names: frozenset[str]) -> bool:
    """Return whether segments above SMALL_DOCS are worth coalescing too, for these columns."""
    medium = [
        segment
        for segment in segments
        if SMALL_DOCS < segment.num_docs <= MEDIUM_DOCS and isinstance(segment, ImmutableSegment)
    ]
    if not medium or sum([segment.num_docs for segment in segments]) > MAX_BATCH_DOCS:
        return False
    filtered = frozenset[str]() if leaf.filter is None else columns_of(leaf.filter)
    last = leaf.work.memo.cached(_LastVerdict)
    verdict = last.verdict
    if verdict is None or not verdict.is_of(medium, names, filtered):
        is_worth = _is_worth_coalescing(medium, names, filtered)
        references = [weakref.ref(segment) for segment in medium]
        verdict = last.verdict = _CoalescingVerdict(references, names, filtered, is_worth)
    return verdict.is_worth_coalescing


class _LastVerdict:
    """Last verdict on a plan's segments, which are mostly the same for the next query."""

    verdict: _CoalescingVerdict | None = None


@dataclass(frozen=True, slots=True)
class _CoalescingVerdict:
    """Verdict on a plan's segments. It has weak references to them."""

    segments: Sequence[weakref.ref[ImmutableSegment]]
    names: frozenset[str]
    filtered: frozenset[str]
    is_worth_coalescing: bool

    def is_of(self, segments: Sequence[ImmutableSegment], names: frozenset[str], filtered: frozenset[str]) -> bool:
        if names != self.names or filtered != self.filtered or len(segments) != len(self.segments):
            return False
        return all(reference() is segment for reference, segment in zip(self.segments, segments, strict=True))


def _is_worth_coalescing(medium: Sequence[ImmutableSegment], names: frozenset[str], filtered: frozenset[str]) -> bool:
    """Return whether columns are small and not searched by an index."""
    num_bytes, texts = 0, set[str]()
    for segment in medium:
        for name in names:
            column = segment.column(name)
            if column is None:
                continue
            if name in filtered and column.indexes is not None:
                return False
            num_bytes += _num_bytes(column.metadata)
            if TEXTS in column.metadata.buffers and column.type is not TypeName.BIG_DECIMAL:
                texts.add(name)
    # Texts without dict ids are read no faster: if there are no other columns, coalescing gains nothing.
    return num_bytes <= MEDIUM_BYTES and (not texts or texts != names)


def _num_bytes(column: ColumnMetadata) -> int:
    """Return the approximate memory of a column once it is coalesced."""
    if column.encoding.has_dictionary:
        cardinality = column.cardinality or 0
        return column.total_values * (1 if cardinality <= 1 << 8 else 2 if cardinality <= 1 << 16 else 4)
    texts = None if column.type is TypeName.BIG_DECIMAL else column.buffers.get(TEXTS)
    return 8 * column.total_values + (0 if texts is None else texts.size)


def _coalesced_bytes(column: ColumnMetadata) -> int:
    """Return the approximate memory of a column once it is coalesced, with its part of the merged dictionary."""
    texts = column.buffers.get(DICTIONARY_TEXTS)
    return _num_bytes(column) + (0 if texts is None else texts.size // SEGMENTS_PER_ENTRY)


def _count(
    num_hits: int, groups: Sequence[Sequence[ImmutableSegment]], names: frozenset[str], context: ExecutionContext
) -> None:
    """Count the query for the batches that it uses, and for the groups not counted yet. With `context.coalesce_later`,
    schedule the columns that are due."""
    if num_hits:
        BATCH_CACHE.note_hits(num_hits)
    for group in groups:
        batch = BATCH_CACHE.batch(group)
        if batch is None or context.coalesce_later is None:
            continue
        columns = BatchColumns(batch, group, context.schema)
        for name in columns.claim(names) if columns.fits(names) else ():
            context.coalesce_later(functools.partial(columns.coalesce, name))


def _groups(segments: Sequence[ImmutableSegment]) -> list[list[ImmutableSegment]]:
    groups: list[list[ImmutableSegment]] = [[]]
    num_docs = 0
    for segment in segments:
        if num_docs + segment.num_docs > MAX_BATCH_DOCS:
            groups.append([])
            num_docs = 0
        groups[-1].append(segment)
        num_docs += segment.num_docs
    return groups


# Coalescing


def coalesce(readers: Sequence[Reader], sizes: Sequence[int]) -> CoalescedColumn:
    """Concatenate a column's parts in their order. `sizes` are their numbers of docs."""
    type_, multi_value = readers[0].type, readers[0].multi_value
    has_dictionary = all(reader.dictionary is not None for reader in readers)
    if type_ is TypeName.BIG_DECIMAL and not multi_value and not has_dictionary:
        return _coalesced_numbers(readers, sizes)
    rows = concat_columns(type_, [rows_of(reader, size) for reader, size in zip(readers, sizes, strict=True)])
    dictionary = None if rows.ids is None else of_values(type_, rows.values)
    data = rows.values if rows.ids is None else rows.ids
    if isinstance(data, np.ndarray):
        data.flags.writeable = False
    searchable = data if isinstance(data, np.ndarray) and not multi_value else None
    decimals = dictionary if type_ is TypeName.BIG_DECIMAL else None
    return CoalescedColumn(
        type=type_,
        multi_value=multi_value,
        dictionary=dictionary,
        nulls=_null_words(rows.nulls),
        zones=None if searchable is None else _zones(searchable),
        runs=None if searchable is None or dictionary is None else _runs(searchable, len(dictionary)),
        ids_or_values=data,
        value_offsets=None if rows.offsets is None else rows.offsets.astype(np.uint32),
        bounds=_bounds(data, dictionary),
        decimals=None if decimals is None else CoalescedDecimals(decimals.arrow()),
    )


def _coalesced_numbers(readers: Sequence[Reader], sizes: Sequence[int]) -> CoalescedColumn:
    """Concatenate a single-value BIG_DECIMAL column that has no dictionary in some of the segments."""
    nulls = [nulls_of(reader, size) for reader, size in zip(readers, sizes, strict=True)]
    return CoalescedColumn(
        type=TypeName.BIG_DECIMAL,
        multi_value=False,
        dictionary=None,
        nulls=_null_words(concat_nulls(nulls, sizes)),
        zones=None,
        runs=None,
        ids_or_values=None,
        value_offsets=None,
        bounds=None,
        decimals=coalesce_decimals(readers),
    )


def _null_words(nulls: NDArray[np.bool_] | None) -> NDArray[np.uint64] | None:
    return None if nulls is None else read_only(null_words.words_of(nulls))


def _bounds(data: Values, dictionary: ValueDictionary | None) -> tuple[int, int] | None:
    """Return the least and the greatest of a column's whole numbers; None for other types."""
    if dictionary is not None:
        ascending = dictionary.ascending
        return None if ascending is None or ascending.dtype.kind != "i" else (int(ascending[0]), int(ascending[-1]))
    is_whole = isinstance(data, np.ndarray) and data.dtype.kind == "i" and len(data)
    return (int(data.min()), int(data.max())) if is_whole else None


def _zones(data: Array) -> ZoneMaps | None:
    if len(data) == 0:
        return None
    starts = np.arange(0, len(data), BLOCK_DOCS)
    lows = np.fmin.reduceat(data, starts) if data.dtype.kind == "f" else np.minimum.reduceat(data, starts)
    return ZoneMaps(lows, np.maximum.reduceat(data, starts), np.zeros(len(starts), np.uint32))


def _runs(ids: Array, cardinality: int) -> NDArray[np.uint32] | None:
    """Return the first doc of each dict id, and the number of docs; None if the column is not sorted."""
    if np.any(ids[1:] < ids[:-1]):
        return None
    return np.searchsorted(ids, np.arange(cardinality + 1)).astype(np.uint32)
