"""Signatures of a column's blocks, as Bloom filters have them: two bits per value in a block's WORDS words."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Prints = NDArray[np.uint64]

WORDS = 1 << 12
_BITS = np.uint64(18)
"""Width of a bit's position in a block's words."""
_SALT = np.uint64(0xD6E8FEB86659FD93)
"""Salt that gives 0 two positions, too."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def fill(numbers: NDArray[Any], block_docs: int, prints: Prints) -> None:
    """Set the bits of all values in the words (B, WORDS) of their blocks; integers of any width."""
    bit, low = np.uint64(1), np.uint64(63)
    for block in range(prints.shape[0]):
        words = prints[block]
        for row in range(block * block_docs, min((block + 1) * block_docs, numbers.shape[0])):
            mixed = (np.uint64(np.int64(numbers[row])) ^ _SALT) * _MIX
            mixed ^= mixed >> np.uint64(32)
            mixed *= _MIX
            first, second = mixed >> (np.uint64(64) - _BITS), (mixed >> np.uint64(20)) & ((bit << _BITS) - bit)
            words[first >> np.uint64(6)] |= bit << (first & low)
            words[second >> np.uint64(6)] |= bit << (second & low)


@kernel
def blocks_with(prints: Prints, wanted: np.int64, blocks: NDArray[np.int64]) -> int:
    """Write the blocks that have both bits of a value, ascending; returns their number. blocks has room for all."""
    bit, low = np.uint64(1), np.uint64(63)
    mixed = (np.uint64(wanted) ^ _SALT) * _MIX
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MIX
    first, second = mixed >> (np.uint64(64) - _BITS), (mixed >> np.uint64(20)) & ((bit << _BITS) - bit)
    num_blocks = 0
    for block in range(prints.shape[0]):
        has_first = (prints[block, first >> np.uint64(6)] >> (first & low)) & bit
        if has_first and (prints[block, second >> np.uint64(6)] >> (second & low)) & bit:
            blocks[num_blocks] = block
            num_blocks += 1
    return num_blocks
