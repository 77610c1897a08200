"""Primary keys of a batch of rows as 128 bits each.

Keys whose columns take up to 16 bytes together (a LONG, two LONGs, INT and TIMESTAMP, …) are stored whole. They are
mixed by a bijection to spread them, so two keys are never taken for the same. All other keys are hashed: two of n keys
share their 128 bits with a probability of n²/2¹²⁹, or 1.5e-21 for a thousand million keys. Nothing outside of a process
sees the bits: each process has a salt of its own, so nobody who chooses keys can choose their places in the index.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.kernels.hashing import hash_spans_twice, mix_pairs
from merlot.kernels.jit import read_only
from merlot.segment.index.variable import buffers_of
from merlot.spec.primary_key import KEY_BYTES, WORD_BYTES, places_of
from merlot.spec.schema import FieldSpec
from merlot.values.types import TypeName

Words = NDArray[np.uint64]
_SALT: Final = read_only(np.frombuffer(os.urandom(4 * WORD_BYTES), np.uint64))
"""Two words for keys that are mixed, two for keys that are hashed."""
_UNSIGNED: Final = {4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Keys:
    """Two words of each row's key, (N,) i64 each."""

    high: NDArray[np.int64]
    low: NDArray[np.int64]


class KeyColumns:
    """Columns of a table's primary key."""

    def __init__(self, fields: Sequence[FieldSpec]) -> None:
        self.fields = tuple(fields)
        self._places = places_of([KEY_BYTES.get(field.type, 0) for field in self.fields])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(field.name for field in self.fields)

    @property
    def is_whole(self) -> bool:
        """True if keys are stored whole, rather than hashed."""
        return self._places is not None

    def of(self, rows: pa.Table) -> Keys:
        """Return the keys of rows in the form that `build_segment` takes; a null counts as its column's default
        value."""
        high, low = np.zeros(rows.num_rows, np.uint64), np.zeros(rows.num_rows, np.uint64)
        if self._places is None:
            self._hash(rows, high, low)
        else:
            for field, (word, shift) in zip(self.fields, self._places, strict=True):
                (high, low)[word][:] |= _bits(field, _filled(field, rows)) << np.uint64(shift)
            high ^= _SALT[0]
            low ^= _SALT[1]
            mix_pairs(high, low)
        return Keys(high.view(np.int64), low.view(np.int64))

    def _hash(self, rows: pa.Table, high: Words, low: Words) -> None:
        high ^= _SALT[0]
        low ^= _SALT[1]
        for field in self.fields:
            column = _filled(field, rows)
            if field.type in KEY_BYTES:
                high ^= _bits(field, column)
            else:
                more = np.empty_like(high), np.empty_like(low)
                offsets, data = map(read_only, buffers_of(column))
                hash_spans_twice(data, offsets, _SALT[2:], *more)
                high ^= more[0]
                low ^= more[1]
            mix_pairs(high, low)


def joined(parts: Sequence[Keys]) -> Keys:
    """Concatenate keys."""
    return Keys(np.concatenate([part.high for part in parts]), np.concatenate([part.low for part in parts]))


def _filled(field: FieldSpec, rows: pa.Table) -> pa.Array:
    column = rows.column(field.name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return pc.fill_null(column, pa.scalar(field.default_value, column.type)) if column.null_count else column


def _bits(field: FieldSpec, column: pa.Array) -> Words:
    """Return the bits of each value."""
    if field.type is TypeName.BOOLEAN:
        return np.asarray(column.cast(pa.uint8())).astype(np.uint64)
    if field.type is TypeName.TIMESTAMP:
        column = column.cast(pa.int64())
    values = np.asarray(column)
    bits: Words = values.view(_UNSIGNED[values.dtype.itemsize]).astype(np.uint64)
    return bits
