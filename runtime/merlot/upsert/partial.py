"""Mode PARTIAL: merge rows of a batch into the rows of their keys, rows of the same batch included."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from merlot.kernels import upsert as kernels
from merlot.spec.schema import FieldSpec
from merlot.upsert.index import RowEntries
from merlot.upsert.mergers import Chains, MergerError, merger_of
from merlot.upsert.rules import Rules

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]
PreviousRows = Callable[[Longs, Longs, Sequence[FieldSpec]], pa.Table]
"""Reads columns of docs, given segment numbers and docs, in that order. If it raises, as storage may, the partition is
unusable and rebuilt."""


def merge(
    rows: pa.Table, rules: Rules, entries: RowEntries, is_merged: Flags, replaced_row: Longs, previous: PreviousRows
) -> pa.Table:
    """Merge the values of replaced rows into the rows that replace them.

    is_merged (N,): rows that replace another row, where neither is a deletion; replaced_row (N,): the row of the batch
    that each row replaces, -1: none of the batch."""
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
            key = {column: rows.column(column)[error.row].as_py() for column in rules.keys.names}
            raise MergerError(f"{error} column={name} key={key}", row=error.row, again=error.again) from error
        rows = rows.set_column(place, rows.schema.field(place), merged)
    return rows


def _joined(field: FieldSpec, before: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.Array:
    chunks = [*before.cast(new.type).chunks, *(_as_stored(field, chunk) for chunk in new.chunks)]
    return pa.concat_arrays(chunks) if chunks else pa.array([], new.type)


def _as_stored(field: FieldSpec, values: pa.Array) -> pa.Array:
    """Return values as they will be read once stored, so that it makes no difference whether rows came in the same
    batch."""
    flat = values.flatten() if field.multi_value else None
    if flat is None or not flat.null_count:
        return values
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    filled = pc.fill_null(flat, pa.scalar(field.default_value, flat.type))
    return pa.ListArray.from_arrays(offsets, filled, values.type, mask=values.is_null())
