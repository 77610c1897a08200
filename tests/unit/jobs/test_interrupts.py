"""An interrupt that has to wait is not lost, and a second one does not wait."""

import logging
import os
import signal

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from merlot_spark.interrupts import is_news, postponed_interrupt, stop


def interrupted(times: int, steps: list[str]) -> None:
    with postponed_interrupt():
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        steps.append("went on")


@pytest.mark.parametrize(("times", "expected"), [(1, ["went on"]), (2, [])])
def test_the_first_interrupt_is_raised_at_the_end_and_a_second_one_at_once(times: int, expected: list[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(times, steps)
    assert steps == expected
    assert signal.getsignal(signal.SIGINT) is before


def test_without_interrupts_nothing_is_raised() -> None:
    steps: list[str] = []
    interrupted(0, steps)
    assert steps == ["went on"]


@pytest.mark.parametrize(
    ("error", "expected"), [(KeyboardInterrupt(), False), (Py4JNetworkError("gone"), False), (ValueError(), True)]
)
def test_an_interrupted_call_of_the_jvm_is_no_news(error: BaseException, expected: bool) -> None:
    told = (OSError, OSError(), None)
    told[1].__context__ = error
    assert is_news(logging.LogRecord("root", logging.ERROR, "f", 1, "while sending command", (), told)) is expected
    assert is_news(logging.LogRecord("root", logging.ERROR, "f", 1, "without error", (), None))


def test_an_interrupt_comes_also_if_the_block_fails() -> None:
    def fail() -> None:
        with postponed_interrupt():
            signal.raise_signal(signal.SIGINT)
            raise RuntimeError("no session")

    with pytest.raises(KeyboardInterrupt):
        fail()


class SlowSession(SparkSession):
    """Has somebody press Ctrl-C while it stops."""

    def __init__(self) -> None:
        pass

    def stop(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_as_the_session_stops_takes_no_report_from_the_job() -> None:
    stop(SlowSession())
