"""The quickstart as a user runs it: interrupted, finished, run again."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 500.0
"""Less than a test may take here, so that the processes of one that hangs are ended."""


class Quickstart:
    """Runs of `python -m examples.demos.quickstart` over one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "examples.demos.quickstart",
            "--data",
            str(self._folder),
            "--port",
            "0",
            *arguments,
        ]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def finish(self) -> str:
        process = self.start("--no-serve")
        try:
            output, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        assert process.returncode == 0, output
        return output


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Quickstart:
    return Quickstart(tmp_path_factory.mktemp("quickstart"))


def interrupt_at(process: subprocess.Popen[str], line_part: str, before: Callable[[], None] = lambda: None) -> str:
    """Send Ctrl-C to the whole process group, as a terminal does, once a line has been printed and `before` is done."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line_part in line:
            try:
                before()
            finally:
                os.killpg(process.pid, signal.SIGINT)
            break
    rest, _ = process.communicate(timeout=PATIENCE_S)
    return "".join(seen) + rest


def test_ctrl_c_while_building_ends_in_one_line(quickstart: Quickstart) -> None:
    process = quickstart.start("--no-serve")
    output = interrupt_at(process, "Building one segment per UTC day")
    assert "Run it again: it goes on where it was" in output
    assert "Traceback" not in output
    assert process.returncode == 130


def test_the_run_after_it_completes(quickstart: Quickstart) -> None:
    output = quickstart.finish()
    assert "336,776 rows, 366 segments" in output
    assert "336,776 rows answer queries" in output
    for fact in ("UA 57979 12.11", "2013-02-09 00:00:00 520", "8 10644 1093", "ORD 331 5 719", "MQ 3535 JFK CMH 1137"):
        assert fact in " ".join(output.replace(".00", "").split())


def test_a_second_run_builds_nothing_keeps_others_off_its_folder_and_serves_until_ctrl_c(
    quickstart: Quickstart,
) -> None:
    process = quickstart.start("--serve")
    output = interrupt_at(process, "merlot query", before=lambda: check_folder_in_use(quickstart))
    assert "Nothing to build" in output
    assert "Starting Spark" not in output
    assert "Traceback" not in output
    assert process.returncode == 130


def check_folder_in_use(quickstart: Quickstart) -> None:
    other = quickstart.start("--no-serve")
    output, _ = other.communicate(timeout=PATIENCE_S)
    assert other.returncode == 1
    assert "if another quickstart runs, stop it or give --data another folder" in " ".join(output.split())
    assert "Traceback" not in output
