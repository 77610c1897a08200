"""Cases in a child of bounded memory, each within three seconds of CPU: what ends or holds a process is found there.

Most cases take milliseconds. A machine whose cores are shared takes several times as long as an idle one."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from merlot.kernels import compile_time

MEMORY_BYTES = 512 << 20
CPU_S = 3.0
KILL_S = 30
"""CPU of a case that does not end by itself: the child is ended by a signal. Kernels may be compiled meanwhile."""


def in_child(work: Callable[..., None], *args: Any) -> None:
    """Run it in a process of its own; AssertionError if that ends otherwise than by returning."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])  # later children find most of what they import there
    child = context.Process(target=work, args=args, daemon=True)
    child.start()
    child.join()
    assert child.exitcode == 0, f"child ended with {child.exitcode}"


def bound_memory() -> None:
    """Let this process have 512 MiB beside what it has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES,) * 2)


class Watch:
    """Measures cases, without the time in which kernels are compiled."""

    def __init__(self) -> None:
        self.slow: list[str] = []

    @contextmanager
    def case(self, name: object) -> Iterator[None]:
        """Note a case that takes more than CPU_S, and end the process at one that does not end."""
        started, compiled = _cpu_s(), compile_time.seconds()
        resource.setrlimit(resource.RLIMIT_CPU, (int(started) + 1 + KILL_S, resource.RLIM_INFINITY))
        yield
        spent = _cpu_s() - started - (compile_time.seconds() - compiled)
        if spent > CPU_S:
            self.slow.append(f"{name} took {spent:.1f} s of CPU")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
