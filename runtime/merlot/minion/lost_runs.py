"""Pauses of this minion before tasks that its last run left as they were: the run was lost, or could not undo them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from merlot.cluster.tasks.queue import Backoff


@dataclass(frozen=True, slots=True)
class _Pause:
    num_lost: int
    until_ms: int


class LostRuns:
    """Lost runs, counted by task. Used on the event loop."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._pauses: dict[tuple[str, str], _Pause] = {}

    def add(self, kind: str, task_id: str, now_ms: int) -> None:
        """Count a lost run; each pause is twice as long as the one before."""
        pause = self._pauses.get((kind, task_id))
        num_lost = 1 if pause is None else pause.num_lost + 1
        self._pauses[kind, task_id] = _Pause(num_lost, now_ms + self._backoff.pause_ms(num_lost))

    def forget(self, kind: str, task_id: str) -> None:
        """Forget the lost runs of a task, of which another run has ended."""
        self._pauses.pop((kind, task_id), None)

    def forget_others(self, kind: str, queued: Set[str]) -> None:
        """Forget the tasks of a kind that are not queued any longer."""
        self._pauses = {
            (of_kind, task_id): pause
            for (of_kind, task_id), pause in self._pauses.items()
            if of_kind != kind or task_id in queued
        }

    def until_ms(self, kind: str, task_id: str) -> int:
        """Return the time before which the task must not be begun again; -1 if it has no lost run."""
        pause = self._pauses.get((kind, task_id))
        return -1 if pause is None else pause.until_ms
