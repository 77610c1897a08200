"""How another program is run: in a process group of its own, which ends with whoever waits for it."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_group(command: Sequence[str]) -> int:
    """Exit code of a command; whatever interrupts the wait ends the command and all that it started."""
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
    """Ctrl-C and SIGTERM that come meanwhile are handled afterwards: half of a start is hard to undo, and a process in
    the middle of its own would be left to itself. Blocking would not do, for a child would inherit it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal is handled here
        return
    caught: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        caught.append(number)

    before = {one: signal.signal(one, note) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    for number in caught:
        signal.raise_signal(number)
