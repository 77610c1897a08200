"""Ctrl-C in a job: it ends with one line, whatever it interrupts.

A JVM that is left alone at its start prints a stack trace, and outlives the job; later py4j logs a traceback for each
call that is interrupted, and for those that fail since.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

LOGGERS = (None, "py4j.clientserver", "py4j.java_gateway")
"""Some of py4j's errors are logged at the root."""


def is_news(record: logging.LogRecord) -> bool:
    """Whether a log record tells anything that whoever pressed Ctrl-C does not know: of no error that an interrupt, or
    a call that it broke off, has led to."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        if isinstance(error, KeyboardInterrupt | Py4JError):
            return False
        error = error.__context__
    return True


def keep_quiet() -> None:
    """Have the loggers that py4j writes to leave out what is no news. For a process that is one job."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(is_news)


@contextmanager
def held_back() -> Iterator[None]:
    """The first interrupt within the block is raised at its end, a second one at once. Main thread only."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            signal.default_int_handler(number, frame)
        came.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
