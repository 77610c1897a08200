"""The one door to numba: how every kernel is compiled.

`nogil`, so that segments of a query run side by side on the server's threads; never `parallel`, whose threads would
fight the segment pool; cached on disk, because a cold query must not wait seconds for LLVM. `cache` and
multiprocessing do not mix: warm the kernels in one process before forking others.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call per argument types."""
    return cast(Callable[P, R], numba.njit(nogil=True, cache=True, boundscheck=False)(function))


def inline_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """As `kernel`, for small bodies that other kernels call in their inner loops."""
    return cast(Callable[P, R], numba.njit(nogil=True, cache=True, boundscheck=False, inline="always")(function))
