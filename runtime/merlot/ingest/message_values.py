"""Read fields of a message that are no columns of the table: the same values as text, or as JSON.

If the JSON of a field of several types is wanted, a decoder gives the field as Arrow's JSON (`arrow.json`): what the
message has, with strings in quotes. Other Arrow types determine how their values are written.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from merlot.ingest import arrays, casts, text_casts
from merlot.ingest.source import json_values
from merlot.ingest.source.json_values import RawColumn
from merlot.values.types import TypeName
from merlot.vectors.texts import text_buffers

JSON = pa.json_(pa.string())
"""Type of a field whose values are JSON."""


def as_text(rows: pa.Table, name: str) -> pa.Array:
    """Return a string as it is, any other value as its text; null where there is nothing."""
    values = _plain(rows, name)
    if values.type != JSON:
        return casts.cast(values, TypeName.STRING).values
    offsets, data = text_buffers(values.storage)
    starts = offsets.astype(np.int64)
    return json_values.texts(RawColumn(data[starts[0] : starts[-1]], starts - starts[0]))


def as_json(rows: pa.Table, name: str) -> pa.Array:
    """Return the JSON of each value, a string in quotes; null where there is nothing."""
    values = _plain(rows, name)
    return values.storage if values.type == JSON else text_casts.json_of(values).values


def _plain(rows: pa.Table, name: str) -> pa.Array:
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.string())
    column = rows.column(name)
    return column.combine_chunks() if column.type == JSON else arrays.plain(column)
