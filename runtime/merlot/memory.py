"""The heap of the C library: kept in few pieces, and what is free in it given back after much was done at once.

glibc makes a heap for every few threads, up to eight per core, and each keeps what was freed in it: 20,000 segments
loaded by four threads left 30 MB so. Other C libraries have no such settings, and nothing is done there.
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
    """For threads that are started from now on."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, NUM_HEAPS)


def total_bytes() -> int:
    """Memory that this process may take: the container's, or the machine's."""
    machine, bound = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), cgroups.memory_bytes()
    return machine if bound is None else min(machine, bound)


def taken_bytes() -> int:
    """Memory of this process that is no file's: what counts when a container is killed for its limit."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def give_back() -> None:
    """Hand free pages to the system. Takes milliseconds, in which other threads may wait for memory."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
