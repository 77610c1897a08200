"""A program in a group of its own."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from merlot import programs


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
