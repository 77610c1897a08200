"""Instructions that numba does not expose, and small functions on machine words that are made of them."""

from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

from merlot.kernels.jit import kernel


def _cttz_intrinsic(_context: Any, word: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return numba.int64(word), generate


def _ctlz_intrinsic(_context: Any, word: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return numba.int64(word), generate


def _ctpop_intrinsic(_context: Any, word: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return numba.int64(word), generate


def _load_intrinsic(_context: Any, data: Any, place: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        start = builder.gep(array.data, [arguments[1]])
        word = builder.load(builder.bitcast(start, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return numba.uint64(data, numba.int64), generate


def _pairs_intrinsic(_context: Any, data: Any, place: Any, first: Any, gap: Any, last: Any) -> Any:
    vector = ir.VectorType(ir.IntType(8), 64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        _, begin, head, distance, tail = arguments

        def equal(place: Any, byte: Any) -> Any:
            bytes_ = builder.load(builder.bitcast(builder.gep(array.data, [place]), vector.as_pointer()))
            bytes_.align = 1
            lane = builder.insert_element(ir.Constant(vector, ir.Undefined), byte, ir.IntType(32)(0))
            every = builder.shuffle_vector(lane, lane, ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64))
            return builder.icmp_unsigned("==", bytes_, every)

        both = builder.and_(equal(begin, head), equal(builder.add(begin, distance), tail))
        return builder.bitcast(both, ir.IntType(64))

    return numba.uint64(data, numba.int64, numba.uint8, numba.int64, numba.uint8), generate


_load: Any = intrinsic(_load_intrinsic)
_pairs: Any = intrinsic(_pairs_intrinsic)
_ctlz: Any = intrinsic(_ctlz_intrinsic)
_cttz: Any = intrinsic(_cttz_intrinsic)
_ctpop: Any = intrinsic(_ctpop_intrinsic)

if cast(Any, numba.config).DISABLE_JIT:

    def lowest_bit(word: int) -> int:
        """Return the index of the lowest set bit of a u64 that is not zero."""
        return (int(word) & -int(word)).bit_length() - 1

    def highest_bit(word: int) -> int:
        """Return the index of the highest set bit of a u64 that is not zero."""
        return int(word).bit_length() - 1

    def count_bits(word: int) -> int:
        """Return the number of set bits of a u64."""
        return int(word).bit_count()

    def load_word(data: Any, place: Any) -> Any:
        """Return data[place:place + 8], u8, as a little-endian u64. The caller guarantees that these bytes exist."""
        return data[place : place + 8].view("<u8")[0]

    def pairs(data: Any, place: Any, first: Any, gap: Any, last: Any) -> Any:
        """Return a u64 whose bit k is set if data[place + k], u8, is first and data[place + gap + k] is last, for each
        k < 64. The caller guarantees that these bytes exist."""
        both = (data[place : place + 64] == first) & (data[place + gap : place + gap + 64] == last)
        return np.packbits(both, bitorder="little").view("<u8")[0]

else:

    @kernel
    def lowest_bit(word: int) -> int:
        """Return the index of the lowest set bit of a u64 that is not zero."""
        place: int = _cttz(word)
        return place

    @kernel
    def highest_bit(word: int) -> int:
        """Return the index of the highest set bit of a u64 that is not zero."""
        place: int = 63 - _ctlz(word)
        return place

    @kernel
    def count_bits(word: int) -> int:
        """Return the number of set bits of a u64."""
        number: int = _ctpop(word)
        return number

    @kernel
    def load_word(data: Any, place: Any) -> Any:
        """Return data[place:place + 8], u8, as a little-endian u64. The caller guarantees that these bytes exist."""
        return _load(data, place)

    @kernel
    def pairs(data: Any, place: Any, first: Any, gap: Any, last: Any) -> Any:
        """Return a u64 whose bit k is set if data[place + k], u8, is first and data[place + gap + k] is last, for each
        k < 64. The caller guarantees that these bytes exist."""
        return _pairs(data, place, first, gap, last)


@kernel
def load_bytes(data: Any, start: Any, stop: Any) -> Any:
    """Return data[start:stop], up to eight bytes, as a little-endian u64."""
    word = np.uint64(0)
    for place in range(stop - start):
        word |= np.uint64(data[start + place]) << np.uint64(8 * place)
    return word
