"""Merge serialized sketches of many rows to one per group: HyperLogLog, UltraLogLog, t-digest, pairs of sum and count.

The forms are those that Pinot stores: `HyperLogLog.getBytes` of clearspring's stream-lib, p and `UltraLogLog.getState`
of hash4j, `MergingDigest.asBytes` and `asSmallBytes` of com.tdunning's t-digest, AvgPair. Nulls and empty bytes do not
count. If a group has only one sketch, its bytes do not change.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.aggregates.counts import CountState
from merlot.aggregates.sums import FloatSum, rounded
from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError
from merlot.kernels import sketch, ultraloglog
from merlot.spec.tasks import COMPRESSION_FACTOR, DEFAULT_COMPRESSION
from merlot.tree.types import DOUBLE
from merlot.vectors.runs import ends_of

_MAX_LOG2M: Final = 30
PAIR: Final = np.dtype([("sum", ">f8"), ("count", ">i8")])
"""Layout of Pinot's AvgPair."""
NO_PAIR: Final = "bytes are no pair of sum and count"
NO_ULTRALOGLOG: Final = "bytes are no serialized UltraLogLog"
_TEXT_LIMIT: Final = (1 << 31) - 1
_BLOCK_BYTES: Final = 1 << 22
"""Bytes of sketches that are estimated at a time."""
Places = NDArray[np.int64]


class SketchError(InvalidInputError):
    """Raised if bytes are no sketch of the merged kind, or do not fit the other sketches of their group."""

    code: ClassVar[int] = QueryErrorCode.QUERY_EXECUTION

    def __init__(self, problem: str, row: int, *, column: str = "", segment: str = "") -> None:
        where = f"column={column} row={row}" if column else f"row={row}"
        super().__init__(f"{problem} segment={segment} column={column}" if segment else f"{problem} {where}")
        self.problem, self.column = problem, column
        self.row = row
        """Index among the rows that were merged."""

    def found_in(self, *, column: str = "", segment: str = "") -> "SketchError":
        """Return the same error with the column or segment in which it was found."""
        return SketchError(self.problem, self.row, column=column or self.column, segment=segment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serialized:
    """Sketches of some rows, and the group of each row. Null and empty ones do not count."""

    values: pa.Array
    """One sketch per row, or one per id."""
    ids: NDArray[Any] | None = None
    nulls: NDArray[np.bool_] | None = None
    of_rows: NDArray[np.uint32]
    num_groups: int


@dataclass(frozen=True, slots=True)
class _Sketches:
    """Sketches of some rows by group; rows without a sketch are left out."""

    data: NDArray[np.uint8]
    starts: Places
    """Offset of each entry in `data`."""
    lengths: Places
    rows: Places
    """Rows by group, then by row number."""
    members: Places
    """Entry of each of these rows."""
    bounds: Places
    """Index in `rows` at which each group begins, then the number of rows."""

    def error(self, problem: str, member: int) -> SketchError:
        return SketchError(problem, int(self.rows[member]))

    def check(self, is_sound: NDArray[np.bool_], problem: str) -> None:
        """Raise SketchError if a member is not sound."""
        bad = np.flatnonzero(~is_sound)
        if len(bad):
            raise self.error(problem, int(bad[0]))

    def numbers(self, offset: int, dtype: str, members: Places) -> NDArray[Any]:
        """Return the number at an offset in the bytes of each of some members."""
        width = np.arange(np.dtype(dtype).itemsize)
        cells = self.data[(self.starts[self.members[members]] + offset)[:, np.newaxis] + width]
        return np.ascontiguousarray(cells).view(dtype)[:, 0]


def merge_sketches(given: Serialized, function: str, parameters: Mapping[str, str]) -> pa.Array:
    """Return one sketch per group, empty bytes where there is none. function: key of MERGES. Raise SketchError."""
    sketches = _by_group(given)
    buffer, starts = MERGES[function](sketches, parameters)
    wide = len(buffer) > _TEXT_LIMIT
    offsets = starts if wide else starts.astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(buffer)]
    return pa.Array.from_buffers(pa.large_binary() if wide else pa.binary(), given.num_groups, buffers)


def _by_group(given: Serialized) -> _Sketches:
    starts, data = bytes_of(given.values)
    lengths = np.diff(starts)
    entries = np.arange(len(given.of_rows)) if given.ids is None else given.ids.astype(np.int64)
    counts = lengths[entries] > 0
    if given.nulls is not None:
        counts &= ~given.nulls
    present = np.flatnonzero(counts)
    of_rows = given.of_rows[present]
    bounds = ends_of(np.bincount(of_rows, minlength=given.num_groups))
    order = np.empty(len(present), np.int64)
    sketch.rows_by_group(of_rows, bounds[:-1].copy(), order)
    rows = present[order]
    return _Sketches(data, starts[:-1], lengths, rows, entries[rows], bounds)


def binaries(cells: NDArray[np.uint8]) -> pa.Array:
    """Return each row (N, size) as bytes."""
    number, size = cells.shape
    offsets = np.arange(number + 1, dtype=np.int64) * size
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cells.tobytes())]
    return pa.Array.from_buffers(pa.large_binary(), number, buffers)


def in_blocks(sketches: pa.Array) -> Iterator[tuple[list[int], NDArray[np.uint8]]]:
    """Yield sketches of one length (N, length) with their positions, some at a time; empty ones are left out."""
    cells: list[bytes] = sketches.to_pylist()
    by_length: dict[int, list[int]] = {}
    for place, cell in enumerate(cells):
        if cell:
            by_length.setdefault(len(cell), []).append(place)
    for length, places in by_length.items():
        step = max(1, _BLOCK_BYTES // length)
        for start in range(0, len(places), step):
            some = places[start : start + step]
            yield some, np.frombuffer(b"".join([cells[place] for place in some]), np.uint8).reshape(len(some), length)


def bytes_of(values: Any) -> tuple[Places, NDArray[np.uint8]]:
    """Return where each value begins, and where the last one ends; and all bytes."""
    _, offsets, data = values.buffers()
    is_large = pa.types.is_large_binary(values.type)
    if offsets is None or len(values) == 0:
        starts = np.zeros(1, np.int64)
    else:
        every = np.frombuffer(offsets, np.int64 if is_large else np.int32)
        starts = every[values.offset : values.offset + len(values) + 1].astype(np.int64)
    flat = np.zeros(1, np.uint8) if data is None or data.size == 0 else np.frombuffer(data, np.uint8).view()
    flat.flags.writeable = False
    return starts, flat


def _union_hll(sketches: _Sketches, parameters: Mapping[str, str]) -> tuple[NDArray[np.uint8], Places]:
    """Merge HyperLogLogs. The result is exact, in whatever steps it is computed."""
    _check_hll(sketches)
    sizes = np.zeros(len(sketches.bounds) - 1, np.int64)
    is_used = sketches.bounds[1:] > sketches.bounds[:-1]
    sizes[is_used] = sketches.lengths[sketches.members[sketches.bounds[:-1][is_used]]]
    starts = ends_of(sizes)
    out = np.zeros(int(starts[-1]), np.uint8)
    facts = (sketches.data, sketches.starts, sketches.lengths, sketches.members, sketches.bounds)
    unfit = sketch.union_registers(*facts, out, starts)
    if unfit >= 0:
        raise sketches.error("HyperLogLogs of different log2m meet in one row", unfit)
    return out, starts


def _unite_ull(sketches: _Sketches, parameters: Mapping[str, str]) -> tuple[NDArray[np.uint8], Places]:
    """Merge UltraLogLogs, to the least p of a group. The result is exact, in whatever steps it is computed."""
    _check_ull(sketches)
    first = sketches.bounds[:-1]
    is_used = sketches.bounds[1:] > first
    precisions = sketches.data[sketches.starts[sketches.members]]
    least = np.minimum.reduceat(precisions, first[is_used]) if is_used.any() else precisions
    sizes = np.zeros(len(first), np.int64)
    sizes[is_used] = 1 + (np.int64(1) << least.astype(np.int64))
    starts = ends_of(sizes)
    out = np.zeros(int(starts[-1]), np.uint8)
    out[starts[:-1][is_used]] = least
    facts = (sketches.data, sketches.starts, sketches.members, sketches.bounds)
    unfit = ultraloglog.unite(*facts, out, starts)
    if unfit >= 0:
        raise sketches.error(NO_ULTRALOGLOG, unfit)
    return out, starts


def _check_ull(sketches: _Sketches) -> None:
    """Check the sizes of UltraLogLogs. Registers are checked when they are merged."""
    lengths = sketches.lengths[sketches.members]
    precisions = sketches.data[sketches.starts[sketches.members]].astype(np.int64)
    is_known = (precisions >= ultraloglog.LEAST_P) & (precisions <= ultraloglog.MOST_P)
    sizes = 1 + (np.int64(1) << np.where(is_known, precisions, 0))
    sketches.check(is_known & (lengths == sizes), NO_ULTRALOGLOG)


def _check_hll(sketches: _Sketches) -> None:
    lengths = sketches.lengths[sketches.members]
    problem = "bytes are no serialized HyperLogLog"
    sketches.check(lengths >= sketch.HLL_HEADER + 4, problem)
    every = np.arange(len(lengths))
    log2m, size = sketches.numbers(0, ">i4", every), sketches.numbers(4, ">i4", every)
    is_sound = (log2m >= 0) & (log2m <= _MAX_LOG2M) & (size == lengths - sketch.HLL_HEADER)
    words = (np.int64(1) << np.where(is_sound, log2m, 0).astype(np.int64)) // sketch.REGISTERS_PER_WORD + 1
    sketches.check(is_sound & (size == 4 * words), problem)


def _merge_digests(sketches: _Sketches, parameters: Mapping[str, str]) -> tuple[NDArray[np.uint8], Places]:
    _check_digests(sketches)
    compression = float(parameters.get(COMPRESSION_FACTOR, DEFAULT_COMPRESSION))
    starts = np.zeros(len(sketches.bounds), np.int64)
    # A centroid in the small encoding has half the bytes that it has in the verbose one.
    out = np.empty(2 * int(sketches.lengths[sketches.members].sum()), np.uint8)
    facts = (sketches.data, sketches.starts, sketches.lengths, sketches.members, sketches.bounds)
    unfit = sketch.merge_centroids(*facts, compression, out, starts)
    if unfit >= 0:
        raise sketches.error("a serialized t-digest has a centroid that is no number", unfit)
    return out[: int(starts[-1])], starts


def _check_digests(sketches: _Sketches) -> None:
    lengths = sketches.lengths[sketches.members]
    problem = "bytes are no serialized t-digest (MergingDigest)"
    sketches.check(lengths >= sketch.SMALL_HEADER, problem)
    kinds = sketches.numbers(0, ">i4", np.arange(len(lengths)))
    is_verbose, is_small = (kinds == 1) & (lengths >= sketch.VERBOSE_HEADER), kinds == 2
    sketches.check(is_verbose | is_small, problem)
    needed = np.full(len(lengths), -1, np.int64)
    verbose, small = np.flatnonzero(is_verbose), np.flatnonzero(is_small)
    needed[verbose] = sketch.VERBOSE_HEADER + 16 * sketches.numbers(28, ">i4", verbose).astype(np.int64)
    needed[small] = sketch.SMALL_HEADER + 8 * sketches.numbers(28, ">i2", small).astype(np.int64)
    sketches.check(lengths == needed, problem)


def _add_pairs(sketches: _Sketches, parameters: Mapping[str, str]) -> tuple[NDArray[np.uint8], Places]:
    """Add pairs: sums are compensated, counts exact."""
    sketches.check(sketches.lengths[sketches.members] == PAIR.itemsize, NO_PAIR)
    every = np.arange(len(sketches.members))
    sums, counts = sketches.numbers(0, ">f8", every), sketches.numbers(8, ">i8", every)
    sketches.check(counts >= 0, NO_PAIR)
    per_group = np.diff(sketches.bounds)
    of_members = np.repeat(np.arange(len(per_group), dtype=np.uint32), per_group)
    totals, numbers = FloatSum(len(per_group)), CountState(len(per_group))
    totals.add([sums], of_members, len(of_members))
    numbers.merge([pa.array(counts.astype(np.int64))], of_members)
    every = np.arange(len(per_group))
    pairs = np.zeros(len(per_group), PAIR)
    pairs["sum"] = rounded(DOUBLE, totals.columns(every))
    pairs["count"] = numbers.columns(every)[0]
    return pairs[per_group > 0].view(np.uint8), ends_of(np.where(per_group > 0, PAIR.itemsize, 0))


Merge = Callable[[_Sketches, Mapping[str, str]], tuple[NDArray[np.uint8], Places]]
MERGES: Final[Mapping[str, Merge]] = {
    "DISTINCTCOUNTHLL": _union_hll,
    "DISTINCTCOUNTRAWHLL": _union_hll,
    "DISTINCTCOUNTULL": _unite_ull,
    "DISTINCTCOUNTRAWULL": _unite_ull,
    "PERCENTILETDIGEST": _merge_digests,
    "PERCENTILERAWTDIGEST": _merge_digests,
    "AVG": _add_pairs,
}
"""Functions that merge sketches, by the aggregates that make them."""
