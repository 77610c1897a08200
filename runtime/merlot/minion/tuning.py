"""Waits and patience of a minion that no deployment has a reason to change, and that tests shorten (ADR 27)."""

from __future__ import annotations

from dataclasses import dataclass, field

from merlot.cluster.tasks.queue import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class MinionTuning:
    """Waits of a minion, in seconds, and its patience with tasks that fail."""

    pause_s: float = 5.0
    """Time between two looks at the queues when no watch fires."""
    look_s: float = 0.5
    """Time between two checks of running tasks."""
    progress_s: float = 1.0
    """Shortest time between two records of a task's progress."""
    load_look_s: float = 1.0
    """Time between two checks whether servers have loaded the outputs of a merge."""
    backoff: Backoff = field(default_factory=Backoff)
    max_deaths: int = 20
    """Number of minions that may die while they run a task; then the task is set aside."""
    max_outages: int = 100
    """Number of attempts while a service that the task needs is unavailable: about eight hours."""
