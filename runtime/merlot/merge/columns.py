"""Columns of rows on their way from inputs to outputs: dictionary-encoded where the inputs have dictionaries.

Dictionaries of many segments are merged by their entries alone; then a row costs one look-up in a table of ids,
whatever its value is. Arrays are borrowed from mapped files where possible and never written to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import bits, take
from merlot.kernels import merge as kernels
from merlot.kernels.jit import read_only
from merlot.segment.arrow_types import STORED_DTYPES
from merlot.segment.build.coding import DictionaryEncoded, code
from merlot.segment.build.rows import BuildColumn, EncodedColumn, StoredColumn
from merlot.segment.concat import ColumnRows, Values, concat_columns
from merlot.segment.index import nulls as null_words
from merlot.segment.index.dict_ids import id_dtype
from merlot.spec.schema import FieldSpec
from merlot.values.types import TypeName
from merlot.vectors.runs import ends_of

Array = NDArray[Any]
Rows = NDArray[np.uint32]
_MANY_VALUES = 4
"""Dictionary entries per row from which on it is cheaper to code the rows that exist than to mark the entries that
occur."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeColumn:
    """One column of several rows, as a segment stores it: nulls hold the default value."""

    field: FieldSpec
    num_rows: int
    values: Values
    """Distinct values, ascending, if there are `ids`; else one value per row, or per element of a multi-value row."""
    ids: Array | None = None
    """Dictionary ids of dtype `id_dtype(len(values))`."""
    offsets: NDArray[np.int64] | None = None
    """Start of each row's elements, and the end of the last row's, if the column is multi-value."""
    nulls: NDArray[np.bool_] | None = None
    every_value_occurs: bool = False

    def take(self, rows: Rows | slice) -> "MergeColumn":
        """Return the rows at these positions, in this order."""
        if isinstance(rows, slice):
            return self if rows == slice(0, self.num_rows) else self._slice(rows.start, rows.stop)
        offsets, flat = self.offsets, self.values if self.ids is None else self.ids
        if offsets is None:
            taken = _take(flat, rows)
            ends = None
        else:
            ends = ends_of((offsets[1:] - offsets[:-1])[rows])
            taken = _take_lists(flat, offsets, rows, ends)
        return self._with(len(rows), taken, ends, None if self.nulls is None else self.nulls[rows])

    def _slice(self, start: int, stop: int) -> "MergeColumn":
        flat, offsets = self.values if self.ids is None else self.ids, self.offsets
        first, last, ends = start, stop, None
        if offsets is not None:
            first, last = int(offsets[start]), int(offsets[stop])
            ends = offsets[start : stop + 1] - first
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return self._with(stop - start, flat[first:last], ends, nulls)

    def _with(
        self, num_rows: int, flat: Values, offsets: NDArray[np.int64] | None, nulls: NDArray[np.bool_] | None
    ) -> "MergeColumn":
        values, ids = (flat, None) if self.ids is None else (self.values, flat)
        return MergeColumn(field=self.field, num_rows=num_rows, values=values, ids=ids, offsets=offsets, nulls=nulls)

    def coded(self) -> "MergeColumn":
        """Return the same rows with a dictionary."""
        if self.ids is not None:
            return self
        coded = code(self.field.type, self.values)
        return self.recoded(coded, every_value_occurs=True)

    def recoded(self, coded: DictionaryEncoded, *, every_value_occurs: bool) -> "MergeColumn":
        """Return the same rows with another dictionary."""
        return MergeColumn(
            field=self.field,
            num_rows=self.num_rows,
            values=coded.values,
            ids=coded.ids,
            offsets=self.offsets,
            nulls=self.nulls,
            every_value_occurs=every_value_occurs,
        )

    def with_dictionary(self, values: Values) -> "MergeColumn":
        """Replace each dictionary entry by another value; several entries may become equal."""
        assert self.ids is not None
        mapped = code(self.field.type, values)
        ids = np.empty(len(self.ids), id_dtype(mapped.cardinality))
        bits.gather(mapped.ids, read_only(self.ids), ids)
        return self.recoded(DictionaryEncoded(ids, mapped.values), every_value_occurs=self.every_value_occurs)

    @property
    def rows(self) -> ColumnRows:
        return ColumnRows(
            num_rows=self.num_rows, values=self.values, ids=self.ids, offsets=self.offsets, nulls=self.nulls
        )

    def for_build(self) -> BuildColumn:
        """Return the input of a segment's builder: values, or a dictionary of only the values that occur."""
        facts: dict[str, Any] = {"field": self.field, "num_docs": self.num_rows, "offsets": None, "nulls": None}
        if self.offsets is not None:
            facts["offsets"] = self.offsets.astype(np.uint32)
        num_nulls = 0 if self.nulls is None else int(np.count_nonzero(self.nulls))
        if num_nulls and self.nulls is not None:
            facts["nulls"] = null_words.words_of(self.nulls)
        if self.ids is None:
            return StoredColumn(**facts, values=self.values, num_nulls=num_nulls)
        return EncodedColumn(**facts, coded=self._compact(self.ids), num_nulls=num_nulls)

    def compact(self) -> "MergeColumn":
        """Return the same rows with a dictionary of only the values that occur."""
        return self if self.ids is None else self.recoded(self._compact(self.ids), every_value_occurs=True)

    def _compact(self, ids: Array) -> DictionaryEncoded:
        values = self.values
        if self.every_value_occurs:
            return DictionaryEncoded(ids, values)
        ids = read_only(ids)
        if len(values) > _MANY_VALUES * len(ids):
            recoded = code(TypeName.INT, ids)
            return DictionaryEncoded(
                recoded.ids,
                values.take(pa.array(recoded.values)) if isinstance(values, pa.Array) else values[recoded.values],
            )
        ranks = np.zeros(len(values), np.uint32)
        bits.mark_present(ids, 0, ranks)
        present = ranks != 0
        cardinality = bits.rank_present(ranks)
        if cardinality == len(values):
            return DictionaryEncoded(ids, values)
        dense = np.empty(len(ids), id_dtype(cardinality))
        bits.lookup_ranks(ids, 0, ranks, dense)
        occurring = values[present] if isinstance(values, np.ndarray) else values.filter(pa.array(present))
        return DictionaryEncoded(dense, occurring)


def concat(pieces: Sequence[MergeColumn]) -> MergeColumn:
    """Concatenate the rows of one field; at least one piece."""
    if len(pieces) == 1:
        return pieces[0]
    whole = concat_columns(pieces[0].field.type, [piece.rows for piece in pieces])
    return MergeColumn(
        field=pieces[0].field,
        num_rows=whole.num_rows,
        values=whole.values,
        ids=whole.ids,
        offsets=whole.offsets,
        nulls=whole.nulls,
        every_value_occurs=whole.ids is not None and all(piece.every_value_occurs for piece in pieces),
    )


def fixed_dtype(field: FieldSpec) -> np.dtype[Any] | None:
    """Return the dtype of a field's values; None for text and bytes."""
    return STORED_DTYPES.get(field.type)


def _take(flat: Values, rows: Rows) -> Values:
    if not isinstance(flat, np.ndarray):
        return flat.take(pa.array(rows))
    out = np.empty(len(rows), flat.dtype)
    take.take(read_only(flat), rows, out)
    return out


def _take_lists(flat: Values, offsets: NDArray[np.int64], rows: Rows, ends: NDArray[np.int64]) -> Values:
    if isinstance(flat, np.ndarray):
        out = np.empty(int(ends[-1]), flat.dtype)
        kernels.take_lists(read_only(flat), offsets, rows, ends, out)
        return out
    places = np.empty(int(ends[-1]), np.int64)
    kernels.take_lists(read_only(np.arange(len(flat), dtype=np.int64)), offsets, rows, ends, places)
    return flat.take(pa.array(places))
