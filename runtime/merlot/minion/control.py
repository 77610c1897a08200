"""Control a task that runs in a thread: stop it, and read its progress. Thread-safe."""

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
"""Function that is called with the name of each step that a task reaches; tests end the process there."""


class StopReason(StrEnum):
    """Reason why a task has to stop."""

    CANCELLED = "cancelled"
    """The task was cancelled: its work is undone."""
    LOST = "lost"
    """The lease is lost: another minion runs the task, and this one must not touch anything."""
    DRAIN = "drain"
    """The minion shuts down: another one continues the task."""


class TaskStoppedError(ConflictError):
    """Raised inside a task that has to stop."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(f"task is stopped reason={reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Said:
    """Progress of a task."""

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
        """Condition that every write of the task carries."""
        return self.lease.fence

    @property
    def owner(self) -> str:
        """Minion that holds the lease."""
        return self.lease.owner

    def stop(self, reason: StopReason) -> None:
        """Ask the task to stop. The first reason stays, unless the lease is lost later."""
        with self._lock:
            if self._reason is None or reason is StopReason.LOST:
                self._reason = reason
        self._stopping.set()

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason to stop; None if the task may go on."""
        return self._reason

    def is_stopped(self) -> bool:
        """Return whether the task has to stop."""
        return self._stopping.is_set()

    def check(self) -> None:
        """Raise TaskStoppedError if the task has to stop."""
        if self._reason is not None:
            raise TaskStoppedError(self._reason)

    def pause(self, seconds: float) -> None:
        """Sleep; raise TaskStoppedError as soon as the task has to stop."""
        self._stopping.wait(seconds)
        self.check()

    def undoing(self) -> TaskControl:
        """Return a control of the same lease that is not stopped, to undo the task with."""
        return TaskControl(self.lease, reached=self.reached)

    def tell(self, phase: str, *, rows: int = 0, rows_total: int | None = None, num_bytes: int = 0) -> None:
        """Report progress; the worker writes it to the metastore now and then."""
        with self._lock:
            total = self._said.rows_total if rows_total is None else rows_total
            self._said = Said(phase, rows, total, num_bytes)

    @property
    def said(self) -> Said:
        """Progress that the task reported last."""
        return self._said


@dataclass(slots=True)
class Deadline:
    """Time limit of a wait for other processes."""

    seconds: float
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() - self.started > self.seconds
