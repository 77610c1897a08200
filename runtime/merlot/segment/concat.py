"""Concatenate a column of several segments: values, dictionaries with their ids, offsets and nulls. Merges use it,
and queries over coalesced segments and star-trees.

Dictionaries are merged by their entries alone; then each id costs one look-up in a table, whatever its value is. Arrays
that come in are never written to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import bits
from merlot.kernels.jit import read_only
from merlot.segment.arrow_types import STORED_DTYPES
from merlot.segment.buffers import Array
from merlot.segment.build.coding import DictionaryEncoded, code
from merlot.segment.index.dictionary import ValueDictionary
from merlot.segment.reader import Reader
from merlot.values.types import TypeName
from merlot.vectors.runs import ends_of

Values: TypeAlias = Array | pa.Array
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRows:
    """Rows of a column, as a segment stores them."""

    num_rows: int
    values: Values
    """Entries of a dictionary, if there are `ids`; else one value per row, or per element of a multi-value row."""
    ids: Array | None = None
    offsets: Array | None = None
    """Start of each row's elements and the end of the last, shape (num_rows + 1,), if the column is multi-value."""
    nulls: NDArray[np.bool_] | None = None
    """Mask of the rows that are null; None if none is."""

    def plain(self) -> Values:
        """Return a value per row, or per element."""
        if self.ids is None:
            return self.values
        return self.values[self.ids] if isinstance(self.values, np.ndarray) else self.values.take(pa.array(self.ids))


def rows_of(reader: Reader, num_docs: int) -> ColumnRows:
    """Read all rows of a segment's column."""
    dictionary = reader.dictionary
    return ColumnRows(
        num_rows=num_docs,
        values=_stored_values(reader) if dictionary is None else entries_of(dictionary),
        ids=None if dictionary is None else reader.dict_ids(),
        offsets=reader.offsets() if reader.multi_value else None,
        nulls=nulls_of(reader, num_docs),
    )


def nulls_of(reader: Reader, num_docs: int) -> NDArray[np.bool_] | None:
    """Return the mask of a column's docs that are null; None if none is."""
    if reader.nulls is None:
        return None
    return np.unpackbits(reader.nulls.view(np.uint8), bitorder="little", count=num_docs).view(np.bool_)


def entries_of(dictionary: ValueDictionary) -> Values:
    """Return the values of a dictionary, by dict id."""
    return dictionary.arrow() if dictionary.numeric is None else dictionary.numeric


def _stored_values(reader: Reader) -> Values:
    return reader.values() if reader.type in STORED_DTYPES else reader.strings()


def concat_columns(type_name: TypeName, parts: Sequence[ColumnRows]) -> ColumnRows:
    """Concatenate the rows of at least one part. The result has a dictionary if every part has one."""
    rows = [part.num_rows for part in parts]
    offsets = [part.offsets for part in parts if part.offsets is not None]
    ids = [part.ids for part in parts if part.ids is not None]
    if len(ids) == len(parts):
        coded = concat_coded(type_name, [part.values for part in parts], ids)
        values, new_ids = coded.values, coded.ids
    else:
        values, new_ids = concat_values([part.plain() for part in parts]), None
    return ColumnRows(
        num_rows=sum(rows),
        values=values,
        ids=new_ids,
        offsets=concat_offsets(offsets) if offsets else None,
        nulls=concat_nulls([part.nulls for part in parts], rows),
    )


def concat_coded(type_name: TypeName, values: Sequence[Values], ids: Sequence[Array]) -> DictionaryEncoded:
    """Merge the dictionaries of the parts; return the merged dictionary, and the ids of all parts in it."""
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
