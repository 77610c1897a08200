"""The one door to numba: how every kernel is compiled, and the few instructions that numba does not expose.

`nogil`, so that segments of a query run side by side on the server's threads; never `parallel`, whose threads would
fight the segment pool; cached on disk, because a cold query must not wait seconds for LLVM. `cache` and
multiprocessing do not mix: warm the kernels in one process before forking others. Under `NUMBA_DISABLE_JIT=1` kernels
run as plain Python, for coverage and debuggers.

Every compilation is counted and logged: on a server, after its start, there should be none.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import event, types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic
from numpy.typing import NDArray

from merlot import telemetry

_LOG = logging.getLogger(__name__)
_HERE = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call per argument types, read-only or not."""
    dispatcher = numba.njit(nogil=True, cache=True, boundscheck=False)(function)
    if not cast(Any, numba.config).DISABLE_JIT:
        _follow_imports(dispatcher)
        _share_read_only(dispatcher)
    return cast(Callable[P, R], dispatcher)


def _follow_imports(dispatcher: Any) -> None:
    """Have code on disk be stale, too, where this module changed or one that has kernels which this one calls: numba
    looks at a kernel's own file alone, and would keep what it took from others."""
    file = dispatcher._cache._cache_file
    known = dispatcher.py_func.__globals__.values()
    callees = [
        one for one in known if hasattr(one, "py_func") and one.py_func.__module__ != dispatcher.py_func.__module__
    ]
    stamps = {repr(one._cache._cache_file._source_stamp) for one in callees}
    file._source_stamp = (file._source_stamp, _HERE, *sorted(stamps))


def _share_read_only(dispatcher: Any) -> None:
    """Have arrays that may be written take the code of arrays that may not, where that was compiled.

    To numba they are two types, though their layout in memory and their machine code are the same: a kernel of four
    arguments would be compiled up to sixteen times. Never the other way round: the code might write."""
    load_or_compile = dispatcher._compile_for_args
    shared: set[tuple[Any, ...]] = set()
    """Types that take other types' code."""

    def find(*arguments: Any, **named: Any) -> Any:
        # Several threads may be here for the same types. Code that is listed for them twice is ambiguous to numba,
        # which then asks here at every call, for a hundred times what the call takes.
        with global_compiler_lock:
            given = tuple(dispatcher.typeof_pyval(argument) for argument in arguments)
            fitting = _fitting(dispatcher.overloads, given) or _fitting(_on_disk(dispatcher, given), given)
            if fitting is None:
                return load_or_compile(*arguments, **named)
            code = dispatcher.compile(fitting)
            if fitting != given and given not in shared:
                dispatcher._insert([one._code for one in given], code, False)
                shared.add(given)
            return code

    dispatcher._compile_for_args = find


def _on_disk(dispatcher: Any, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Types of arguments for which code is kept that this processor can run."""
    cache = dispatcher._cache
    _, *made_for = cache._index_key(given, dispatcher.targetctx.codegen())
    return [known for known, *others in cache._cache_file._load_index() if others == made_for]


def _fitting(every: Iterable[tuple[Any, ...]], given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Types whose code takes arguments of the given ones: these themselves, if they are among them."""
    found = [known for known in list(every) if len(known) == len(given) and all(map(_takes, known, given))]
    return given if given in found else next(iter(found), None)


def _takes(known: Any, given: Any) -> bool:
    """Whether code for a type serves another."""
    if known == given:
        return True
    is_array = isinstance(known, types.Array) and isinstance(given, types.Array)
    return is_array and given.mutable and known == given.copy(readonly=True)


class _Compilations(event.Listener):
    """Counts what LLVM is asked for; code that is loaded from disk is none of it."""

    def on_start(self, event: Any) -> None:
        pass

    def on_end(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not function.__module__.startswith("merlot."):
            return  # what numba compiles for itself, within one of ours
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        telemetry.KERNEL_COMPILATIONS.labels(name).inc()
        _LOG.info("kernel compiled kernel=%s types=%s", name, ", ".join(map(str, event.data["args"])))


cast(Any, event).register("numba:compile", _Compilations())


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that looks like a segment's column, so that a kernel is compiled for those alone."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


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
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), byte, ir.IntType(32)(0))
            every = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64))
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
        """Index of the lowest set bit of a u64 that is not zero."""
        return (int(word) & -int(word)).bit_length() - 1

    def highest_bit(word: int) -> int:
        """Index of the highest set bit of a u64 that is not zero."""
        return int(word).bit_length() - 1

    def count_bits(word: int) -> int:
        """Number of set bits of a u64."""
        return int(word).bit_count()

    def load_word(data: Any, place: Any) -> Any:
        """data[place:place + 8], of bytes, as a u64, the first lowest; the caller knows that there are as many."""
        return data[place : place + 8].view("<u8")[0]

    def pairs(data: Any, place: Any, first: Any, gap: Any, last: Any) -> Any:
        """A u64, bit k of which says whether data[place + k], of bytes, is first and data[place + gap + k] is last, for
        each k < 64; the caller knows that there are as many."""
        both = (data[place : place + 64] == first) & (data[place + gap : place + gap + 64] == last)
        return np.packbits(both, bitorder="little").view("<u8")[0]

else:

    @kernel
    def lowest_bit(word: int) -> int:
        """Index of the lowest set bit of a u64 that is not zero."""
        place: int = _cttz(word)
        return place

    @kernel
    def highest_bit(word: int) -> int:
        """Index of the highest set bit of a u64 that is not zero."""
        place: int = 63 - _ctlz(word)
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

    @kernel
    def pairs(data: Any, place: Any, first: Any, gap: Any, last: Any) -> Any:
        """A u64, bit k of which says whether data[place + k], of bytes, is first and data[place + gap + k] is last, for
        each k < 64; the caller knows that there are as many."""
        return _pairs(data, place, first, gap, last)


@kernel
def load_bytes(data: Any, start: Any, stop: Any) -> Any:
    """data[start:stop], up to eight bytes, as a u64, the first lowest."""
    word = np.uint64(0)
    for place in range(stop - start):
        word |= np.uint64(data[start + place]) << np.uint64(8 * place)
    return word
