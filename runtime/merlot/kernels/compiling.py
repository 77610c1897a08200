"""Compile kernels on all cores, each once, and keep the code on disk.

Workers go over the same list and take what nobody else has begun; so do two programs that compile at once, such as two
test runs. What is compiled when a program ends early stays.
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
"""Each takes 200 MB, and half a second until it begins."""
WORTH_A_WORKER = 4
"""Kernels that one worker compiles before another would have begun."""


def is_compiled(case: Case) -> bool:
    """Whether the code of a kernel for the types of some arguments is on disk."""
    if IS_OFF:
        return True
    kernel, given = _typed(case)
    return kernel._cache.fitting(given) is not None


def compile_all(cases: Sequence[Case], command: Sequence[str]) -> int:
    """Have workers, each of which runs the command, compile what is missing; returns how many that were."""
    missing = [case for case in cases if not is_compiled(case)]
    number = min(cores.usable(), MOST_WORKERS, len(missing) // WORTH_A_WORKER)
    if number < 2:
        take_turns(missing, lambda: None)
        return len(missing)
    read, write = os.pipe()
    workers = [subprocess.Popen([*command, str(place * len(cases) // number)], stdout=write) for place in range(number)]
    os.close(write)
    try:
        _show_progress(read, len(missing))
    finally:
        os.close(read)
        for worker in workers:
            worker.terminate()  # has ended already, unless this is the way out of Ctrl-C
            worker.wait()
    take_turns(missing, lambda: None)  # of a worker that failed: its error comes from here
    return len(missing)


def take_turns(cases: Sequence[Case], tell: Callable[[], None]) -> None:
    """Compile what is missing, at last what others have begun; tell of each kernel."""
    # A compiler makes objects that live as long as the code, in a process that ends soon: 1.4 s of CPU, not 1.9.
    gc.disable()
    later = [case for case in cases if not is_compiled(case) and not _compile(case, tell, waits=False)]
    for case in later:
        _compile(case, tell, waits=True)


def _compile(case: Case, tell: Callable[[], None], *, waits: bool) -> bool:
    """False if another process is at it and nobody waits for that."""
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
    """Workers write a byte for each kernel; returns when the last of them has ended."""
    is_terminal, done, shown = sys.stderr.isatty(), 0, 0
    while read := os.read(pipe, 4096):
        done += len(read)
        if is_terminal or done - shown >= number // 4:
            shown = done
            sys.stderr.write(f"  {done} of {number} kernels{chr(13) if is_terminal else chr(10)}")
            sys.stderr.flush()
