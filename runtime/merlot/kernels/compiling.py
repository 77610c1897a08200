"""Compilation of kernels on all cores, each once; the code is kept on disk.

Workers go over the same list and take kernels that no other process has begun. So do two programs that compile at the
same time, such as two test runs. Code that is compiled before a program is interrupted stays. One thread.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from merlot import cores
from merlot.kernels import machine_code
from merlot.kernels.jit import IS_OFF

Case = tuple[Callable[..., Any], tuple[Any, ...]]
MOST_WORKERS = 16
"""Most workers; a worker takes 200 MB, and half a second to start."""
WORTH_A_WORKER = 4
"""Number of kernels that a worker compiles in the time that another worker needs to start."""


def is_compiled(case: Case) -> bool:
    """Return True if the code of a kernel for the types of some arguments is on disk."""
    if IS_OFF:
        return True
    kernel, given = _typed(case)
    return kernel._cache.fitting(given) is not None


def compile_all(cases: Sequence[Case], command: Sequence[str]) -> int:
    """Compile missing code in worker processes that run `command`; returns the number of missing kernels."""
    missing = [case for case in cases if not is_compiled(case)]
    number = min(cores.usable(), MOST_WORKERS, len(missing) // WORTH_A_WORKER)
    if number < 2:
        take_turns(missing, lambda: None)
        return len(missing)
    read, write = os.pipe()
    workers = [subprocess.Popen(command, stdout=write) for _ in range(number)]
    os.close(write)
    try:
        _show_progress(read, len(missing))
    finally:
        os.close(read)
        for worker in workers:
            worker.terminate()  # it has ended, unless Ctrl-C led here
            worker.wait()
    take_turns(missing, lambda: None)  # raises the error of a worker that failed
    return len(missing)


def take_turns(cases: Sequence[Case], tell: Callable[[], None]) -> None:
    """Compile missing code; kernels that other processes have begun come last. Call `tell` after each kernel."""
    # The compiler makes objects that live as long as the code, and this process ends soon: 1.4 s of CPU, not 1.9.
    gc.disable()
    later = [case for case in cases if not is_compiled(case) and not _compile(case, tell, waits=False)]
    for case in later:
        _compile(case, tell, waits=True)


def _compile(case: Case, tell: Callable[[], None], *, waits: bool) -> bool:
    """Compile one kernel; False if another process is compiling it and `waits` is False."""
    kernel, given = _typed(case)
    with kernel._cache.alone(given, waits=waits) as is_alone:
        if not is_alone and not waits:
            return False
        is_new = not is_compiled(case)
        if is_new:
            kernel.compile(given)
            tell()
    return True


def _typed(case: Case) -> tuple[Any, tuple[Any, ...]]:
    kernel, arguments = case
    dispatcher: Any = kernel
    return dispatcher, machine_code.types_of(tuple(map(dispatcher.typeof_pyval, arguments)))


def _show_progress(pipe: int, number: int) -> None:
    """Show how many kernels are done until the last worker has ended. Workers write a byte for each kernel."""
    is_terminal, done, shown = sys.stderr.isatty(), 0, 0
    while read := os.read(pipe, 4096):
        done += len(read)
        if is_terminal or done - shown >= number // 4:
            shown = done
            sys.stderr.write(f"  {done} of {number} kernels{chr(13) if is_terminal else chr(10)}")
            sys.stderr.flush()
