"""Between a task that runs in a thread and whoever watches over it: stop it, and hear how far it is.

Any thread may call anything here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from merlot.cluster.instances.leases import Lease
from merlot.errors import ConflictError
from merlot.metastore.protocol import Check

CrashPoint = Callable[[str], None]
"""Told the name of each step that a task has reached; tests die there."""


class StopReason(StrEnum):
    """Why a task shall not go on."""

    CANCELLED = "cancelled"
    """Nobody wants it any more: what it began is undone."""
    LOST = "lost"
    """Its lease is gone: another minion runs it, this one must not touch anything."""
    DRAIN = "drain"
    """The minion stops: another one goes on with it."""


class TaskStoppedError(ConflictError):
    """Raised inside a task that was told to stop."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(f"task is stopped reason={reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Said:
    """How far a task is."""

    phase: str = ""
    rows: int = 0
    rows_total: int = 0
    num_bytes: int = 0


class TaskControl:
    """One run of one task."""

    def __init__(self, lease: Lease, *, reached: CrashPoint | None = None) -> None:
        self.lease = lease
        self.reached: CrashPoint = reached or (lambda _: None)
        self._stopping = threading.Event()
        self._reason: StopReason | None = None
        self._lock = threading.Lock()
        self._said = Said()

    @property
    def fence(self) -> Check:
        """What every write of the task carries."""
        return self.lease.fence

    @property
    def owner(self) -> str:
        """The minion."""
        return self.lease.owner

    def stop(self, reason: StopReason) -> None:
        """Have the task end at its next look; the first reason counts, but for a lost lease."""
        with self._lock:
            if self._reason is None or reason is StopReason.LOST:
                self._reason = reason
        self._stopping.set()

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it shall not go on; None if it shall."""
        return self._reason

    def is_stopped(self) -> bool:
        """Whether it shall not go on."""
        return self._stopping.is_set()

    def check(self) -> None:
        """Raises TaskStoppedError if the task shall not go on."""
        if self._reason is not None:
            raise TaskStoppedError(self._reason)

    def pause(self, seconds: float) -> None:
        """Sleep, unless told to stop: then raises TaskStoppedError."""
        self._stopping.wait(seconds)
        self.check()

    def undoing(self) -> TaskControl:
        """A control of the same lease that nobody has stopped: to undo what the task began."""
        return TaskControl(self.lease, reached=self.reached)

    def tell(self, phase: str, *, rows: int = 0, rows_total: int | None = None, num_bytes: int = 0) -> None:
        """Say how far the task is; whoever watches writes it down now and then."""
        with self._lock:
            total = self._said.rows_total if rows_total is None else rows_total
            self._said = Said(phase, rows, total, num_bytes)

    @property
    def said(self) -> Said:
        """What the task said last."""
        return self._said


@dataclass(slots=True)
class Deadline:
    """How long a task waits for others."""

    seconds: float
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether it has waited long enough."""
        return time.monotonic() - self.started > self.seconds
