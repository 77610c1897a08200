"""`merlot`, to be killed or frozen at a step of its own choosing: a process that runs this meets what is ordered.

An order is a file beside its `--data-dir`, `<data-dir>.order`: a step, how often it is reached first, `before` or
`after`, KILL or STOP. Whoever reaches the step takes the file away and sends itself the signal.
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
"""What is a step: calls of these methods."""


@dataclass(frozen=True, slots=True)
class Order:
    """What shall happen."""

    step: str
    skips: int
    is_after: bool
    signal: signal.Signals

    def __str__(self) -> str:
        return f"{self.step} {self.skips} {'after' if self.is_after else 'before'} {self.signal.name}"


def order_of(text: str) -> Order:
    """The reverse of `str`."""
    step, skips, when, name = text.split()
    return Order(step, int(skips), when == "after", signal.Signals[name])


def path_of(data_dir: Path) -> Path:
    """Where a process with this data folder looks for its order."""
    return data_dir.with_name(f"{data_dir.name}.order")


def give(data_dir: Path, order: Order) -> Path:
    """Have the process with this data folder meet it; returns the file that is gone once it has."""
    path = path_of(data_dir)
    whole = path.with_suffix(".part")
    whole.write_text(str(order))
    whole.replace(path)
    return path


class _Victim:
    """Looks for an order at each step; any thread."""

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
            except FileNotFoundError:  # whoever ordered it has taken it back
                return
        os.kill(os.getpid(), order.signal)


def _watched(victim: _Victim, step: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        victim.reach(step, is_after=False)
        found = method(*arguments, **named)
        victim.reach(step, is_after=True)
        return found

    return call


def main() -> None:
    """As `merlot`."""
    from merlot.cli.main import main as merlot

    victim = _Victim(path_of(Path(sys.argv[sys.argv.index("--data-dir") + 1])))
    for step, (owner, names) in STEPS.items():
        for name in names:
            setattr(owner, name, _watched(victim, step, getattr(owner, name)))
    merlot()


if __name__ == "__main__":
    main()
