"""Run another program in a process group of its own, which is killed if the caller's wait is interrupted."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_group(command: Sequence[str]) -> int:
    """Run a command and return its exit code. If the wait is interrupted, kill the command and all processes of its
    group. The command's input is empty, and its output is discarded; its errors go where the caller's go."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with postponed_signals():
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
        return process.wait()
    except BaseException:
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise


@contextmanager
def postponed_signals() -> Iterator[None]:
    """Postpone Ctrl-C and SIGTERM to the end of the block, also of one that raises. In other threads than the main
    thread this does nothing.

    An interrupted start is hard to undo, and might leave a process running. The signals are not blocked, because a
    child process would inherit that."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    caught: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        caught.append(number)

    previous_handlers = {signum: signal.signal(signum, note) for signum in _SIGNALS}
    try:
        yield
    finally:
        for signum, handler in previous_handlers.items():
            signal.signal(signum, handler)
        with ExitStack() as stack:  # a handler that raises must not keep the next signal
            for number in reversed(caught):
                stack.callback(signal.raise_signal, number)
