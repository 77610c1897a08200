"""A kernel that walks Avro records of any schema without decoding their values.

Before a C library reads a record, the kernel checks that the record is not nested too deeply, that its bytes bound the
sizes of its lists and maps, and that its decimals are short. A schema is a table of nodes, each a row of an operation
and its operands.
"""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.avro_scan import BOOLEAN, DOUBLE, ENUM, FLOAT, NOTHING, STRING, VARINT, Bytes, Longs, varint
from merlot.kernels.jit import kernel

RECORD, UNION, ARRAY, MAP, DECIMAL = range(8, 13)
"""Operations in addition to those of `avro_scan`.

Operands of RECORD and UNION: first child and number of children; of ARRAY and MAP: the node of an item; of FIXED: its
bytes; of DECIMAL: its most bytes; of ENUM: its number of symbols."""
MAX_DEPTH = 100
"""Deepest nesting of values; the library reads 500 levels on the stack of a thread."""
SPARE_ITEMS = 1_000
"""Items of lists and maps beyond one per byte, for items that take no bytes, such as nulls."""
SPARE_VALUES = 100_000
VALUES_PER_BYTE = 16
"""Values per byte that a record may have in addition to SPARE_VALUES; fields that take no bytes are values too."""


@kernel
def _is_bounded(
    data: Bytes, at: int, end: int, nodes: NDArray[np.int64], children: Longs, frames: NDArray[np.int64]
) -> bool:
    items_left = end - at + SPARE_ITEMS
    values_left = (end - at) * VALUES_PER_BYTE + SPARE_VALUES
    node, depth = 0, 0
    while True:
        # Read the value of `node`, and enter it if it holds other values.
        values_left -= 1
        if values_left < 0:
            return False
        operation, first, count = nodes[node, 0], nodes[node, 1], nodes[node, 2]
        if operation in (RECORD, ARRAY, MAP):
            if depth == MAX_DEPTH:
                return False
            frames[depth, 0], frames[depth, 1] = node, 0
            depth += 1
        elif operation == UNION:
            branch, at = varint(data, at, end)
            if at < 0 or branch < 0 or branch >= count:
                return False
            node = children[first + branch]
            continue
        elif operation in (VARINT, ENUM):
            number, at = varint(data, at, end)
            if at < 0 or (operation == ENUM and (number < 0 or number >= first)):
                return False
        elif operation != NOTHING:
            length = 1 if operation == BOOLEAN else 4 if operation == FLOAT else 8 if operation == DOUBLE else first
            if operation in (STRING, DECIMAL):
                length, at = varint(data, at, end)
                if at < 0 or (operation == DECIMAL and length > first):
                    return False
            if length < 0 or length > end - at:
                return False
            at += length
        # Find the value that follows.
        while True:
            if depth == 0:
                return at == end
            node, done = frames[depth - 1, 0], frames[depth - 1, 1]
            operation, first, count = nodes[node, 0], nodes[node, 1], nodes[node, 2]
            if operation == RECORD:
                if done < count:
                    frames[depth - 1, 1] = done + 1
                    node = children[first + done]
                    break
                depth -= 1
                continue
            if done == 0:
                # A block of items: a negative count is followed by the block's bytes.
                done, at = varint(data, at, end)
                if at < 0:
                    return False
                if done < 0:
                    if done < -items_left:
                        return False
                    done = -done
                    _, at = varint(data, at, end)
                    if at < 0:
                        return False
                if done > items_left:
                    return False
                items_left -= done
                if done == 0:
                    depth -= 1
                    continue
            frames[depth - 1, 1] = done - 1
            if operation == MAP:
                length, at = varint(data, at, end)
                if at < 0 or length < 0 or length > end - at:
                    return False
                at += length
            # The last item of a block leaves 0, after which the next block is read.
            node = first
            break


@kernel
def find_unbounded(
    data: Bytes,
    begins: Longs,
    ends: Longs,
    nodes: NDArray[np.int64],
    children: Longs,
    frames: NDArray[np.int64],
    bad: Bytes,
) -> int:
    """Find records that no library should read.

    data: the records; record i is data[begins[i]:ends[i]]. nodes, children: the schema, whose root is node 0. frames:
    scratch, MAX_DEPTH rows of two. bad, 0 on entry, written: 1 for records that are nested deeper than MAX_DEPTH, have
    more items or values than their bytes allow, have a decimal of too many bytes, or are malformed. Returns the number
    of bad records."""
    num_bad = 0
    for row in range(len(begins)):
        if not _is_bounded(data, begins[row], ends[row], nodes, children, frames):
            bad[row] = 1
            num_bad += 1
    return num_bad
