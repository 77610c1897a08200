"""A copy of the sources to spoil, and pytest over it.

The copy is imported by way of PYTHONPATH, which comes before the editable installation of the virtual environment that
runs this, in pytest and in every process that tests start. Numba's caches are copied with the times of the files that
they are of, so that only a changed kernel is compiled.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.mutants.table import Mutant

PACKAGES = ("runtime", "operator", "spark")
GRACE_S = 30
"""For pytest to end the processes that it started, after Ctrl-C."""
TIMED_OUT = "timed out"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)(?: - (.*))?$", re.MULTILINE)


class Outcome(Enum):
    """What came of a run of pytest."""

    FAILED = "failed"
    PASSED = "passed"
    NONE_RAN = "no test ran"
    BROKEN = "tests could not be collected"


@dataclass(frozen=True)
class Run:
    """One run of pytest, and the first test that failed, or how the process died."""

    outcome: Outcome
    first: str = ""
    why: str = ""


class Scratch:
    """A tree of its own. One run at a time."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """The tree with the defect inside of the block, as it was after it, times of files included."""
        path = self.tree / mutant.file
        before, stat = path.read_bytes(), path.stat()
        path.write_text(mutant.applied_to(before.decode()))
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def run(self, tests: Sequence[str], *, level: str, keyword: str = "", log: Path | None = None) -> Run:
        """Run tests up to the first one that fails."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-x",
            "-q",
            "-rfE",
            "--no-header",
            "-p",
            "no:cacheprovider",
        ]
        command += ["--tb=short", *(("-k", keyword) if keyword else ()), *tests]
        environment = {**os.environ, "PYTHONPATH": self._import_path, "MERLOT_TESTS": level}
        text, status = _output(command, self.tree, environment)
        if log is not None:
            log.write_text(text)
        return _read(text, status)

    @property
    def _import_path(self) -> str:
        return os.pathsep.join(str(self.tree / package) for package in PACKAGES)


def copy_tree(source: Path, target: Path) -> None:
    """Every file that git knows or would take, and the compiled kernels."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=source, check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    paths = [source / name for name in names if name]
    for path in [*paths, *source.glob("runtime/**/__pycache__/*.nb[ic]")]:
        if path.is_file():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)


def _output(command: Sequence[str], tree: Path, environment: dict[str, str]) -> tuple[str, int]:
    """What a command printed, and its exit status. Whatever ends this ends the command first, and all in its group."""
    started = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        return started.communicate()[0], started.returncode
    except BaseException:
        _end(started)
        raise


def _end(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(text: str, status: int) -> Run:
    """The statuses are pytest's: 1 some failed, 2 stopped while collecting, 5 none was selected; below 0 it died."""
    if status == 0:
        return Run(Outcome.PASSED)
    if status == 5:
        return Run(Outcome.NONE_RAN)
    found = _FAILED.search(text)
    if status == 1 and found:
        return Run(Outcome.FAILED, found[1], TIMED_OUT if "from pytest-timeout" in text else found[2] or "")
    if status < 0 or status > 128:
        return Run(Outcome.FAILED, f"the process, which died of signal {abs(status) % 128}", _last_test(text))
    return Run(Outcome.BROKEN, found[1] if found else "", text[-2000:])


def _last_test(text: str) -> str:
    """Where a process was when it died: the innermost line of a test in what faulthandler printed."""
    line = re.search(r'File ".*?(tests/\S+\.py)", line (\d+) in (test_\w+)', text)
    return f"in {line[1]}::{line[3]}" if line else ""
