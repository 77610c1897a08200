"""Read a column of many small inputs at once.

Reading a column of a day's thousand rows takes less time than making the objects that read it. Here the buffers of all
inputs are laid side by side, and each kind is checked and decoded by one call. The checks are those of `segment.index`.
Where anything is unusual or wrong, nothing is read: the inputs are then read one by one, which serves every case and
says what is wrong with which file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import merge as kernels
from merlot.kernels import ordering
from merlot.kernels.jit import read_only
from merlot.merge.columns import Array, MergeColumn, fixed_dtype
from merlot.segment.buffers import MappedFile
from merlot.segment.build.coding import code
from merlot.segment.concat import Values
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.index import dict_ids, dictionary, nulls, raw, variable
from merlot.segment.json_values import from_json
from merlot.segment.metadata import BufferRef, ColumnEncoding, ColumnMetadata
from merlot.spec.schema import FieldSpec
from merlot.values.types import TypeName
from merlot.vectors.runs import ends_of

SMALL_DOCS: Final = 1 << 15
"""Docs of the largest input that is read this way: in larger inputs the rows, not the objects, take the time."""
_FEW: Final = 2
_RUNS: Final = -1
_MOST_TEXT_BYTES: Final = (1 << 31) - 1
_TEXTS: Final = (TypeName.STRING, TypeName.JSON)
_PREFIX: Final = "dict."
_SPARE: Final = bytes(16)
"""Bytes behind the buffers: kernels load pairs of words."""
Places = NDArray[np.int64]


def read_together(field: FieldSpec, segments: Sequence[ImmutableSegment]) -> MergeColumn | None:
    """Return all rows of a column, one segment after another; None if the segments must be read one by one.

    segments: none is empty. Raises CorruptionError if a footer's entry is impossible."""
    if len(segments) < _FEW or field.multi_value or max(segment.num_docs for segment in segments) > SMALL_DOCS:
        return None
    stored = _stored(field, segments)
    if stored is None:
        return None
    column = _coded(field, stored) if stored.columns[0].encoding.has_dictionary else _plain(field, stored)
    return column if column is not None and _is_in_order(column, stored) else None


@dataclass(frozen=True, slots=True)
class _Stored:
    """Column in its files."""

    columns: list[ColumnMetadata]
    files: list[MappedFile]
    ends: Places
    """Bounds of the files' rows, (N + 1,): file k has [ends[k], ends[k + 1])."""


def _stored(field: FieldSpec, segments: Sequence[ImmutableSegment]) -> _Stored | None:
    """Return the column if all files, none with a sidecar, have it with the schema's type, and all or none of them with
    a dictionary; else None."""
    columns = []
    for segment in segments:
        column = segment.metadata.columns.get(field.name)
        if column is None or column.type is not field.type or column.multi_value or segment.sidecar_path is not None:
            return None
        columns.append(column)
    if len({column.encoding.has_dictionary for column in columns}) > 1:
        return None
    return _Stored(columns, [segment.file for segment in segments], ends_of([segment.num_docs for segment in segments]))


@dataclass(frozen=True, slots=True)
class _Buffers:
    """Buffers side by side, as kernels take them."""

    data: NDArray[np.uint8]
    starts: Places
    widths: Places
    bases: Places


_Choose = Callable[[ColumnMetadata], tuple[BufferRef | None, int, int]]
"""Return the buffer that holds a column's numbers (None if all are equal to the base), the bits of each, and the base
that is added to each."""


def _parts(stored: _Stored, choose: _Choose) -> _Buffers | None:
    """Lay the chosen buffers side by side; None if a buffer is compressed."""
    views, places, size = [], [], 0
    for column, file in zip(stored.columns, stored.files, strict=True):
        ref, width, base = choose(column)
        places.append((size, width, base))
        if ref is not None:
            view = file.plain(ref)
            if view is None:
                return None
            views.append(view)
            size += len(view)
    starts, widths, bases = np.ascontiguousarray(np.array(places, np.int64).T)
    return _Buffers(np.frombuffer(b"".join([*views, _SPARE]), np.uint8), starts, widths, bases)


def _unpacked(parts: _Buffers, ends: Places, dtype: np.dtype[Any]) -> Array:
    """Return all numbers; for floats, which are never packed, their bits."""
    out = np.empty(int(ends[-1]), f"<i{dtype.itemsize}" if dtype.kind == "f" else dtype)
    kernels.unpack_parts(parts.data, parts.starts, parts.widths, parts.bases, ends, out)
    return out.view(dtype)


# Values by dictionary


def _coded(field: FieldSpec, stored: _Stored) -> MergeColumn | None:
    firsts = ends_of([column.cardinality or 0 for column in stored.columns])
    ids, rows_null = _parts(stored, _choose_ids), _nulls(stored)
    values = None if ids is None or rows_null is None else _entries(field, stored, firsts)
    if ids is None or rows_null is None or values is None:
        return None
    entries = code(field.type, values)
    out = np.empty(int(stored.ends[-1]), entries.ids.dtype)
    table = read_only(entries.ids)
    if not kernels.map_parts(ids.data, ids.starts, ids.widths, stored.ends, firsts, table, out):
        return None
    return MergeColumn(
        field=field,
        num_rows=len(out),
        values=entries.values,
        ids=out,
        nulls=rows_null if len(rows_null) else None,
        every_value_occurs=True,
    )


def _choose_ids(column: ColumnMetadata) -> tuple[BufferRef, int, int]:
    cardinality, buffers = column.cardinality or 0, column.buffers
    if column.encoding is ColumnEncoding.DICTIONARY_RUNS:
        return buffers[dict_ids.RUNS], _RUNS, 0
    if column.encoding is ColumnEncoding.DICTIONARY_ALIGNED:
        return buffers[dict_ids.ALIGNED], 8 * dict_ids.width_bytes(cardinality), 0
    return buffers[dict_ids.PACKED], dict_ids.width_bits(cardinality), 0


def _entries(field: FieldSpec, stored: _Stored, firsts: Places) -> Values | None:
    """Return the entries of all dictionaries, each ascending from its column's least value to the greatest; None if a
    dictionary does not, or if the type is read one by one."""
    dtype = fixed_dtype(field)
    if dtype is not None:
        return _number_entries(stored, firsts, dtype)
    return _text_entries(field.type, stored, firsts) if field.type in _TEXTS else None


def _number_entries(stored: _Stored, firsts: Places, dtype: np.dtype[Any]) -> Array | None:
    def choose(column: ColumnMetadata) -> tuple[BufferRef, int, int]:
        packed = column.buffers.get(dictionary.PACKED)
        if packed is None:
            return column.buffers[dictionary.VALUES], 8 * dtype.itemsize, 0
        return packed, dictionary.stored_width(column), int(column.min or 0)

    parts = _parts(stored, choose)
    if parts is None:
        return None
    values = _unpacked(parts, firsts, dtype)
    for bounds, ends in (
        ([column.min for column in stored.columns], values[firsts[:-1]]),
        ([column.max for column in stored.columns], values[firsts[1:] - 1]),
    ):
        stated = np.array([from_json(stored.columns[0].type, bound) for bound in bounds if bound is not None], dtype)
        if len(stated) != len(ends) or not np.array_equal(stated, ends, equal_nan=dtype.kind == "f"):
            return None
    return values if _ascends(values, firsts) else None


def _ascends(values: Array, firsts: Places) -> bool:
    """Return True if the entries of each dictionary ascend."""
    ascends = ordering.floats_ascend if values.dtype.kind == "f" else ordering.integers_ascend
    flat = read_only(values)
    return all(ascends(flat[first:last]) for first, last in pairwise(firsts.tolist()))


def _text_entries(type_name: TypeName, stored: _Stored, firsts: Places) -> pa.Array | None:
    texts = _texts(stored, firsts)
    if texts is None:
        return None
    offsets, data = texts
    values = variable.arrow_values(type_name, offsets, data)
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return None
    if not ordering.strings_ascend_in_parts(read_only(offsets), data, firsts):
        return None
    at = dictionary.Slices(offsets, data)
    for column, first, last in zip(stored.columns, firsts[:-1].tolist(), (firsts[1:] - 1).tolist(), strict=True):
        for bound, place in ((column.min, first), (column.max, last)):
            if bound is not None and str(bound).encode() != at[place]:
                return None
    return values


def _texts(stored: _Stored, firsts: Places) -> tuple[Array, NDArray[np.uint8]] | None:
    """Return offsets and bytes of all entries; None if a column's offsets do not delimit exactly its bytes, or if 32
    bits cannot address all bytes."""
    cuts, texts = [], []
    for column, file in zip(stored.columns, stored.files, strict=True):
        ref = column.buffers[_PREFIX + variable.OFFSETS]
        cut, text = file.plain(ref), file.plain(column.buffers[_PREFIX + variable.BYTES])
        if cut is None or text is None or ref.dtype != "i4":
            return None
        cuts.append(cut)
        texts.append(text)
    bases = ends_of([len(text) for text in texts])
    if bases[-1] > _MOST_TEXT_BYTES:
        return None
    counts = np.diff(firsts) + 1
    starts = ends_of(counts.tolist())
    own = np.frombuffer(b"".join(cuts), "<i4")
    rises = own[1:] >= own[:-1]
    rises[starts[1:-1] - 1] = True
    if own[starts[:-1]].any() or not rises.all() or not np.array_equal(own[starts[1:] - 1], np.diff(bases)):
        return None
    # The next column's bytes start where one column's bytes end.
    offsets = np.delete(own + np.repeat(bases[:-1], counts), starts[1:-1]).astype("<i4")
    return offsets, np.frombuffer(b"".join(texts), np.uint8)


# Values as they are


def _plain(field: FieldSpec, stored: _Stored) -> MergeColumn | None:
    dtype = fixed_dtype(field)
    if dtype is None:
        return None

    def choose(column: ColumnMetadata) -> tuple[BufferRef, int, int]:
        if column.encoding is ColumnEncoding.RAW_FIXED:
            return column.buffers[raw.VALUES], 8 * dtype.itemsize, 0
        return column.buffers[raw.PACKED], column.bits or 0, column.base

    parts, rows_null = _parts(stored, choose), _nulls(stored)
    if parts is None or rows_null is None:
        return None
    values = _unpacked(parts, stored.ends, dtype)
    return MergeColumn(field=field, num_rows=len(values), values=values, nulls=rows_null if len(rows_null) else None)


def _nulls(stored: _Stored) -> NDArray[np.bool_] | None:
    """Mark the rows that are null, with no elements if no row is; None if their counts differ from the footers'."""
    counts = [column.num_nulls for column in stored.columns]
    if not any(counts):
        return np.zeros(0, np.bool_)
    parts = _parts(stored, _choose_nulls)
    if parts is None:
        return None
    bits = _unpacked(parts, stored.ends, np.dtype(np.uint8))
    every = int(np.bitwise_count(parts.data).sum(dtype=np.int64))
    is_right = np.array_equal(np.add.reduceat(bits, stored.ends[:-1], dtype=np.int64), counts)
    # Bits past the last row would be in this count, but are of no row.
    return bits.view(np.bool_) if is_right and every == sum(counts) else None


def _choose_nulls(column: ColumnMetadata) -> tuple[BufferRef | None, int, int]:
    ref = column.buffers.get(nulls.WORDS)
    return ref, 0 if ref is None else 1, 0


def _is_in_order(column: MergeColumn, stored: _Stored) -> bool:
    """Return True if values ascend in the files whose footers say so."""
    flags = np.array([column.is_sorted for column in stored.columns])
    if not flags.any():
        return True
    flat = column.values if column.ids is None else column.ids
    falls = np.flatnonzero(flat[1:] < flat[:-1]) + 1
    of_file = np.searchsorted(stored.ends, falls, side="right") - 1
    return not bool(np.any(flags[of_file] & (falls != stored.ends[of_file])))
