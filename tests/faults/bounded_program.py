"""`merlot` with no more memory than its container would have: what a process runs, and a control group that bounds it.

The kernel kills whoever takes more, as it does in a pod.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.support.processes import RoleProcess

from merlot import cgroups

GROUP: Final = "MERLOT_TEST_GROUP"
"""The folder of the control group."""


def _root() -> tuple[Path, str]:
    """Where groups are made, and the file of a group that says how much memory it may take."""
    if (cgroups.ROOT / "memory").is_dir():
        return cgroups.ROOT / "memory", "memory.limit_in_bytes"
    return cgroups.ROOT, "memory.max"


@contextmanager
def memory_group(name: str, num_bytes: int) -> Iterator[Path]:
    """A control group whose processes may take so much together; nobody may be in it when the block ends."""
    root, limit = _root()
    group = root / f"merlot-{os.getpid()}-{name}"
    group.mkdir()
    try:
        (group / limit).write_text(str(num_bytes))
        yield group
    finally:
        group.rmdir()


@functools.cache
def can_bound() -> bool:
    """Whether this machine lets a test make control groups that bound memory."""
    try:
        with memory_group("probe", 1 << 30):
            return True
    except OSError:
        return False


@contextmanager
def bounded(limits: dict[str, tuple[RoleProcess, int]]) -> Iterator[None]:
    """Have processes take so many bytes at most, by name, from their next start on. They end before the block does."""
    with ExitStack() as exits:
        for name, (process, num_bytes) in limits.items():
            group = exits.enter_context(memory_group(name, num_bytes))
            process.program = __name__
            process.environment = {**process.environment, GROUP: str(group)}
        yield


def main() -> None:
    """Join the group, and become a new interpreter: what the fork server has loaded is not counted there."""
    (Path(os.environ[GROUP]) / "cgroup.procs").write_text(str(os.getpid()))
    os.execv(sys.executable, [sys.executable, "-m", "merlot.cli.main", *sys.argv[1:]])


if __name__ == "__main__":
    main()
