"""Run another program in a process group of its own, which ends together with the caller's wait."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_group(command: Sequence[str]) -> int:
    """Run a command and return its exit code. If the wait is interrupted, kill the command and all processes that it
    started."""
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
    """Handle Ctrl-C and SIGTERM that come meanwhile afterwards. An interrupted start is hard to undo, and might leave a
    process running. Blocking the signals would not do, since a child process would inherit that."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    caught: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        caught.append(number)

    before = {handled: signal.signal(handled, note) for handled in _SIGNALS}
    try:
        yield
    finally:
        for handled, handler in before.items():
            signal.signal(handled, handler)
    for number in caught:
        signal.raise_signal(number)
