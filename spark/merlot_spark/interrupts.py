"""Ctrl-C in a job: the job ends with one line, whatever was interrupted.

A JVM that is left alone at its start prints a stack trace, and outlives the job. Later, py4j logs a traceback for each
call that is interrupted, and for calls that fail after that.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

LOGGERS = (None, "py4j.clientserver", "py4j.java_gateway")
"""Loggers that py4j writes to; None is the root logger, where it logs some errors."""


class PublishInterrupt(KeyboardInterrupt):
    """Ctrl-C while a job publishes: the controller may have got the request, and publishes the segments then."""


def is_news(record: logging.LogRecord) -> bool:
    """Return False if a log record is about an error that an interrupt, or a call that it broke off, has led to: the
    user who pressed Ctrl-C knows."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        if isinstance(error, KeyboardInterrupt | Py4JError):
            return False
        error = error.__context__
    return True


def keep_quiet() -> None:
    """Filter `LOGGERS` by `is_news`. Call this only in a process that runs a single job."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(is_news)


@contextmanager
def postponed_interrupt() -> Iterator[None]:
    """Hold back the first interrupt within the block until its end, also if the block raises; raise a second one at
    once. Main thread only."""
    interrupts: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if interrupts:
            signal.default_int_handler(number, frame)
        interrupts.append(number)

    old_handler = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old_handler)
        if interrupts:
            raise KeyboardInterrupt


def stop(spark: SparkSession) -> None:
    """Stop the session at the end of a job. An interrupt breaks this off and is not raised, so that the job still says
    what it has done; the JVM ends with the process."""
    with suppress(KeyboardInterrupt):
        spark.stop()
