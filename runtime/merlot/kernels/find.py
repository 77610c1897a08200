"""Search for parts of texts, over the bytes of all of them at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import lowest_bit, pairs
from merlot.kernels.jit import kernel

BLOCK = 64


@kernel
def _end_of_others(data: Any, place: Any, end: Any, parts: NDArray[np.uint8], starts: NDArray[np.int64]) -> Any:
    """Return where the last part ends if data[place:end] has all parts but the first, in order; else -1."""
    for number in range(1, starts.shape[0] - 1):
        begin, size = starts[number], starts[number + 1] - starts[number]
        same = 0
        while place + size <= end:
            same = 0
            while same < size and data[place + same] == parts[begin + same]:
                same += 1
            if same == size:
                break
            place += 1
        if place + size > end:
            return -1
        place += size
    return place


@kernel
def find_parts(
    offsets: Any, data: Any, parts: NDArray[np.uint8], starts: NDArray[np.int64], matches: NDArray[np.uint8]
) -> None:
    """Set matches[k] = 1, 0 at first, if text k, data[offsets[k]:offsets[k + 1]], has all parts in order.

    Part p is parts[starts[p]:starts[p + 1]]; none is empty. A block of bytes is searched at once for the first part's
    first byte and, at its distance, its last byte, wherever texts begin in the block. The other bytes are compared only
    where both match. In 78 MB of addresses 'google' takes 6 ms, and 'pogoda', which a fifth of them have, takes 17;
    byte by byte in blocks that have both bytes anywhere, 16 and 62."""
    length = starts[1]
    first, last, gap = parts[0], parts[length - 1], length - 1
    end = np.int64(offsets[offsets.shape[0] - 1])
    block = np.int64(offsets[0])
    row, passed = 0, block
    while block + length <= end:
        if block + BLOCK <= end - gap:
            hits = pairs(data, block, first, gap, last)
        else:
            hits = np.uint64(0)
            for begin in range(block, end - gap):
                if data[begin] == first and data[begin + gap] == last:
                    hits |= np.uint64(1) << np.uint64(begin - block)
        while hits != 0:
            place = block + lowest_bit(hits)
            hits &= hits - np.uint64(1)
            if place < passed:
                continue
            same = 1
            while same < gap and data[place + same] == parts[same]:
                same += 1
            if same < gap:
                continue
            while offsets[row + 1] <= place:
                row += 1
            row_end = np.int64(offsets[row + 1])
            if place + length > row_end:
                continue
            # The text behind the first match of the first part contains what is behind its later matches.
            if _end_of_others(data, place + length, row_end, parts, starts) >= 0:
                matches[row] = 1
            passed = row_end
        block = max(block + BLOCK, passed)
