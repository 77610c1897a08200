"""Estimate how many rows fit into memory at once, from footers alone.

One column is in memory at a time, beside a few numbers per row: key words, groups, an order. Reading it, mapping its
ids to the merged dictionary, ordering its rows and packing them take up to four arrays of its size.
"""

import ctypes
from typing import Any, Final

import pyarrow as pa

from merlot.merge.plan import MergeMode, MergePlan
from merlot.merge.source import Selection, no_collections, num_rows
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index.dict_ids import width_bytes
from merlot.segment.metadata import ColumnMetadata

_COPIES: Final = 4
_ENTRY_BYTES: Final = 64
"""Bytes to merge a dictionary entry: its slot in a hash table, its place in an order, its rank."""
_FIXED_BYTES: Final = 16 << 20
"""Bytes that do not grow with the rows: the process itself, block numbers and file buffers."""
_LEAST_ROWS: Final = 10_000


_LIBC: Final[Any] = ctypes.CDLL(None)


def release() -> None:
    """Return freed memory to the system between steps; allocators keep it otherwise."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
    pa.default_memory_pool().release_unused()


def rows_that_fit(plan: MergePlan, selection: Selection, memory_bytes: int) -> int:
    """Return how many of the selected rows may be merged at once: at least `_LEAST_ROWS`, or 1 if none is selected."""
    rows = num_rows(selection)
    if not rows:
        return 1
    docs = sum(segment.num_docs for segment in _segments(selection))
    # An erased column is not read: its footer entries do not matter.
    read = [name for name in plan.schema.names if name not in plan.erased]
    with no_collections():
        widest = max([_column_bytes(selection, name) for name in read], default=0.0) / max(docs, 1)
        per_row = widest + _row_bytes(plan, selection)
    return max(_LEAST_ROWS, int(max(memory_bytes - _FIXED_BYTES, memory_bytes // 2) / per_row))


def _row_bytes(plan: MergePlan, selection: Selection) -> float:
    """Estimate the bytes per row of keys and orders."""
    if plan.merge_type is MergeMode.CONCAT:
        return 40.0 if plan.indexing.sorted_columns else 4.0
    bits = sum(1 if field.name in plan.erased else _key_bits(selection, field.name) for field in plan.key_fields())
    # Words are stored twice (while they grow, and side by side) and once in the table of groups. The rest is for
    # groups, slots and orders.
    return 3 * 8 * (bits // 63 + 1) + 48


def _key_bits(selection: Selection, name: str) -> int:
    """Return an upper bound of the bits in a column's codes."""
    entries = sum(_entries(segment.metadata.columns.get(name)) for segment in _segments(selection))
    return max(min(entries, num_rows(selection)), 1).bit_length()


def _entries(column: ColumnMetadata | None) -> int:
    if column is None:
        return 1
    return column.total_values if column.cardinality is None else column.cardinality


def _column_bytes(selection: Selection, name: str) -> float:
    total = 0.0
    for segment in _segments(selection):
        metadata = segment.metadata
        column = metadata.columns.get(name)
        total += metadata.num_docs if column is None else _decoded_bytes(column)
    return total


def _decoded_bytes(column: ColumnMetadata) -> float:
    """Estimate the bytes of one segment's column in all the forms that a merge gives it."""
    count, entries = column.total_values, column.cardinality or 0
    lists = 24 * count if column.multi_value else 0
    if column.encoding.has_dictionary:
        text = column.buffers.get("dict.bytes")
        size = count * width_bytes(entries) + 8 * entries + (0 if text is None else text.size)
        return _COPIES * size + entries * _ENTRY_BYTES + lists
    text = column.buffers.get("raw.bytes")
    size = 8 * count + (0 if text is None else text.size)
    return _COPIES * size + (count * _ENTRY_BYTES if text is None else 0) + lists


def _segments(selection: Selection) -> list[ImmutableSegment]:
    return [part.segment for part in selection]
