"""Compilation of kernels with numba: every kernel is compiled by the decorator of this module.

Kernels are `nogil`, so that segments of a query run side by side on the server's threads. They are never `parallel`,
whose threads would compete with the segment pool. They are kept on disk (`machine_code`), because a cold query must not
wait seconds for LLVM. Under `NUMBA_DISABLE_JIT=1` kernels run as plain Python, for coverage and debuggers.

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
"""True if kernels run as plain Python."""

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
    """Let one process compile a kernel that several need at the same time; the others load it."""
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
    """Let writable arrays use the code for read-only arrays, if that is compiled.

    To numba they are two types, though their memory layout and machine code are the same: a kernel of four arguments
    would be compiled up to sixteen times. Read-only arrays never use the code for writable ones: it might write."""
    load_or_compile = dispatcher._compile_for_args
    shared: set[tuple[Any, ...]] = set()
    """Types that use the code of other types."""

    def find(*arguments: Any, **named: Any) -> Any:
        # Several threads may be here for the same types. If code is listed for types twice, it is ambiguous to numba,
        # which then asks here at every call: a hundred times the cost of the call.
        with compile_time.counted(), global_compiler_lock:
            given = tuple(dispatcher.typeof_pyval(argument) for argument in arguments)
            fitting = _fitting(dispatcher.overloads, given) or dispatcher._cache.fitting(given)
            if fitting is None:
                return load_or_compile(*arguments, **named)
            code = dispatcher.compile(fitting)
            if fitting != given and given not in shared:
                dispatcher._insert([type_._code for type_ in given], code, False)
                shared.add(given)
            return code

    dispatcher._compile_for_args = find


def _fitting(every: Iterable[tuple[Any, ...]], given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return compiled types whose code takes arguments of the given types; the given types if they are among them."""
    matches = [
        compiled for compiled in list(every) if len(compiled) == len(given) and all(map(_takes, compiled, given))
    ]
    return given if given in matches else next(iter(matches), None)


def _takes(compiled: Any, given: Any) -> bool:
    """Return True if code for one type takes arguments of another."""
    if compiled == given:
        return True
    is_array = isinstance(compiled, types.Array) and isinstance(given, types.Array)
    return is_array and given.mutable and compiled == given.copy(readonly=True)


class _Compilations(event.Listener):
    """Counter of what LLVM is asked to compile. Code that is loaded from disk does not count."""

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        _LOG.info("kernel is not compiled yet, who needs it waits kernel=%s.%s", function.__module__, function.__name__)

    def on_end(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not function.__module__.startswith("merlot."):
            return  # a function of numba's own, which one of our kernels calls
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        telemetry.KERNEL_COMPILATIONS.labels(name).inc()
        _LOG.info("kernel compiled kernel=%s types=%s", name, ", ".join(map(str, event.data["args"])))


cast(Any, event).register("numba:compile", _Compilations())


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, as a segment's column is, so that a kernel is compiled for read-only arrays alone."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
