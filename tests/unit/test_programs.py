"""A program in a group of its own, and what programs inherit from whoever starts them."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from merlot import programs

ROOT = Path(__file__).resolve().parents[2]


def test_the_exit_code_is_told() -> None:
    assert programs.run_group([sys.executable, "-c", "raise SystemExit(3)"]) == 3


def test_an_interrupt_in_the_middle_of_a_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def start_and_interrupt(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(start(*arguments, **options))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(subprocess, "Popen", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        programs.run_group([sys.executable, "-c", "import signal; signal.pause()"])
    with pytest.raises(ProcessLookupError):
        os.killpg(started[0].pid, 0)
    assert started[0].returncode == -signal.SIGKILL
    assert signal.getsignal(signal.SIGTERM) == handler


@pytest.mark.parametrize("is_failing", [False, True])
@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]])
def test_signals_of_a_block_come_after_it_also_if_it_raises(signals: list[signal.Signals], is_failing: bool) -> None:
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt(number)

    def interrupted() -> None:
        with programs.postponed_signals():
            for number in signals:
                signal.raise_signal(number)
            assert came == []
            if is_failing:
                raise RuntimeError("no such program")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert came == signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_tests_in_the_background_of_a_shell_can_interrupt_what_they_start() -> None:
    """Where the shell has Ctrl-C ignored, as with `make test &`, in every program that inherits it."""
    tests = [
        "tests/unit/cli/test_cli_query.py::test_interrupt_ends_quietly",
        "tests/unit/test_programs.py::test_an_interrupt_in_the_middle_of_a_start_leaves_no_process",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests]
    shell = ["sh", "-c", f"trap '' INT TERM; exec {shlex.join(command)}"]
    done = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
