"""Kernels that find the values of Avro records of one flat schema, a batch of messages at once.

A schema is a program: one row for each field, in encoding order. A field is of a primitive type, an enum, a fixed, or a
union of one of these with null. Records within records are flattened.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

NOTHING, BOOLEAN, VARINT, FLOAT, DOUBLE, STRING, FIXED, ENUM = range(8)
"""Operations of a program. STRING reads bytes, too."""
MAX_VARINT_BITS = 63


@kernel
def varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the zigzag number at `at`, and its end; end -1 if there is no number."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        byte = data[at]
        at += 1
        if shift == MAX_VARINT_BITS and byte > 1:
            return 0, -1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return int(np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))), at
        shift += np.uint64(7)
        if shift > MAX_VARINT_BITS:
            return 0, -1
    return 0, -1


@kernel
def _record(
    data: Bytes,
    at: int,
    end: int,
    program: NDArray[np.int64],
    row: int,
    numbers: Longs,
    lengths: NDArray[np.int32],
    valid: Bytes,
) -> bool:
    for step in range(program.shape[0]):
        operation, column = program[step, 0], program[step, 1]
        null_branch, bound = program[step, 2], program[step, 3]
        if null_branch >= 0:
            branch, at = varint(data, at, end)
            if at < 0 or branch < 0 or branch > 1:
                return False
            if branch == null_branch:
                continue
        number, length = 0, 0
        if operation == NOTHING:
            continue
        if operation == BOOLEAN:
            if at >= end or data[at] > 1:
                return False
            number = int(data[at])
            at += 1
        elif operation in (VARINT, ENUM):
            number, at = varint(data, at, end)
            if at < 0 or (bound > 0 and (number < -bound or number >= bound)) or (operation == ENUM and number < 0):
                return False
        elif operation in (FLOAT, DOUBLE):
            width = 4 if operation == FLOAT else 8
            if at + width > end:
                return False
            bits = np.uint64(0)
            for place in range(width):
                bits |= np.uint64(data[at + place]) << np.uint64(8 * place)
            number = int(np.int64(bits))
            at += width
        else:
            length = int(bound)
            if operation == STRING:
                length, at = varint(data, at, end)
                if at < 0 or length < 0:
                    return False
            if length > end - at:
                return False
            number = at
            at += length
        if column >= 0:
            numbers[column, row] = number
            lengths[column, row] = length
            valid[column, row] = 1
    return at == end


@kernel
def find_values(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    program: NDArray[np.int64],
    numbers: Longs,
    lengths: NDArray[np.int32],
    valid: Bytes,
    bad: Bytes,
) -> int:
    """Find the values of records.

    data: the records; record i is data[begins[i]:ends[i]]. program: a row for each field. The row has the operation,
    the column (-1: unwanted), the branch of the field's union that is null (-1: no union), and an operand: the bytes of
    FIXED, the number of symbols of ENUM, or the bound of numbers (0: none). Out, of shape (columns, records): numbers
    (bits of floats, where STRING and FIXED begin), lengths in bytes, valid (0 on entry). bad: 1 for malformed records.
    Returns the number of malformed records."""
    num_bad = 0
    for row in range(len(begins)):
        if not _record(data, begins[row], ends[row], program, row, numbers, lengths, valid):
            bad[row] = 1
            num_bad += 1
    return num_bad


@kernel
def copy_bytes(
    data: Bytes, begins: Longs, lengths: NDArray[np.int32], valid: Bytes, offsets: NDArray[np.int32], out: Bytes
) -> int:
    """Copy the values of one column, one after the other, to `offsets` (records + 1) and `out`, as Arrow has them.

    Returns the number of bytes."""
    used = 0
    for row in range(len(begins)):
        offsets[row] = used
        if valid[row]:
            begin = begins[row]
            for place in range(lengths[row]):
                out[used + place] = data[begin + place]
            used += lengths[row]
    offsets[len(begins)] = used
    return used


@kernel
def read_decimals(
    data: Bytes, begins: Longs, lengths: NDArray[np.int32], valid: Bytes, words: NDArray[np.uint64], bad: Bytes
) -> int:
    """Convert big-endian two's complement numbers to Arrow decimals: two words each, the low word first.

    bad: 1 for numbers of no bytes, or of more than 16. Returns the number of bad numbers."""
    num_bad = 0
    for row in range(len(begins)):
        words[row, 0], words[row, 1] = np.uint64(0), np.uint64(0)
        if not valid[row]:
            continue
        length = lengths[row]
        if length == 0 or length > 16:
            bad[row] = 1
            num_bad += 1
            continue
        sign = np.uint64(0xFFFFFFFFFFFFFFFF) if data[begins[row]] >= 0x80 else np.uint64(0)
        low, high = sign, sign
        for place in range(length):
            high = (high << np.uint64(8)) | (low >> np.uint64(56))
            low = (low << np.uint64(8)) | np.uint64(data[begins[row] + place])
        words[row, 0], words[row, 1] = low, high
    return num_bad
