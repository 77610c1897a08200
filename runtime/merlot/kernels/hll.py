"""HyperLogLog over raw values, as clearspring's stream-lib computes it: its murmur hashes, and registers by group.

Hashes are 32 bits unsigned. The first log2m bits of a hash select its register. A register is the largest number of
leading zeros, plus one, in the remaining bits of its hashes.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Hashes = NDArray[np.uint32]

_MULTIPLIER = np.uint32(0x5BD1E995)
_SEED = np.uint32(0xFFFFFFFF)


@kernel
def _mixed(block: np.uint32) -> np.uint32:
    product = np.uint32(block * _MULTIPLIER)
    return np.uint32(np.uint32(product ^ (product >> np.uint32(24))) * _MULTIPLIER)


@kernel
def _finished(hashed: np.uint32) -> np.uint32:
    product = np.uint32(np.uint32(hashed ^ (hashed >> np.uint32(13))) * _MULTIPLIER)
    return np.uint32(product ^ (product >> np.uint32(15)))


@kernel
def hash_longs(values: NDArray[np.int64], out: Hashes) -> None:
    """Hash each value as `MurmurHash.hashLong` does; floats are given by their bits."""
    for row in range(values.shape[0]):
        value = np.uint64(values[row])
        hashed = _mixed(np.uint32(value & np.uint64(0xFFFFFFFF)))
        hashed = np.uint32(np.uint32(hashed * _MULTIPLIER) ^ _mixed(np.uint32(value >> np.uint64(32))))
        out[row] = _finished(hashed)


@kernel
def hash_bytes(offsets: NDArray[np.int64], data: NDArray[np.uint8], out: Hashes) -> None:
    """Hash each data[offsets[k] : offsets[k + 1]] as `MurmurHash.hash` does: the bytes after the last block of four are
    signed, and are placed from the end."""
    for row in range(out.shape[0]):
        start = offsets[row]
        stop = offsets[row + 1]
        hashed = np.uint32(_SEED ^ np.uint32(stop - start))
        while stop - start >= 4:
            block = np.uint32(data[start]) | np.uint32(np.uint32(data[start + 1]) << np.uint32(8))
            block |= np.uint32(np.uint32(data[start + 2]) << np.uint32(16))
            block |= np.uint32(np.uint32(data[start + 3]) << np.uint32(24))
            hashed = np.uint32(np.uint32(hashed * _MULTIPLIER) ^ _mixed(np.uint32(block)))
            start += 4
        left = stop - start
        if left > 0:
            for place in range(left):
                signed = np.int64(data[stop - 1 - place])
                if signed > 127:
                    signed -= 256
                hashed = np.uint32(np.int64(hashed) ^ ((signed << np.int64(8 * place)) & np.int64(0xFFFFFFFF)))
            hashed = np.uint32(hashed * _MULTIPLIER)
        out[row] = _finished(hashed)


@kernel
def offer(hashes: Hashes, groups: NDArray[np.uint32], log2m: int, registers: NDArray[np.uint8]) -> None:
    """Add hashes to the registers (G << log2m,) of their groups."""
    for row in range(hashes.shape[0]):
        place = (np.int64(groups[row]) << log2m) + (np.int64(hashes[row]) >> (32 - log2m))
        rank = rank_of(hashes[row], log2m)
        if rank > registers[place]:
            registers[place] = rank


@kernel
def rank_of(hashed: np.uint32, log2m: int) -> int:
    """Return the rank of a hash: the number of leading zeros behind its first log2m bits, plus one."""
    rest = ((np.int64(hashed) << log2m) & 0xFFFFFFFF) | ((1 << (log2m - 1)) + 1)
    rank = 1
    while rest < 0x80000000:
        rest <<= 1
        rank += 1
    return rank


@kernel
def ranks(hashes: Hashes, log2m: int, out: NDArray[np.uint8]) -> None:
    """Write `rank_of` each hash."""
    for row in range(hashes.shape[0]):
        out[row] = rank_of(hashes[row], log2m)
