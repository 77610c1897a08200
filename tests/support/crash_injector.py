"""Run `merlot` so that it kills or freezes itself at an ordered step.

An order is a file beside the process's `--data-dir`, `<data-dir>.order`. It holds a step, how often the step is passed
first, `before` or `after`, and KILL or STOP. The process that reaches the step deletes the file and sends itself the
signal.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from merlot.metastore.zookeeper import ZooKeeperMetastore
from merlot.segment.mutable.consuming import ConsumingSegment
from merlot.server.files import LocalSegmentFiles
from merlot.store.deepstore import DeepStore

WRITE: Final = "write"
STEPS: Final[dict[str, tuple[type, tuple[str, ...]]]] = {
    "seal": (ConsumingSegment, ("seal",)),
    "upload": (DeepStore, ("put",)),
    "adopt": (LocalSegmentFiles, ("adopt",)),
    "commit": (ZooKeeperMetastore, ("multi",)),
    WRITE: (ZooKeeperMetastore, ("create", "put", "delete", "multi")),
}
"""Steps at which a process can be stopped: calls of these methods."""


@dataclass(frozen=True, slots=True)
class CrashOrder:
    """Step at which a process stops, and the signal that stops it."""

    step: str
    skips: int
    is_after: bool
    signal: signal.Signals

    def __str__(self) -> str:
        return f"{self.step} {self.skips} {'after' if self.is_after else 'before'} {self.signal.name}"


def order_of(text: str) -> CrashOrder:
    """Parse an order: the reverse of `str`."""
    step, skips, when, name = text.split()
    return CrashOrder(step, int(skips), when == "after", signal.Signals[name])


def path_of(data_dir: Path) -> Path:
    """Return the path at which a process with this data folder looks for its order."""
    return data_dir.with_name(f"{data_dir.name}.order")


def give(data_dir: Path, order: CrashOrder) -> Path:
    """Give an order to the process with this data folder. Return its file, which is gone once the process has
    obeyed."""
    path = path_of(data_dir)
    whole = path.with_suffix(".part")
    whole.write_text(str(order))
    whole.replace(path)
    return path


class _Victim:
    """Watcher that looks for an order at each step, on any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._reached = 0

    def reach(self, step: str, *, is_after: bool) -> None:
        if not self._path.exists():
            return
        with self._lock:
            try:
                order = order_of(self._path.read_text())
            except FileNotFoundError:
                return
            if (order.step, order.is_after) != (step, is_after):
                return
            self._reached += 1
            if self._reached <= order.skips:
                return
            self._reached = 0
            try:
                self._path.unlink()
            except FileNotFoundError:  # the test has withdrawn the order
                return
        os.kill(os.getpid(), order.signal)


def _watched(victim: _Victim, step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        victim.reach(step, is_after=False)
        result = method(*arguments, **named)
        victim.reach(step, is_after=True)
        return result

    return call


def main() -> None:
    """Run `merlot` with its steps watched."""
    from merlot.cli.main import main as merlot

    victim = _Victim(path_of(Path(sys.argv[sys.argv.index("--data-dir") + 1])))
    for step, (owner, names) in STEPS.items():
        for name in names:
            setattr(owner, name, _watched(victim, step, getattr(owner, name)))
    merlot()


if __name__ == "__main__":
    main()
