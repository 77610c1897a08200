"""CPU seconds of this process and of every process below it."""

import os
import resource
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_LONG_S = 0.5
"""A shorter test starts no process worth a look through /proc, which takes milliseconds."""


class CpuClock:
    """Measures tests that run one after the other in this process."""

    def __init__(self) -> None:
        self._whole = _with_descendants()
        self._own, self._wall = time.process_time(), time.monotonic()
        self._told = 0.0
        """Seconds of short laps since the last look at all processes."""

    def lap(self) -> float:
        """CPU seconds since the last lap; those of other processes count in the first long lap that sees them."""
        own, wall = time.process_time(), time.monotonic()
        if wall - self._wall > _LONG_S:
            whole = _with_descendants()
            spent = max(0.0, whole - self._whole - self._told)
            self._whole, self._told = whole, 0.0
        else:
            spent = own - self._own
            self._told += spent
        self._own, self._wall = own, wall
        return spent


def _own() -> float:
    """CPU seconds of this process and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _with_descendants() -> float:
    """CPU seconds of this process and all its descendants; without /proc, those of `_own`."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        seconds[pid] = sum(map(int, fields[11:15])) / _TICKS
    found, wanted = 0.0, [os.getpid()]
    while wanted:
        pid = wanted.pop()
        found += seconds.get(pid, 0.0)
        wanted += [child for child, parent in parents.items() if parent == pid]
    return found or _own()
