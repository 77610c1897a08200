"""Bloom signatures of the blocks of a coalesced column: a few bits of each value's hash.

A search for one of very many values skips nearly all blocks. Signatures take sixteen bits a doc; one block in seventy
is read in vain.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import block_signatures as kernels
from merlot.segment.index.zones import BLOCK_DOCS

LEAST_DOCS: Final = 1 << 18
"""Fewest docs of a column with signatures. Fewer are scanned in tens of microseconds."""
LEAST_VALUES: Final = 1 << 16
"""Fewest distinct values of a column with signatures. With fewer, nearly every block holds each value."""
MOST_SHARE: Final = 8
"""One block in so many may have to be read. If more have to, a scan of all blocks by all threads is as good."""


class BlockSignatures:
    """Signatures of blocks of whole numbers, values or dict ids. The numbers themselves are not kept."""

    __slots__ = ("_signatures",)

    def __init__(self, numbers: NDArray[Any]) -> None:
        num_blocks = -(-len(numbers) // BLOCK_DOCS)
        self._signatures = np.zeros((num_blocks, kernels.WORDS), np.uint64)
        kernels.fill(numbers, BLOCK_DOCS, self._signatures)

    def docs(self, numbers: NDArray[Any], wanted: int) -> NDArray[np.uint32] | None:
        """Return the docs of a number, ascending; None if too many blocks may hold it. `numbers` are those the
        signatures were made from."""
        blocks = np.empty(len(self._signatures), np.int64)
        count = kernels.blocks_with(self._signatures, np.int64(wanted), blocks)
        if count * MOST_SHARE > len(blocks):
            return None
        parts = [
            np.flatnonzero(numbers[start : start + BLOCK_DOCS] == wanted) + start
            for start in (blocks[:count] * BLOCK_DOCS).tolist()
        ]
        return np.concatenate(parts).astype(np.uint32) if parts else np.zeros(0, np.uint32)

    @property
    def nbytes(self) -> int:
        """Memory of the signatures."""
        return self._signatures.nbytes


def worth_having(numbers: NDArray[Any], num_values: int | None) -> BlockSignatures | None:
    """Return signatures of a column; None if a scan is as good. `num_values`: distinct values, if known."""
    if numbers.dtype.kind not in "iu" or len(numbers) < LEAST_DOCS:
        return None
    return BlockSignatures(numbers) if num_values is None or num_values >= LEAST_VALUES else None
