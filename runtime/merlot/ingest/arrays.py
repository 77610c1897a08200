"""Arrow arrays in the few plain types that casts take, instead of the many that a source may have.

Also what Arrow's own functions lack: division that rounds down, Python functions over distinct values, lists without
hidden values where they are null. Pure: nothing is written to an array that was given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlot.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class CastResult:
    """Result of a cast. `values` has the target type, and is null where `bad` (boolean, no nulls) marks a value that
    did not fit."""

    values: pa.Array
    bad: pa.Array
    by_type: bool = False
    """True if no value of the source's type can fit."""


def all_good(values: pa.Array) -> CastResult:
    """Return a cast in which every value fits."""
    return CastResult(values, constant(False, len(values)))


def all_bad(source: pa.Array, target: pa.DataType) -> CastResult:
    """Return a cast in which no value fits, because no value of the source's type is one of the target's."""
    return CastResult(pa.nulls(len(source), target), source.is_valid(), by_type=True)


def keep(source: pa.Array, fits: pa.Array, target: pa.DataType) -> CastResult:
    """Return a cast of the values that fit; `fits` is null where the source is."""
    bad = pc.invert(pc.fill_null(fits, True))
    return CastResult(with_nulls(source, bad).cast(target, safe=False), bad)


def then(first: CastResult, second: CastResult) -> CastResult:
    """Combine two casts, the second of which is a cast of `first.values`: a value is bad if either cannot take it."""
    return CastResult(second.values, pc.or_(first.bad, second.bad), second.by_type)


def with_nulls(values: pa.Array, mask: pa.Array) -> pa.Array:
    """Return the values, null where the mask is true."""
    return pc.if_else(mask, pa.scalar(None, values.type), values)


def constant(value: bool, length: int) -> pa.Array:
    """Return an array of the same boolean."""
    return pa.array(np.full(length, value))


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array of a type that casts know, and lists of such values: dictionaries and runs are decoded; texts,
    bytes, lists and decimals of other layouts become ordinary ones; extension types become their storage, except UUIDs,
    which have a text form of their own."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks > 1:
            # Arrow cannot always unite the dictionaries of chunks: their ids may be too narrow for all values.
            return pa.concat_arrays([plain(chunk) for chunk in column.chunks])
        column = column.chunk(0) if column.num_chunks else column.combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, plain(column.dictionary)).dictionary_decode()
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_decode(_with_plain_values(column))
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        return column.cast(pa.bool_()) if isinstance(kind, pa.Bool8Type) else plain(column.storage)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if _is_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return _lists(column) if is_list(kind) else column


def is_list(kind: pa.DataType) -> bool:
    """Return True if values are lists, of whatever layout."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def is_temporal(kind: pa.DataType) -> bool:
    """Return True if values are instants: timestamps or dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def lengths_of(lists: pa.ListArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of values of each list, 0 for null."""
    filled: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return filled


def elements_of(lists: pa.Array) -> pa.Array:
    """Return the values of all lists, one after another, without those that null lists hide."""
    try:
        return pc.list_flatten(lists)
    except pa.ArrowNotImplementedError:
        # Arrow cannot flatten lists of extension types, such as UUIDs. They are rare enough for a list at a time.
        parts = [scalar.values for scalar in lists if scalar.is_valid]
        return pa.concat_arrays(parts) if parts else pa.nulls(0, lists.type.value_type)


def parents_of(lists: pa.ListArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return, for each value of `elements_of`, the index of its list. (Arrow's own function counts values that null
    lists hide.)"""
    return np.repeat(np.arange(len(lists)), lengths_of(lists))


def lists_of(
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]], elements: pa.Array, nulls: pa.Array | None = None
) -> pa.ListArray:
    """Return lists of these lengths over consecutive elements, null where `nulls` is true."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=nulls)


def floor_divide(numbers: pa.Array, divisor: int) -> pa.Array:
    """Divide integers and round down (Arrow rounds towards zero)."""
    if divisor == 1:
        return numbers
    filled = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    return with_nulls(pa.array(filled // divisor), pc.is_null(numbers))


def map_distinct(column: pa.Array, read: Callable[[Any], Any], target: pa.DataType) -> CastResult:
    """Apply `read` to each distinct value; a ValueError or the like marks the value as bad."""
    encoded = column.dictionary_encode()
    values: list[Any] = []
    bad: list[bool] = []
    for value in encoded.dictionary.to_pylist():
        try:
            values.append(read(value))
            bad.append(False)
        except (ValueError, InvalidOperation, InvalidInputError, OverflowError, TypeError):
            values.append(None)
            bad.append(True)
    indices = encoded.indices
    is_bad = pc.fill_null(pc.take(pa.array(bad, pa.bool_()), indices), False)
    return CastResult(pc.take(pa.array(values, target), indices), is_bad)


def by_pattern(
    texts: pa.Array, pattern: str, at_once: Callable[[pa.Array], CastResult], rest: Callable[[pa.Array], CastResult]
) -> CastResult:
    """Cast texts that match the pattern by `at_once`, the others by `rest`. The result of a text never depends on its
    neighbours."""
    usual = pc.match_substring_regex(texts, pattern)
    if pc.all(usual, min_count=0).as_py() is not False:
        return at_once(texts)
    unusual = pc.invert(pc.fill_null(usual, True))
    quick, slow = at_once(with_nulls(texts, unusual)), rest(texts.filter(unusual))
    return CastResult(
        pc.replace_with_mask(quick.values, unusual, slow.values), pc.replace_with_mask(quick.bad, unusual, slow.bad)
    )


def readable(source: pa.Array) -> CastResult:
    """Return texts, or bytes that are texts; bad where they are not UTF-8. Arrow does not check texts that it reads
    from files."""
    try:
        if pa.types.is_binary(source.type):
            return all_good(source.cast(pa.string()))
        source.validate(full=True)
    except pa.ArrowInvalid:
        return map_distinct(source.cast(pa.binary()), bytes.decode, pa.string())
    return all_good(source)


def _with_plain_values(column: pa.RunEndEncodedArray) -> pa.RunEndEncodedArray:
    """Return the same runs of plain values: Arrow decodes no runs of views."""
    values = plain(column.values)
    kind = pa.run_end_encoded(column.run_ends.type, values.type)
    return pa.RunEndEncodedArray.from_buffers(
        kind, len(column), [None], offset=column.offset, children=[column.run_ends, values]
    )


def _lists(column: pa.Array) -> pa.ListArray:
    return lists_of(lengths_of(column), plain(elements_of(column)), column.is_null())


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind))
