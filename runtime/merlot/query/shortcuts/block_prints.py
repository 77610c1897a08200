"""Which blocks of a joined column may hold a value: a few bits for each, of its hash, so that a look for one of very
many values passes over nearly all docs. Sixteen bits a doc; one block in seventy is looked at for nothing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import prints as kernels
from merlot.segment.index.zones import BLOCK_DOCS

LEAST_DOCS: Final = 1 << 18
"""Fewer are scanned in tens of microseconds."""
LEAST_VALUES: Final = 1 << 16
"""Of fewer, about every block has one."""
MOST_SHARE: Final = 8
"""One block in so many may have to be looked at; where more have to, a scan of all by all threads is as good."""


class BlockPrints:
    """Of whole numbers, values or dict ids; they are not kept."""

    __slots__ = ("_prints",)

    def __init__(self, numbers: NDArray[Any]) -> None:
        num_blocks = -(-len(numbers) // BLOCK_DOCS)
        self._prints = np.zeros((num_blocks, kernels.WORDS), np.uint64)
        kernels.fill(numbers, BLOCK_DOCS, self._prints)

    def docs(self, numbers: NDArray[Any], wanted: int) -> NDArray[np.uint32] | None:
        """Docs of a number, ascending; None where too many blocks may have it. numbers: those of the prints."""
        blocks = np.empty(len(self._prints), np.int64)
        count = kernels.blocks_with(self._prints, np.int64(wanted), blocks)
        if count * MOST_SHARE > len(blocks):
            return None
        found = [
            np.flatnonzero(numbers[start : start + BLOCK_DOCS] == wanted) + start
            for start in (blocks[:count] * BLOCK_DOCS).tolist()
        ]
        return np.concatenate(found).astype(np.uint32) if found else np.zeros(0, np.uint32)

    @property
    def nbytes(self) -> int:
        """Memory of the bits."""
        return self._prints.nbytes


def worth_having(numbers: NDArray[Any], num_values: int | None) -> BlockPrints | None:
    """Prints of a column; None if a scan is as good. num_values: how many there are, if that is known."""
    if numbers.dtype.kind not in "iu" or len(numbers) < LEAST_DOCS:
        return None
    return BlockPrints(numbers) if num_values is None or num_values >= LEAST_VALUES else None
