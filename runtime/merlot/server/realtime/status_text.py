"""Text of what is wrong with a partition: why it is not read, and which steps of its segment fail."""

from __future__ import annotations

from merlot.cluster.consuming.progress import StreamProblem
from merlot.cluster.consuming.steps import Action
from merlot.errors import MerlotError
from merlot.server.realtime.problems import problem_of


class StatusText:
    """Status of a partition. Its thread writes it, any thread reads it."""

    def __init__(self, where: str) -> None:
        self.text = ""
        """Text of the error; empty if nothing is wrong."""
        self.problem = StreamProblem.NONE
        self._where = where
        self._reading = ""
        self._unread = StreamProblem.NONE
        self._steps: dict[str, str] = {}

    def note_reading(self, error: Exception | None, stopped_at: int | None) -> None:
        """Note why nothing is read at the moment, and the bad message behind which nothing is read, if there is one."""
        self._reading = _error_text(error)
        self._unread = StreamProblem.NONE if error is None else problem_of(error)
        if stopped_at is not None:
            self._unread = StreamProblem.BAD_MESSAGE
            self._reading = f"bad message, nothing behind it is consumed {self._where} offset={stopped_at}"
        self._say()

    def failed(self, action: Action, error: str) -> None:
        """Note that a step of the segment has failed. It is shown until the step succeeds, or another replica commits
        the segment."""
        step = type(action).__name__.lower()
        self._steps[step] = f"segment not committed yet {self._where} step={step} cause={error}"
        self._say()

    def done(self, action: Action) -> None:
        """Note that a step has succeeded."""
        self._steps.pop(type(action).__name__.lower(), None)
        self._say()

    def switched(self) -> None:
        """Note that the segment is committed."""
        self._steps.clear()
        self._say()

    def _say(self) -> None:
        self.text = self._reading or next(iter(self._steps.values()), "")
        self.problem = self._unread or (StreamProblem.NOT_COMMITTED if self._steps else StreamProblem.NONE)


def _error_text(error: Exception | None) -> str:
    if error is None:
        return ""
    return str(error) if isinstance(error, MerlotError) else f"internal error {type(error).__name__}"
