"""Mode PARTIAL: rows of a batch merged into the rows of their keys, those of the same batch among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.kernels import upsert as kernels
from merlot.spec.schema import FieldSpec
from merlot.upsert.index import Entries
from merlot.upsert.mergers import Chains, MergerError, merger_of
from merlot.upsert.rules import Rules

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]
PreviousRows = Callable[[Longs, Longs, Sequence[FieldSpec]], pa.Table]
"""Columns of docs, by segment number and doc, in that order. May raise, as storage does: the partition is of no use
then, and is built anew."""


def merge(
    rows: pa.Table, rules: Rules, entries: Entries, is_merged: Flags, replaced_row: Longs, previous: PreviousRows
) -> pa.Table:
    """The rows with the values of those that they replace merged in.

    is_merged (N,): rows that replace one, neither of the two a deletion; replaced_row (N,): the row of the batch that
    each one replaces, -1: none of the batch."""
    outside = is_merged & (replaced_row < 0)
    places = entries.replaced[outside]
    before = previous(places >> 32 & kernels.MAX_SEGMENT, places & 0xFFFFFFFF, rules.merged)
    prior = np.where(is_merged, replaced_row + len(places), -1)
    prior[outside] = np.arange(len(places))
    chains = Chains(len(places), prior)
    for name, strategy in rules.strategies.items():
        place = rows.schema.get_field_index(name)
        field = rules.field(name)
        values = _joined(field, before.column(name), rows.column(name))
        try:
            merged = merger_of(strategy)(field, chains, values)
        except MergerError as error:
            key = {one.name: rows.column(one.name)[error.row].as_py() for one in rules.keys.fields}
            raise MergerError(f"{error} column={name} key={key}", row=error.row, again=error.again) from error
        rows = rows.set_column(place, rows.schema.field(place), merged)
    return rows


def _joined(field: FieldSpec, before: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.Array:
    chunks = [*before.cast(new.type).chunks, *(_as_stored(field, chunk) for chunk in new.chunks)]
    return pa.concat_arrays(chunks) if chunks else pa.array([], new.type)


def _as_stored(field: FieldSpec, values: pa.Array) -> pa.Array:
    """As the row will be read once it is stored, so that it matters to nobody whether it came in the same batch."""
    flat = values.flatten() if field.multi_value else None
    if flat is None or not flat.null_count:
        return values
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    filled = pc.fill_null(flat, pa.scalar(field.default_value, flat.type))
    return pa.ListArray.from_arrays(offsets, filled, values.type, mask=values.is_null())
