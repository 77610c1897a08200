"""Kinds of tasks that a minion has by itself.

Each imports its module, and with it the engine, when its first task runs: a minion that waits for tasks takes half the
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from merlot.clock import Clock
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.compactions import UPSERT_COMPACTION
from merlot.cluster.tasks.queue import EndedTask, TaskRecord
from merlot.metastore.protocol import Metastore
from merlot.minion.control import TaskControl
from merlot.minion.execution import TaskKind
from merlot.minion.settings import MergeSettings


class LateKind:
    """A kind of task (see `execution.TaskKind`) that is made when its first task runs, in that task's thread."""

    def __init__(self, make: Callable[[], TaskKind], *, max_parallel: int) -> None:
        self._make = make
        self._max_parallel = max_parallel

    @property
    def max_parallel(self) -> int:
        return self._max_parallel

    def run(self, task: TaskRecord, control: TaskControl) -> EndedTask:
        return self._kind.run(task, control)

    def undo(self, task: TaskRecord, control: TaskControl) -> None:
        self._kind.undo(task, control)

    @cached_property
    def _kind(self) -> TaskKind:
        return self._make()


def own_kinds(metastore: Metastore, clock: Clock, settings: MergeSettings) -> Mapping[str, TaskKind]:
    """Return the kinds by the names of their queues."""

    def merge_rollup() -> TaskKind:
        from merlot.minion.merge_rollup import MergeRollup

        return MergeRollup(metastore, clock, settings)

    def upsert_compaction() -> TaskKind:
        from merlot.minion.compaction import UpsertCompaction

        return UpsertCompaction(metastore, clock, settings)

    return {
        queue.MERGE_ROLLUP: LateKind(merge_rollup, max_parallel=settings.max_parallel),
        UPSERT_COMPACTION: LateKind(upsert_compaction, max_parallel=settings.max_parallel),
    }
