"""Predicates of a filter, resolved against a segment. Each kind fills words of bits for a range of docs.

`apply(scan, mode)` combines its matches into `scan.words` (kernels.scan modes). `share` is the estimated share of docs
that match, `cost` the work per doc in bytes read; both only order a conjunction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from merlot.functions.evaluate import verdicts
from merlot.kernels import scan as kernels
from merlot.query.filter.docset import CHUNK_DOCS
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns
from merlot.segment.index.zones import ZoneMaps
from merlot.segment.reader import BlockSignatureReader, Reader
from merlot.tree.nodes import Expr
from merlot.vectors import account

Words = NDArray[np.uint64]
_EVERY = np.uint64(0xFFFFFFFFFFFFFFFF)
_LEAST_CERTAIN = 8
"""One block in so many has to match for certain for the others to be scanned apart: each further scan takes a
microsecond."""
SPARSE_SHARE = 0.03
"""Largest share of docs left at which a scan visits only those: 2.5 ns for each, while a scan of all docs costs 0.05
(u8) to 0.3 ns (i64) for each."""


@dataclass(slots=True)
class FilterScan:
    """Docs [start, stop) that a filter is applied to. `start` is a multiple of 64, bit 0 of words is `start`."""

    columns: Columns
    start: int
    stop: int
    words: Words
    null_handling: bool
    is_sparse: bool = False
    """True if few bits are left and the mode is AND."""
    mask: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(kernels.BLOCK_DOCS, np.uint8))
    """Scratch memory, always 0 or 1: packing multiplies eight bytes, so another value past the last doc would carry
    into its neighbours."""
    num_entries: int = 0
    """Number of column values read, for the statistics."""
    failed: Words | None = None
    """Docs of `words` whose predicate failed. They fail the query if no other predicate rules them out."""
    reason: str = ""

    def fork(self) -> FilterScan:
        """Return the same docs with words of their own, all clear."""
        return FilterScan(
            self.columns, self.start, self.stop, np.zeros_like(self.words), self.null_handling, mask=self.mask
        )

    def fail(self, words: Words, reason: str) -> None:
        """Note docs whose predicate failed."""
        self.failed = words.copy() if self.failed is None else self.failed | words
        self.reason = self.reason or reason


class Access(NamedTuple):
    """Access path of a predicate, in the words of EXPLAIN: Pinot's if it has any."""

    operator: str
    looks_up: str = ""
    """Index or other structure that is looked up beside the values, if any."""


FULL_SCAN = Access("FILTER_FULL_SCAN")
NULL_VECTOR = Access("FILTER_BITMAP", "null_vector")
VALID_DOCS = Access("FILTER_BITMAP", "valid_docs")


class Predicate(Protocol):
    """Leaf of a filter, resolved against a segment."""

    @property
    def access(self) -> Access:
        """Access path by which the docs are found."""
        ...

    @property
    def share(self) -> float: ...
    @property
    def cost(self) -> float: ...
    def apply(self, scan: FilterScan, mode: int) -> None: ...
    def blocks(self) -> NDArray[np.bool_] | None:
        """Return for each block of 16,384 docs whether any doc might match; None if nothing is known."""
        ...


@dataclass(frozen=True, slots=True)
class RangeMatch:
    """Dict ids or raw numbers between two bounds, inclusive, or (negate) outside them."""

    values: Callable[[], NDArray[Any]]
    low: Any
    high: Any
    negate: bool
    share: float
    zones: ZoneMaps | None

    @property
    def access(self) -> Access:
        return FULL_SCAN if self.zones is None else Access("FILTER_ZONE_MAP_SCAN", "zone_map")

    @property
    def cost(self) -> float:
        return float(np.dtype(type(self.low)).itemsize)

    def apply(self, scan: FilterScan, mode: int) -> None:
        values = self.values()[scan.start : scan.stop]
        low, high = values.dtype.type(self.low), values.dtype.type(self.high)
        if scan.is_sparse:
            kernels.refine_range(values, low, high, self.negate, scan.words)
            return
        certain = self.certain_blocks()
        if certain is None or np.count_nonzero(certain) * _LEAST_CERTAIN < len(certain):
            scan.num_entries += len(values)
            kernels.scan_range(values, low, high, mode, self.negate, scan.mask, scan.words)
            return
        for first, last, is_certain in _stretches(certain, scan.start, scan.stop):
            words = scan.words[(first - scan.start) >> 6 : (last - scan.start + 63) >> 6]
            if not is_certain:
                part = values[first - scan.start : last - scan.start]
                scan.num_entries += len(part)
                kernels.scan_range(part, low, high, mode, self.negate, scan.mask, words)
            elif mode != kernels.AND:
                words[:] = _EVERY
        kernels.clear_tail(scan.stop - scan.start, scan.words)

    def certain_blocks(self) -> NDArray[np.bool_] | None:
        """Return for each block whether every doc matches; None if nothing is known."""
        if self.zones is None:
            return None
        # A NaN is the maximum of its block, and no comparison with it holds.
        certain: NDArray[np.bool_] = (self.zones.min >= self.low) & (self.zones.max <= self.high)
        if self.negate:
            certain = (self.zones.min > self.high) | (self.zones.max < self.low)
        return certain

    def blocks(self) -> NDArray[np.bool_] | None:
        if self.zones is None:
            return None
        if self.negate:
            possible: NDArray[np.bool_] = ~((self.zones.min >= self.low) & (self.zones.max <= self.high))
            return possible
        overlap: NDArray[np.bool_] = (self.zones.max >= self.low) & (self.zones.min <= self.high)
        # A float block's maximum may be NaN, which says nothing about its numbers.
        return np.asarray(overlap | (self.zones.max != self.zones.max))


@dataclass(frozen=True, slots=True)
class EqualMatch(RangeMatch):
    """One value of a column that can keep block signatures of its values."""

    reader: BlockSignatureReader

    def apply(self, scan: FilterScan, mode: int) -> None:
        RangeMatch.apply(self, scan, mode)
        self.reader.note_scan()


def _stretches(certain: NDArray[np.bool_], start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
    """Yield docs [start, stop) as spans of blocks with the same verdict. `start` is a multiple of 64."""
    first_block, stop_block = start // kernels.BLOCK_DOCS, -(-stop // kernels.BLOCK_DOCS)
    verdicts = certain[first_block:stop_block]
    cuts = (np.flatnonzero(verdicts[1:] != verdicts[:-1]) + 1).tolist()
    for begin, end in pairwise([0, *cuts, len(verdicts)]):
        first = max(start, (first_block + begin) * kernels.BLOCK_DOCS)
        yield first, min(stop, (first_block + end) * kernels.BLOCK_DOCS), bool(verdicts[begin])


@dataclass(frozen=True, slots=True)
class TableMatch:
    """Dict ids that are marked in a table."""

    access: ClassVar[Access] = FULL_SCAN
    dict_ids: Callable[[], NDArray[Any]]
    table: NDArray[np.uint8]
    negate: bool
    share: float
    cost: float = 8.0

    def apply(self, scan: FilterScan, mode: int) -> None:
        ids = self.dict_ids()[scan.start : scan.stop]
        if scan.is_sparse:
            kernels.refine_table(ids, self.table, self.negate, scan.words)
        else:
            scan.num_entries += len(ids)
            kernels.scan_table(ids, self.table, mode, self.negate, scan.mask, scan.words)

    def blocks(self) -> NDArray[np.bool_] | None:
        return None


@dataclass(frozen=True, slots=True)
class DocList:
    """Docs that an index lists."""

    docs: NDArray[np.uint32]
    share: float
    index: str
    negate: bool = False
    """True to match the docs that are not listed."""
    cost: float = 0.0

    @property
    def access(self) -> Access:
        return Access(f"FILTER_{self.index.upper()}_INDEX", f"{self.index}_index")

    def apply(self, scan: FilterScan, mode: int) -> None:
        first, last = np.searchsorted(self.docs, [scan.start, scan.stop])
        is_apart = mode == kernels.AND or self.negate
        listed = np.zeros_like(scan.words) if is_apart else scan.words
        if mode == kernels.SET and not is_apart:
            listed[:] = 0
        kernels.set_docs(self.docs[first:last], scan.start, scan.stop - scan.start, listed)
        if self.negate:
            listed = ~listed
            kernels.clear_tail(scan.stop - scan.start, listed)
        if mode == kernels.AND:
            scan.words &= listed
        elif is_apart and mode == kernels.OR:
            scan.words |= listed
        elif is_apart:
            scan.words[:] = listed

    def blocks(self) -> NDArray[np.bool_] | None:
        return None


@dataclass(frozen=True, slots=True)
class SignatureMatch(DocList):
    """Docs of one value, found by block signatures."""

    @property
    def access(self) -> Access:
        return FULL_SCAN


@dataclass(frozen=True, slots=True)
class TreeMatch(DocList):
    """Documents that the walk through a star-tree found."""

    dimensions: tuple[str, ...] = ()

    @property
    def access(self) -> Access:
        return Access("FILTER_STARTREE_INDEX", f"star_tree[{', '.join(self.dimensions)}]")


@dataclass(frozen=True, slots=True)
class SpanMatch:
    """Docs [first, last) of each span, ascending: runs of a sorted column."""

    access: ClassVar[Access] = Access("FILTER_SORTED_INDEX", "sorted_index")
    spans: tuple[tuple[int, int], ...]
    share: float
    cost: float = 0.0

    def apply(self, scan: FilterScan, mode: int) -> None:
        covered = np.zeros_like(scan.words) if mode == kernels.AND else scan.words
        if mode == kernels.SET:
            covered[:] = 0
        for first, last in self.spans:
            low, high = max(first, scan.start) - scan.start, min(last, scan.stop) - scan.start
            if low < high:
                kernels.set_span(low, high, covered)
        if mode == kernels.AND:
            scan.words &= covered

    def blocks(self) -> NDArray[np.bool_] | None:
        return None


@dataclass(frozen=True, slots=True)
class BitMatch:
    """Docs of a stored bitmap, such as the nulls of a column; `negate` matches the other docs."""

    bits: Words
    negate: bool
    share: float
    cost: float = 0.1
    access: Access = NULL_VECTOR

    def apply(self, scan: FilterScan, mode: int) -> None:
        bits = self.bits[scan.start >> 6 : (scan.start >> 6) + len(scan.words)]
        if self.negate:
            bits = ~bits
        if mode == kernels.AND:
            scan.words &= bits
        elif mode == kernels.OR:
            scan.words |= bits
        else:
            scan.words[:] = bits
        kernels.clear_tail(scan.stop - scan.start, scan.words)

    def blocks(self) -> NDArray[np.bool_] | None:
        return None


@dataclass(frozen=True, slots=True)
class ValueMatch:
    """Any predicate, evaluated over values. In a conjunction it is evaluated only for docs that are left; docs for
    which it fails stay."""

    access: ClassVar[Access] = Access("FILTER_EXPRESSION")
    expr: Expr
    share: float = 0.5
    cost: float = 100.0

    def apply(self, scan: FilterScan, mode: int) -> None:
        if mode == kernels.AND:
            docs = np.empty(kernels.count_words(scan.words), np.uint32)
            kernels.list_docs(scan.words, scan.start, docs)
            rows = (docs - np.uint32(scan.start)).astype(np.int64)
            hits = self._verdicts(scan, docs, rows, mode) if len(docs) else np.zeros(0, np.bool_)
            scan.words[:] = 0
            kernels.set_docs(docs[hits], scan.start, scan.stop - scan.start, scan.words)
            return
        mask = self._verdicts(scan, None, None, mode)
        kernels.pack_mask(np.ascontiguousarray(mask).view(np.uint8), mode, scan.words)

    def _verdicts(
        self, scan: FilterScan, docs: NDArray[np.uint32] | None, rows: NDArray[np.int64] | None, mode: int
    ) -> NDArray[np.bool_]:
        num_rows = scan.stop - scan.start if docs is None else len(docs)
        scan.num_entries += num_rows
        hits, failed, reason = np.empty(num_rows, np.bool_), np.zeros(num_rows, np.bool_), ""
        for start, chunk in _chunks(scan, docs, num_rows):
            at = slice(start, start + chunk.num_rows)
            hits[at], failure = verdicts(self.expr, chunk)
            if failure is not None:
                failed[at] = failure.rows
                reason = reason or failure.reason
        if not reason:
            return hits
        without = np.zeros(64 * len(scan.words), np.uint8)
        without[slice(0, num_rows) if rows is None else rows] = failed
        words = np.empty_like(scan.words)
        kernels.pack_mask(without, kernels.SET, words)
        scan.fail(words, reason)
        return hits if mode == kernels.OR else hits | failed

    def blocks(self) -> NDArray[np.bool_] | None:
        return None


def _chunks(scan: FilterScan, docs: NDArray[np.uint32] | None, num_rows: int) -> Iterator[tuple[int, Chunk]]:
    """Yield the docs of a scan, all or those listed, in chunks with the position of their first row. Raise what the
    query's check raises."""
    check = account.current().account.check
    for start in range(0, num_rows, CHUNK_DOCS):
        if check is not None:
            check()
        stop = min(start + CHUNK_DOCS, num_rows)
        first, last = (scan.start + start, scan.start + stop) if docs is None else (scan.start, scan.stop)
        listed = None if docs is None else docs[start:stop]
        yield start, Chunk(scan.columns, first, last, listed, null_handling=scan.null_handling)


@dataclass(slots=True)
class LateMatch:
    """Predicate that looks into values, in a conjunction. When its turn comes it is evaluated for the docs that are
    left, or once for each distinct value, whichever is less work. Any thread."""

    access: ClassVar[Access] = Access("FILTER_EXPRESSION", "dictionary")
    by_rows: ValueMatch
    by_values: Callable[[], TableMatch | None]
    """Function that evaluates the distinct values; it returns None if a value fails, which only rows can decide."""
    most_docs: int
    """Most docs for which the predicate is evaluated doc by doc."""
    share: float = 0.5
    cost: float = 90.0
    _made: list[TableMatch | None] = field(default_factory=list)

    def apply(self, scan: FilterScan, mode: int) -> None:
        if mode == kernels.AND and kernels.count_words(scan.words) <= self.most_docs:
            self.by_rows.apply(scan, mode)
            return
        if not self._made:
            # Threads that arrive at the same time compute equal tables.
            self._made.append(self.by_values())
        (self._made[0] or self.by_rows).apply(scan, mode)

    def blocks(self) -> NDArray[np.bool_] | None:
        return None


@dataclass(frozen=True, slots=True)
class AnyValueMatch:
    """Docs of a multi-value column of which any value matches, or (negate) no value does."""

    access: ClassVar[Access] = FULL_SCAN
    reader: Reader
    flat_matches: Callable[[int, int], NDArray[np.uint8]]
    """Function that returns the verdicts of the values at positions [first, last) of the column."""
    negate: bool
    share: float
    cost: float = 20.0

    def apply(self, scan: FilterScan, mode: int) -> None:
        offsets = self.reader.offsets()[scan.start : scan.stop + 1]
        flat = self._flat(int(offsets[0]), int(offsets[-1]))
        scan.num_entries += len(flat)
        mask = np.empty(scan.stop - scan.start, np.uint8)
        kernels.any_value(flat, offsets, mask)
        if self.negate:
            mask ^= 1
        kernels.pack_mask(mask, mode, scan.words)

    def _flat(self, first: int, last: int) -> NDArray[np.uint8]:
        flat = np.empty(last - first, np.uint8)
        for start in range(first, last, CHUNK_DOCS):
            stop = min(start + CHUNK_DOCS, last)
            flat[start - first : stop - first] = self.flat_matches(start, stop)
        return flat

    def blocks(self) -> NDArray[np.bool_] | None:
        return None
