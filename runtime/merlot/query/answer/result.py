"""Answers of queries: their statistics, and their rows in Pinot's JSON encoding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.tree.types import SqlType
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.timestamps import timestamp_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStats:
    """Statistics of a query, under Pinot's response names. `+` adds counts; flags are or-ed."""

    num_docs_scanned: int = 0
    num_entries_scanned_in_filter: int = 0
    num_entries_scanned_post_filter: int = 0
    num_segments_queried: int = 0
    num_segments_processed: int = 0
    num_segments_matched: int = 0
    num_segments_pruned_by_server: int = 0
    num_segments_pruned_by_value: int = 0
    num_segments_pruned_by_limit: int = 0
    num_segments_pruned_invalid: int = 0
    num_consuming_segments_queried: int = 0
    num_consuming_segments_processed: int = 0
    num_consuming_segments_matched: int = 0
    min_consuming_freshness_time_ms: int = 0
    """Time at which the newest message of the consuming segment that is farthest behind was written, or read if the
    stream does not say. 0 if no consuming segment was queried, or none has read a message."""
    total_docs: int = 0
    thread_cpu_time_ns: int = 0
    num_groups_limit_reached: bool = False

    def __add__(self, other: Self) -> Self:
        # Spelled out: several additions per query, at 2 us each; `dataclasses.astuple` copies deeply and takes 70.
        return type(self)(
            num_docs_scanned=self.num_docs_scanned + other.num_docs_scanned,
            num_entries_scanned_in_filter=self.num_entries_scanned_in_filter + other.num_entries_scanned_in_filter,
            num_entries_scanned_post_filter=self.num_entries_scanned_post_filter
            + other.num_entries_scanned_post_filter,
            num_segments_queried=self.num_segments_queried + other.num_segments_queried,
            num_segments_processed=self.num_segments_processed + other.num_segments_processed,
            num_segments_matched=self.num_segments_matched + other.num_segments_matched,
            num_segments_pruned_by_server=self.num_segments_pruned_by_server + other.num_segments_pruned_by_server,
            num_segments_pruned_by_value=self.num_segments_pruned_by_value + other.num_segments_pruned_by_value,
            num_segments_pruned_by_limit=self.num_segments_pruned_by_limit + other.num_segments_pruned_by_limit,
            num_segments_pruned_invalid=self.num_segments_pruned_invalid + other.num_segments_pruned_invalid,
            num_consuming_segments_queried=self.num_consuming_segments_queried + other.num_consuming_segments_queried,
            num_consuming_segments_processed=self.num_consuming_segments_processed
            + other.num_consuming_segments_processed,
            num_consuming_segments_matched=self.num_consuming_segments_matched + other.num_consuming_segments_matched,
            min_consuming_freshness_time_ms=_earliest(
                self.min_consuming_freshness_time_ms, other.min_consuming_freshness_time_ms
            ),
            total_docs=self.total_docs + other.total_docs,
            thread_cpu_time_ns=self.thread_cpu_time_ns + other.thread_cpu_time_ns,
            num_groups_limit_reached=self.num_groups_limit_reached or other.num_groups_limit_reached,
        )


def _earliest(one_ms: int, other_ms: int) -> int:
    return min(one_ms, other_ms) if one_ms and other_ms else one_ms or other_ms


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Whole answer, by column: labels may repeat. TIMESTAMP is int64 milliseconds."""

    column_names: tuple[str, ...]
    column_types: tuple[SqlType, ...]
    columns: tuple[pa.Array, ...]


VALUE_BYTES: Final = 64
"""Bytes of a value as a Python object in a row, besides its letters."""


def to_pinot_rows(result: ResultTable) -> list[list[Any]]:
    """Return rows of JSON values, in Pinot's encoding of each type."""
    columns = map(pinot_values, result.column_types, result.columns)
    return [list(row) for row in zip(*columns, strict=True)]


def pinot_values(type_: SqlType, values: pa.Array) -> list[Any]:
    """Return the JSON values of one column; null is None."""
    flattened = values.flatten() if type_.is_array else values
    account.current().hold("rows of an answer", values.nbytes + len(flattened) * VALUE_BYTES)
    flat = _scalars(type_.base, flattened)
    if not type_.is_array:
        return flat
    lengths = pc.list_value_length(values).to_pylist()
    rows: list[Any] = []
    position = 0
    for length in lengths:
        rows.append(None if length is None else flat[position : position + length])
        position += length or 0
    return rows


def _scalars(base: TypeName, values: pa.Array) -> list[Any]:
    match base:
        case TypeName.FLOAT | TypeName.DOUBLE:
            return _floats(base, values)
        case TypeName.TIMESTAMP:
            return _with_nulls(timestamp_texts(_filled(values)), values)
        case TypeName.BYTES:
            return [None if value is None else value.hex() for value in values.to_pylist()]
    plain: list[Any] = values.to_pylist()
    return plain


def _filled(values: pa.Array) -> NDArray[Any]:
    filled: NDArray[Any] = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
    return filled


def _with_nulls(items: list[Any], values: pa.Array) -> list[Any]:
    if not values.null_count:
        return items
    return [None if missing else item for item, missing in zip(items, values.is_null().to_pylist(), strict=True)]


def _floats(base: TypeName, values: pa.Array) -> list[Any]:
    numbers = _filled(values)
    if base is TypeName.FLOAT:
        # The shortest decimal that names the float, as Java prints it: 0.1, not 0.10000000149011612.
        numbers = numbers.astype(str).astype(np.float64)
    items: list[Any] = numbers.tolist()
    if not np.isfinite(numbers).all():
        items = [item if math.isfinite(item) else special_text(item) for item in items]
    return _with_nulls(items, values)


def special_text(number: float) -> str:
    """Return the text by which an answer writes a number that JSON lacks."""
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
