"""The one door to numba: how every kernel is compiled, and the three instructions that numba does not expose.

`nogil`, so that segments of a query run side by side on the server's threads; never `parallel`, whose threads would
fight the segment pool; cached on disk, because a cold query must not wait seconds for LLVM. `cache` and
multiprocessing do not mix: warm the kernels in one process before forking others. Under `NUMBA_DISABLE_JIT=1` kernels
run as plain Python, for coverage and debuggers.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call per argument types."""
    return cast(Callable[P, R], numba.njit(nogil=True, cache=True, boundscheck=False)(function))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that looks like a segment's column, so that a kernel is compiled for those alone."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _cttz_intrinsic(_context: Any, word: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

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


_load: Any = intrinsic(_load_intrinsic)
_cttz: Any = intrinsic(_cttz_intrinsic)
_ctpop: Any = intrinsic(_ctpop_intrinsic)

if cast(Any, numba.config).DISABLE_JIT:

    def lowest_bit(word: int) -> int:
        """Index of the lowest set bit of a u64 that is not zero."""
        return (int(word) & -int(word)).bit_length() - 1

    def count_bits(word: int) -> int:
        """Number of set bits of a u64."""
        return int(word).bit_count()

    def load_word(data: Any, place: Any) -> Any:
        """data[place:place + 8], of bytes, as a u64, the first lowest; the caller knows that there are as many."""
        return data[place : place + 8].view("<u8")[0]

else:

    @kernel
    def lowest_bit(word: int) -> int:
        """Index of the lowest set bit of a u64 that is not zero."""
        place: int = _cttz(word)
        return place

    @kernel
    def count_bits(word: int) -> int:
        """Number of set bits of a u64."""
        number: int = _ctpop(word)
        return number

    @kernel
    def load_word(data: Any, place: Any) -> Any:
        """data[place:place + 8], of bytes, as a u64, the first lowest; the caller knows that there are as many."""
        return _load(data, place)
