"""Numbered cases of a program that one of them may end: it says which case it is at, and what became of each.

Standard output has a line before each case, `case NUMBER`, so that whoever reads it knows which case ended the process;
then the case's outcome; and `failed …` if that is an error that nobody raised on purpose, or if the case took too long.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable

CPU_S = 60
"""A case that takes more seconds of CPU has failed."""


def each_case(numbers: Iterable[int], attempt: Callable[[int], str]) -> None:
    """Attempt each case, and print its outcome; leave no core file of this process from now on."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = _cpu_s()
    for number in numbers:
        print(f"case {number}", flush=True)
        try:
            print(attempt(number), flush=True)
        except Exception as error:  # noqa: BLE001 - an attempt catches what may be raised
            print(failure(error), flush=True)
        now = _cpu_s()
        if now - used > CPU_S:
            print(f"failed slow {now - used:.0f} s of CPU", flush=True)
        used = now


def failure(error: BaseException) -> str:
    """Return an error's type, the line that raised it and the beginning of its text."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = "" if where is None else f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}"
    return f"failed {type(error).__name__} {place} {str(error)[:300]!r}"


def _cpu_s() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime
