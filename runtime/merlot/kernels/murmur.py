"""Kafka's murmur2 over many strings, by which most partitioned tables are partitioned."""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

_MULTIPLIER = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


@kernel
def murmur2(offsets: NDArray[np.int64], data: NDArray[np.uint8], out: NDArray[np.uint32]) -> None:
    """Hash each string data[offsets[k] : offsets[k + 1]], 32 bits unsigned; out (len(offsets) - 1,)."""
    for position in range(out.shape[0]):
        start = offsets[position]
        stop = offsets[position + 1]
        hashed = _SEED ^ np.uint32(stop - start)
        while stop - start >= 4:
            block = np.uint32(data[start]) | np.uint32(data[start + 1]) << np.uint32(8)
            block |= np.uint32(data[start + 2]) << np.uint32(16) | np.uint32(data[start + 3]) << np.uint32(24)
            block = np.uint32(block * _MULTIPLIER)
            block = np.uint32((block ^ (block >> np.uint32(24))) * _MULTIPLIER)
            hashed = np.uint32(np.uint32(hashed * _MULTIPLIER) ^ block)
            start += 4
        if start < stop:
            block = np.uint32(0)
            for place in range(stop - start):
                block |= np.uint32(data[start + place]) << np.uint32(8 * place)
            hashed = np.uint32((hashed ^ block) * _MULTIPLIER)
        hashed = np.uint32((hashed ^ (hashed >> np.uint32(13))) * _MULTIPLIER)
        out[position] = hashed ^ (hashed >> np.uint32(15))
