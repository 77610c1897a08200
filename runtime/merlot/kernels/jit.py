"""The one door to numba: how every kernel is compiled.

`nogil`, so that segments of a query run side by side on the server's threads; never `parallel`, whose threads would
fight the segment pool; kept on disk (`machine_code`), because a cold query must not wait seconds for LLVM. Under
`NUMBA_DISABLE_JIT=1` kernels run as plain Python, for coverage and debuggers.

Every compilation is counted and logged: on a server, after its start, there should be none.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core import event, types
from numba.core.compiler_lock import global_compiler_lock
from numpy.typing import NDArray

from merlot import telemetry
from merlot.kernels import compile_time
from merlot.kernels.machine_code import Code, types_of

_LOG = logging.getLogger(__name__)

IS_OFF: bool = bool(cast(Any, numba.config).DISABLE_JIT)
"""Kernels are plain Python."""

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call per argument types, read-only or not."""
    dispatcher: Any = cast(Any, numba).njit(nogil=True, boundscheck=False, no_cfunc_wrapper=True)(function)
    if not IS_OFF:
        dispatcher._cache = Code(dispatcher)
        _compile_once(dispatcher)
        _share_read_only(dispatcher)
    return cast(Callable[P, R], dispatcher)


def _compile_once(dispatcher: Any) -> None:
    """Have one process compile what several need at a time; the others load it."""
    load_or_compile = dispatcher.compile

    def compile_or_wait(signature: Any) -> Any:
        given = types_of(signature)
        # The order of the locks is the same for a kernel and for one that it calls: within a process, then between.
        with compile_time.counted(), global_compiler_lock:
            if given in dispatcher.overloads or dispatcher._cache.has(given):
                return load_or_compile(signature)
            with dispatcher._cache.alone(given):
                return load_or_compile(signature)

    dispatcher.compile = compile_or_wait


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
        with compile_time.counted(), global_compiler_lock:
            given = tuple(dispatcher.typeof_pyval(argument) for argument in arguments)
            fitting = _fitting(dispatcher.overloads, given) or dispatcher._cache.fitting(given)
            if fitting is None:
                return load_or_compile(*arguments, **named)
            code = dispatcher.compile(fitting)
            if fitting != given and given not in shared:
                dispatcher._insert([one._code for one in given], code, False)
                shared.add(given)
            return code

    dispatcher._compile_for_args = find


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
        function = event.data["dispatcher"].py_func
        _LOG.info("kernel is not compiled yet, who needs it waits kernel=%s.%s", function.__module__, function.__name__)

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
