"""Concatenate a column of several segments: values, dictionaries with their ids, offsets and nulls.

Dictionaries are merged by their entries alone; then each id costs one look-up in a table, whatever its value is. Arrays
that come in are never written to.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import bits
from merlot.kernels.jit import read_only
from merlot.segment.buffers import Array
from merlot.segment.build.coding import DictionaryEncoded, code
from merlot.values.types import TypeName
from merlot.vectors.runs import ends_of

Values: TypeAlias = Array | pa.Array
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def concat_coded(type_name: TypeName, values: Sequence[Values], ids: Sequence[Array]) -> DictionaryEncoded:
    """Merge the dictionaries of the parts; return the ids of all parts by the merged one."""
    entries = code(type_name, concat_values(values))
    table = read_only(entries.ids)
    out = np.empty(sum(map(len, ids)), entries.ids.dtype)
    firsts, rows = ends_of([len(part) for part in values]), ends_of([len(part) for part in ids])
    parts = zip(ids, pairwise(firsts.tolist()), pairwise(rows.tolist()), strict=True)
    for part, (first, last), (start, stop) in parts:
        bits.gather(table[first:last], read_only(part), out[start:stop])
    return DictionaryEncoded(out, entries.values)


def concat_values(parts: Sequence[Values]) -> Values:
    """Concatenate arrays; offsets become 64-bit where 32 bits do not reach."""
    numbers = [part for part in parts if isinstance(part, np.ndarray)]
    if numbers:
        return np.concatenate(numbers)
    texts: Sequence[Any] = parts
    try:
        return pa.concat_arrays(texts)
    except pa.ArrowInvalid:  # too long for 32-bit offsets, or some parts have 64-bit offsets
        return pa.concat_arrays([part.cast(_LARGE.get(part.type, part.type)) for part in texts])


def concat_offsets(parts: Sequence[Array]) -> NDArray[np.int64]:
    """Return the start of each row's elements in the rows of all parts, and the end of the last."""
    return ends_of(np.concatenate([np.diff(part) for part in parts]))


def concat_nulls(parts: Sequence[NDArray[np.bool_] | None], sizes: Sequence[int]) -> NDArray[np.bool_] | None:
    """Return a mask of the rows that are null, in parts of these sizes; None if none is."""
    if all(part is None for part in parts):
        return None
    return np.concatenate(
        [np.zeros(size, np.bool_) if part is None else part for part, size in zip(parts, sizes, strict=True)]
    )
