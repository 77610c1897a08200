"""Kinds of tasks that are made when their first task runs."""

from typing import Any, cast

from merlot.cluster.tasks.queue import EndedTask, TaskRecord
from merlot.minion.control import TaskControl
from merlot.minion.kinds import LateKind

TASK, CONTROL, ENDED = cast(TaskRecord, "task"), cast(TaskControl, "control"), cast(EndedTask, "ended")


class Noted:
    """Kind that notes what it is told to do."""

    max_parallel = 1

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def run(self, task: TaskRecord, control: TaskControl) -> EndedTask:
        self.calls.append(("run", task, control))
        return ENDED

    def undo(self, task: TaskRecord, control: TaskControl) -> None:
        self.calls.append(("undo", task, control))


def test_a_kind_is_made_once_and_by_its_first_task() -> None:
    made: list[Noted] = []

    def make() -> Noted:
        made.append(Noted())
        return made[-1]

    late = LateKind(make, max_parallel=3)
    assert late.max_parallel == 3
    assert made == []
    assert late.run(TASK, CONTROL) is ENDED
    late.undo(TASK, CONTROL)
    assert [one.calls for one in made] == [[("run", TASK, CONTROL), ("undo", TASK, CONTROL)]]
