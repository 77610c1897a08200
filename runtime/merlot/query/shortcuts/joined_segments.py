"""Many small segments seen as one: their columns, concatenated over merged dictionaries, kept in memory.

A query costs about 0.1 ms per segment before it reads a row, so 366 daily segments cost more than all their rows. When
the same small segments are asked for again, their columns are joined once (as a query first needs each) and later
queries run as over one segment. The joined columns hold no reference to the files; the cache is bounded by bytes and
drops what was used longest ago. Any thread; two that join the same column at once both do, and agree.
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
from merlot.query.shortcuts import block_prints
from merlot.query.shortcuts.block_prints import BlockPrints
from merlot.query.shortcuts.joined_decimals import JoinedDecimals, joined_decimals
from merlot.query.targets import Source, Sources, apart
from merlot.segment.concat import Values, concat_coded, concat_nulls, concat_offsets, concat_values
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index import nulls as null_words
from merlot.segment.index.dictionary import Dictionary, of_values
from merlot.segment.index.kind import ColumnIndexes
from merlot.segment.index.variable import TEXTS
from merlot.segment.index.zones import BLOCK_DOCS, ZoneMaps
from merlot.segment.metadata import ColumnMetadata
from merlot.segment.reader import EVERY_DOC, Reader, Segment, ValidDocs
from merlot.spec.schema import TableSchema
from merlot.values.types import TypeName
from merlot.vectors.scaled import Scaled

SMALL_DOCS = 65_536
"""Segments of up to this many docs are joined."""
MEDIUM_DOCS = 1 << 18
"""As many, where all docs are one batch and the filter has no use for an index: Python per segment and merging what was
found cost more than reading. Eight segments of 125,000 docs as one: COUNT(DISTINCT) of 166,000 users takes 2.5 ms
instead of 12, GROUP BY of them 2.8 instead of 23."""
MEDIUM_BYTES = 128 << 20
"""Of the columns that a query reads: such segments are left apart where they hold more. All 105 columns of 1,000,000
rows take 700 ms to join, and a query of them is as fast apart."""
MIN_SEGMENTS = 8
MAX_BATCH_DOCS = 8 * 1024 * 1024
SIGHTINGS = 2
"""Times that the same segments must be asked for before they are joined."""
MAX_BATCHES = 256
_MEMO: Final = "joined_segments"
MOST_BYTES = 512 << 20

Array = NDArray[Any]
Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinedColumn:
    """One column of several segments; a Reader."""

    type: TypeName
    multi_value: bool
    dictionary: Dictionary | None
    nulls: NDArray[np.uint64] | None
    zones: ZoneMaps | None
    runs: NDArray[np.uint32] | None
    ids_or_values: Any
    joined_offsets: NDArray[np.uint32] | None
    bounds: tuple[int, int] | None
    indexes: ColumnIndexes | None = None
    decimals: JoinedDecimals | None = None
    """Of BIG_DECIMAL; where it has no dictionary there may be nothing else."""
    prints: list[BlockPrints | None] = field(default_factory=list)
    """Of the blocks, if that is of use, once a scan has looked for one value."""

    @property
    def is_sorted(self) -> bool:
        """Whether values ascend from doc to doc; false where that was not looked for."""
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
        prints = self.prints[0] if self.prints else None
        return None if prints is None else prints.docs(self.ids_or_values, wanted)

    def print_blocks(self) -> None:
        if self.prints:
            return
        self.prints.append(None)
        num_values = None if self.dictionary is None else len(self.dictionary)
        if not self.multi_value:
            self.prints[0] = block_prints.worth_having(self.ids_or_values, num_values)

    def offsets(self) -> NDArray[np.uint32]:
        assert self.joined_offsets is not None
        return self.joined_offsets

    @property
    def nbytes(self) -> int:
        """Memory of its arrays."""
        parts = (self.ids_or_values, self.nulls, self.runs, self.joined_offsets, self.decimals, *self.prints)
        return sum(part.nbytes for part in parts if part is not None)


@dataclass(slots=True)
class Batch:
    """What is kept of some segments: the columns joined so far. Knows its segments weakly."""

    segments: list[weakref.ref[ImmutableSegment]]
    starts: NDArray[np.int64]
    """First doc of each, and the number of all docs."""
    sightings: int = 0
    columns: dict[object, JoinedColumn] = field(default_factory=dict)
    claimed: set[object] = field(default_factory=set)
    """Columns that somebody was asked to join later."""

    def is_of(self, segments: Sequence[ImmutableSegment]) -> bool:
        """Whether these are its segments: an id may have been used again."""
        return all(known() is one for known, one in zip(self.segments, segments, strict=True))

    @property
    def nbytes(self) -> int:
        """Memory of the columns joined so far; queries may be joining more meanwhile."""
        return sum(column.nbytes for column in list(self.columns.values()))


def _batch_of(segments: Sequence[ImmutableSegment]) -> Batch:
    starts = np.concatenate([[0], np.cumsum([segment.num_docs for segment in segments])])
    return Batch([weakref.ref(segment) for segment in segments], starts)


class BatchCache:
    """Batches by their segments."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._batches: OrderedDict[Key, Batch] = OrderedDict()
        self._hits = 0
        self._misses = 0
        self._evictions = 0
        self._lock = threading.Lock()

    def batch(self, segments: Sequence[ImmutableSegment]) -> Batch | None:
        """The batch of these segments once queries asked for them often enough, this one included; else None."""
        with self._lock:
            found = self._found(segments)
            found.sightings += 1
            is_hit = found.sightings >= SIGHTINGS
            self._hits += is_hit
            self._misses += not is_hit
            return found if is_hit else None

    def due(self, segments: Sequence[ImmutableSegment]) -> Batch | None:
        """What `batch` would give the next query; no query is counted."""
        with self._lock:
            found = self._found(segments)
            return found if found.sightings + 1 >= SIGHTINGS else None

    def _found(self, segments: Sequence[ImmutableSegment]) -> Batch:
        key = tuple(map(id, segments))
        found = self._batches.get(key)
        if found is None or not found.is_of(segments):
            found = self._batches[key] = _batch_of(segments)
            self._evict()
        self._batches.move_to_end(key)
        return found

    def peek(self, segments: Sequence[ImmutableSegment]) -> Batch | None:
        """What is known of these segments; no query is counted."""
        key = tuple(map(id, segments))
        with self._lock:
            found = self._batches.get(key)
            if found is None or not found.is_of(segments):
                return None
            self._batches.move_to_end(key)
            return found

    def note_hits(self, num_batches: int) -> None:
        """Count batches that a query used of which it knew by `peek`."""
        with self._lock:
            self._hits += num_batches

    def trim(self) -> None:
        """Keep the bound, after a batch has grown."""
        with self._lock:
            self._evict()

    def resize(self, capacity_bytes: int) -> None:
        """Set the bound; evicts at once."""
        with self._lock:
            self._capacity = capacity_bytes
            self._evict()

    def stats(self) -> dict[str, int]:
        """Counters for metrics."""
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


def default_bytes(memory_bytes: int) -> int:
    """How much of the memory joined segments may take: more than MOST_BYTES has never been of use."""
    return min(MOST_BYTES, memory_bytes // 8)


BATCH_CACHE = BatchCache(default_bytes(memory.total_bytes()))
"""The process's; a server sets its own bound."""


class BatchColumns:
    """Columns of a batch for one query."""

    valid_docs: Final[ValidDocs] = EVERY_DOC
    stored_states: Final[Sequence[StatesOf] | None] = None
    """Segments of which not every doc counts are not joined."""

    def __init__(self, batch: Batch, segments: Sequence[ImmutableSegment], schema: TableSchema) -> None:
        self._batch = batch
        self._segments = segments
        self._schema = schema
        self._readers: dict[str, JoinedColumn] = {}
        self.starts = batch.starts
        self.num_docs = int(self.starts[-1])

    def reader(self, name: str) -> Reader:
        """Reader of a column of the schema, joined now if it was not before."""
        return self._joined(name)

    def bounds(self, name: str) -> tuple[int, int] | None:
        """Smallest and largest whole number of a column."""
        return self._joined(name).bounds

    def _joined(self, name: str) -> JoinedColumn:
        known = self._readers.get(name)
        if known is not None:
            return known
        key = _column_key(self._schema, name)
        found = self._batch.columns.get(key)
        if found is None:
            parts = [SegmentColumns(segment, self._schema) for segment in self._segments]
            found = join([part.reader(name) for part in parts], [part.num_docs for part in parts])
            self._batch.columns[key] = found
            BATCH_CACHE.trim()
        self._readers[name] = found
        return found

    def has(self, names: Iterable[str]) -> bool:
        """Whether these columns are joined."""
        return all(_column_key(self._schema, name) in self._batch.columns for name in names)

    def claim(self, names: Iterable[str]) -> list[str]:
        """Those of these columns that are to be joined later: once, however many queries ask before it is done."""
        keys = {_column_key(self._schema, name): name for name in sorted(names)}
        new = keys.keys() - self._batch.claimed - self._batch.columns.keys()
        self._batch.claimed |= new
        return [name for key, name in keys.items() if key in new]

    def join(self, name: str) -> None:
        """Join a column, unless it is."""
        self._joined(name)


def _column_key(schema: TableSchema, name: str) -> object:
    declared = schema.field(name)
    assert declared is not None, name
    return name, declared.type, declared.multi_value, str(declared.default_value)


def sources(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> Sources | None:
    """The segments, small ones joined; None if none are, nor are to be.

    The query is counted when it runs. With `context.join_later` only those are joined whose columns are, since the
    caller may still decide against the query."""
    work = leaf.work
    is_few_rows = work.kind is LeafKind.SELECTION and not work.order_by and leaf.filter is None
    names = leaf.columns_read
    if is_few_rows or work.skips_pruning or any(name.startswith("$") for name in names):
        return None
    small, others = _small(segments, leaf, names)
    if len(small) < MIN_SEGMENTS:
        return None
    is_hurried = context.join_later is not None
    joined: list[Source] = []
    uncounted: list[list[ImmutableSegment]] = []
    for group in _groups(small):
        batch = BATCH_CACHE.peek(group) if is_hurried else BATCH_CACHE.due(group)
        columns = None if batch is None else BatchColumns(batch, group, context.schema)
        is_joined = columns is not None and (not is_hurried or columns.has(names))
        if columns is not None and is_joined:
            joined.append(Source(columns, columns.starts))
        else:
            others.extend(group)
        if not (is_hurried and is_joined):
            uncounted.append(group)
    num_hits = len(joined) if is_hurried else 0
    return Sources([*joined, *apart(others, context)], functools.partial(_count, num_hits, uncounted, names, context))


def _small(
    segments: Sequence[Segment], leaf: Leaf, names: frozenset[str]
) -> tuple[list[ImmutableSegment], list[Segment]]:
    """Segments that are worth joining, and the others: rows of a consuming one are others a moment later."""
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
    """Whether segments that are not small are worth joining, too, for these columns."""
    medium = [
        segment
        for segment in segments
        if SMALL_DOCS < segment.num_docs <= MEDIUM_DOCS and isinstance(segment, ImmutableSegment)
    ]
    if not medium or sum([segment.num_docs for segment in segments]) > MAX_BATCH_DOCS:
        return False
    filtered = frozenset[str]() if leaf.filter is None else columns_of(leaf.filter)
    known: _Verdict | None = leaf.work.memo.get(_MEMO)
    if known is None or not known.is_of(medium, names, filtered):
        is_worth = _is_worth_joining(medium, names, filtered)
        known = leaf.work.memo[_MEMO] = _Verdict([weakref.ref(one) for one in medium], names, filtered, is_worth)
    return known.is_worth_joining


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What was said last of a plan's segments, which are the same most of the time. Knows them weakly."""

    segments: Sequence[weakref.ref[ImmutableSegment]]
    names: frozenset[str]
    filtered: frozenset[str]
    is_worth_joining: bool

    def is_of(self, segments: Sequence[ImmutableSegment], names: frozenset[str], filtered: frozenset[str]) -> bool:
        if names != self.names or filtered != self.filtered or len(segments) != len(self.segments):
            return False
        return all(known() is one for known, one in zip(self.segments, segments, strict=True))


def _is_worth_joining(medium: Sequence[ImmutableSegment], names: frozenset[str], filtered: frozenset[str]) -> bool:
    """Whether columns are small and not searched by an index."""
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
    # Texts without ids alone are read no faster: what is saved is merging by values.
    return num_bytes <= MEDIUM_BYTES and (not texts or texts != names)


def _num_bytes(column: ColumnMetadata) -> int:
    """Memory that a column takes when it is joined, about."""
    if column.encoding.has_dictionary:
        cardinality = column.cardinality or 0
        return column.total_values * (1 if cardinality <= 1 << 8 else 2 if cardinality <= 1 << 16 else 4)
    texts = None if column.type is TypeName.BIG_DECIMAL else column.buffers.get(TEXTS)
    return 8 * column.total_values + (0 if texts is None else texts.size)


def _count(
    num_hits: int, groups: Sequence[Sequence[ImmutableSegment]], names: frozenset[str], context: ExecutionContext
) -> None:
    """Count a query of batches found joined, and of these segments; whoever has no time to join has it done later."""
    if num_hits:
        BATCH_CACHE.note_hits(num_hits)
    for group in groups:
        batch = BATCH_CACHE.batch(group)
        if batch is None or context.join_later is None:
            continue
        columns = BatchColumns(batch, group, context.schema)
        for name in columns.claim(names):
            context.join_later(functools.partial(columns.join, name))


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


# Joining


def join(readers: Sequence[Reader], sizes: Sequence[int]) -> JoinedColumn:
    """One column from its parts, in their order; sizes are their docs."""
    first = readers[0]
    type_, multi_value = first.type, first.multi_value
    offsets = concat_offsets([reader.offsets() for reader in readers]).astype(np.uint32) if multi_value else None
    decimals = None
    if all(reader.dictionary is not None for reader in readers):
        coded = concat_coded(type_, entries_of(readers), [reader.dict_ids() for reader in readers])
        dictionary, data = of_values(type_, coded.values), coded.ids
        ascending = dictionary.ascending
        low_high = None if ascending is None or ascending.dtype.kind != "i" else (int(ascending[0]), int(ascending[-1]))
        if type_ is TypeName.BIG_DECIMAL:
            decimals = JoinedDecimals(dictionary.arrow())
    elif type_ is TypeName.BIG_DECIMAL and not multi_value:
        dictionary, data, low_high = None, None, None
        decimals = joined_decimals(readers)
    else:
        dictionary, data = None, concat_values([_values(reader) for reader in readers])
        is_whole = isinstance(data, np.ndarray) and data.dtype.kind == "i" and len(data)
        low_high = (int(data.min()), int(data.max())) if is_whole else None
    if isinstance(data, np.ndarray):
        data.flags.writeable = False
    searchable = data if isinstance(data, np.ndarray) and not multi_value else None
    return JoinedColumn(
        type=type_,
        multi_value=multi_value,
        dictionary=dictionary,
        nulls=_join_nulls(readers, sizes),
        zones=None if searchable is None else _zones(searchable),
        runs=None if searchable is None or dictionary is None else _runs(searchable, len(dictionary)),
        ids_or_values=data,
        joined_offsets=offsets,
        bounds=low_high,
        decimals=decimals,
    )


def entries_of(readers: Sequence[Reader]) -> list[Values]:
    """The values of each dictionary."""
    known = [reader.dictionary for reader in readers if reader.dictionary is not None]
    return [part.arrow() if part.numeric is None else part.numeric for part in known]


def _values(reader: Reader) -> Any:
    """All values of a raw column, or of one that has a dictionary here but not in every segment."""
    dictionary = reader.dictionary
    if dictionary is None:
        return reader.strings() if reader.type in _TEXT else reader.values()
    if dictionary.numeric is not None:
        return dictionary.numeric[reader.dict_ids()]
    return dictionary.arrow().take(pa.array(reader.dict_ids()))


_TEXT = frozenset({TypeName.STRING, TypeName.JSON, TypeName.BYTES, TypeName.BIG_DECIMAL})


def _join_nulls(readers: Sequence[Reader], sizes: Sequence[int]) -> NDArray[np.uint64] | None:
    parts = [
        None if reader.nulls is None else np.unpackbits(reader.nulls.view(np.uint8), bitorder="little", count=size)
        for reader, size in zip(readers, sizes, strict=True)
    ]
    nulls = concat_nulls([None if part is None else part.view(np.bool_) for part in parts], sizes)
    return None if nulls is None else read_only(null_words.words_of(nulls))


def _zones(data: Array) -> ZoneMaps | None:
    if len(data) == 0:
        return None
    starts = np.arange(0, len(data), BLOCK_DOCS)
    lows = np.fmin.reduceat(data, starts) if data.dtype.kind == "f" else np.minimum.reduceat(data, starts)
    return ZoneMaps(lows, np.maximum.reduceat(data, starts), np.zeros(len(starts), np.uint32))


def _runs(ids: Array, cardinality: int) -> NDArray[np.uint32] | None:
    """First doc of each dict id, if the column is sorted."""
    if np.any(ids[1:] < ids[:-1]):
        return None
    return np.searchsorted(ids, np.arange(cardinality + 1)).astype(np.uint32)
