"""Mode PARTIAL: rows of a batch merged into the rows of their keys, those of the same batch among them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import upsert as kernels
from merlot.upsert.index import Entries
from merlot.upsert.mergers import Chains, merger_of
from merlot.upsert.rules import Rules

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]
PreviousRows = Callable[[Longs, Longs], pa.Table]
"""The rows of docs, by segment number and doc, in that order."""


def merge(
    rows: pa.Table, rules: Rules, entries: Entries, is_merged: Flags, replaced_row: Longs, previous: PreviousRows
) -> pa.Table:
    """The rows with the values of those that they replace merged in.

    is_merged (N,): rows that replace one, neither of the two a deletion; replaced_row (N,): the row of the batch that
    each one replaces, -1: none of the batch."""
    outside = is_merged & (replaced_row < 0)
    places = entries.replaced[outside]
    before = previous(places >> 32 & kernels.MAX_SEGMENT, places & 0xFFFFFFFF)
    prior = np.where(is_merged, replaced_row + len(places), -1)
    prior[outside] = np.arange(len(places))
    chains = Chains(len(places), prior)
    for name, strategy in rules.strategies.items():
        place = rows.schema.get_field_index(name)
        field = rules.field(name)
        values = _joined(before.column(name), rows.column(name))
        rows = rows.set_column(place, rows.schema.field(place), merger_of(strategy)(field, chains, values))
    return rows


def _joined(before: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.Array:
    chunks = [*before.cast(new.type).chunks, *new.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], new.type)
