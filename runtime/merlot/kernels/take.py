"""Gathers of chosen docs' values by doc id and through a dictionary, into vectors that stay in the cache.

`docs` are u32 doc ids. Columns and dictionaries are borrowed. `out` has one element per doc and the dtype of the column
or dictionary.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Array = NDArray[np.generic]
Docs = NDArray[np.uint32]


@kernel
def take(column: Array, docs: Docs, out: Array) -> None:
    """Write out[k] = column[docs[k]]; the dtype of out may be wider than the column's."""
    for position in range(docs.shape[0]):
        out[position] = column[docs[position]]


@kernel
def look_up(dict_ids: Array, dictionary: Array, out: Array) -> None:
    """Write out[k] = dictionary[dict_ids[k]]."""
    for position in range(dict_ids.shape[0]):
        out[position] = dictionary[dict_ids[position]]


@kernel
def take_look_up(dict_ids: Array, dictionary: Array, docs: Docs, out: Array) -> None:
    """Write out[k] = dictionary[dict_ids[docs[k]]]."""
    for position in range(docs.shape[0]):
        out[position] = dictionary[dict_ids[docs[position]]]


@kernel
def take_bits(words: NDArray[np.uint64], docs: Docs, out: NDArray[np.bool_]) -> None:
    """Write out[k] = bit docs[k] of words."""
    for position in range(docs.shape[0]):
        doc = docs[position]
        out[position] = (words[doc >> np.uint32(6)] >> np.uint64(doc & np.uint32(63))) & np.uint64(1)
