"""Registers of UltraLogLog, as hash4j keeps them: 2^p registers of a byte; the first p bits of a hash select one.

A register stands for bits that hashes set. A hash with z leading zeros after its first p bits sets bit p - 1 + z. Its
upper six bits are the number of the highest set bit, its lower two say whether the two bits below that are
set. A register of 0 has seen no hash.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.instructions import highest_bit
from merlot.kernels.jit import kernel

Bytes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]
REGISTER_BITS = 8
"""Width of a register in a note, which is a register's index followed by its value."""
LEAST_P = 3
MOST_P = 26
_REGISTER = (1 << REGISTER_BITS) - 1


@kernel
def bits_of(register: Any) -> Any:
    """Return the bits that a register stands for."""
    value = np.uint64(register)
    if value == 0:
        return np.uint64(0)
    return (np.uint64(4) | (value & np.uint64(3))) << ((value >> np.uint64(2)) - np.uint64(2))


@kernel
def register_of(bits: Any) -> Any:
    """Return the register of bits that are not 0: the highest bit and the two below it.

    The highest bit is at least bit 2; the lower two need not be set."""
    highest = np.uint64(highest_bit(bits))
    return np.uint8((highest << np.uint64(2)) | ((bits >> (highest - np.uint64(2))) & np.uint64(3)))


@kernel
def bit_of(hashed: Any, p: Any) -> Any:
    """Return the bit that a hash sets."""
    rest = (hashed << np.uint64(p)) | ((np.uint64(1) << np.uint64(p)) - np.uint64(1))
    return 62 - highest_bit(rest) + p


@kernel
def offer(hashes: Hashes, groups: NDArray[np.uint32], p: Any, registers: Bytes) -> None:
    """Add hashes to the registers (G << p,) of their groups."""
    for row in range(hashes.shape[0]):
        place = (np.int64(groups[row]) << p) + np.int64(hashes[row] >> np.uint64(64 - p))
        bits = bits_of(registers[place]) | (np.uint64(1) << np.uint64(bit_of(hashes[row], p)))
        registers[place] = register_of(bits)


@kernel
def registers_of(hashes: Hashes, p: Any, out: Bytes) -> None:
    """Write the register that each hash alone gives."""
    for row in range(hashes.shape[0]):
        out[row] = bit_of(hashes[row], p) << 2


@kernel
def join_notes(notes: Places) -> Any:
    """Merge the notes of each register into one, moved to the front; notes ascend. Returns the number of merged
    notes."""
    number = 0
    row = 0
    while row < len(notes):
        place = notes[row] >> REGISTER_BITS
        bits = np.uint64(0)
        while row < len(notes) and notes[row] >> REGISTER_BITS == place:
            bits |= bits_of(notes[row] & _REGISTER)
            row += 1
        notes[number] = (place << REGISTER_BITS) | np.int64(register_of(bits))
        number += 1
    return number


@kernel
def unite(data: Bytes, starts: Places, members: Places, bounds: Places, out: Bytes, out_starts: Places) -> Any:
    """Merge sketches into one per group: a byte that says p, and registers.

    `members` are entries whose bytes begin at `starts`; those of group g are [bounds[g], bounds[g + 1]). `out` has
    zeros, and at out_starts[g] the p of the group, at most the p of each of its members. Returns the position of a
    member with a register that no hashes lead to, else -1."""
    for group in range(len(bounds) - 1):
        for place in range(bounds[group], bounds[group + 1]):
            start, target = starts[members[place]], out_starts[group]
            p = np.int64(data[start])
            if not _is_sound(data, start + 1, p):
                return place
            _take_in(data, start + 1, p, out, target + 1, np.int64(out[target]))
    return -1


@kernel
def _is_sound(data: Bytes, start: Any, p: Any) -> bool:
    """Return True if hashes can lead to these registers: none has a bit below p - 1, the lowest possible."""
    is_sound = True
    for place in range(1 << p):
        above = np.int64(data[start + place]) - (p << 2)
        is_sound &= above >= 4 or above == 0 or above == 2 or above == -4 or data[start + place] == 0
    return is_sound


@kernel
def _take_in(data: Bytes, start: Any, p: Any, out: Bytes, target: Any, to: Any) -> None:
    """Merge 2^p registers into 2^to: the bits that an index loses become the first bits of the rest of a hash."""
    step = p - to
    for place in range(1 << to):
        first = start + (place << step)
        bits = bits_of(out[target + place]) | bits_of(data[first])
        for other in range(1, 1 << step):
            if data[first + other] != 0:
                bits |= np.uint64(1) << np.uint64(p - 2 - highest_bit(other))
        if bits != 0:
            out[target + place] = register_of(bits)
