"""Bound the heap of the C library: few arenas, and free memory given back after much work at once.

glibc makes an arena for every few threads, up to eight per core, and each keeps the memory that was freed in it: 20,000
segments loaded by four threads left 30 MB this way. Other C libraries have no such settings; nothing is done with
them.
"""

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Final

from merlot import cgroups

NUM_HEAPS: Final = 2
_ARENA_MAX: Final = -8
"""M_ARENA_MAX of malloc.h."""


def keep_few_heaps() -> None:
    """Limit the arenas of threads that start from now on."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, NUM_HEAPS)


def total_bytes() -> int:
    """Return the memory that this process may take: the container's limit, or the machine's memory."""
    machine, bound = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), cgroups.memory_bytes()
    return machine if bound is None else min(machine, bound)


def taken_bytes() -> int:
    """Return the anonymous memory of this process: it counts when a container is killed for its limit."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def give_back() -> None:
    """Return free pages to the system. This takes milliseconds, in which other threads may wait for memory."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
