"""Status of a stream's partition: the error that stops reading, and the steps of its segment that fail."""

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
        self._reading_problem = StreamProblem.NONE
        self._steps: dict[str, str] = {}

    def note_reading(self, error: Exception | None, stopped_at: int | None) -> None:
        """Note the error that stops reading, and the offset of a bad message beyond which nothing is read. Each is None
        if there is none."""
        self._reading = _error_text(error)
        self._reading_problem = StreamProblem.NONE if error is None else problem_of(error)
        if stopped_at is not None:
            self._reading_problem = StreamProblem.BAD_MESSAGE
            self._reading = f"bad message, nothing behind it is consumed {self._where} offset={stopped_at}"
        self._refresh()

    def note_failure(self, action: Action, error: str) -> None:
        """Note that a step of the segment has failed. It is shown until the step succeeds, or another replica commits
        the segment."""
        step = type(action).__name__.lower()
        self._steps[step] = f"segment not committed yet {self._where} step={step} cause={error}"
        self._refresh()

    def note_success(self, action: Action) -> None:
        """Note that a step has succeeded."""
        self._steps.pop(type(action).__name__.lower(), None)
        self._refresh()

    def note_committed(self) -> None:
        """Note that the segment is committed."""
        self._steps.clear()
        self._refresh()

    def _refresh(self) -> None:
        self.text = self._reading or next(iter(self._steps.values()), "")
        self.problem = self._reading_problem or (StreamProblem.NOT_COMMITTED if self._steps else StreamProblem.NONE)


def _error_text(error: Exception | None) -> str:
    if error is None:
        return ""
    return str(error) if isinstance(error, MerlotError) else f"internal error {type(error).__name__}"
