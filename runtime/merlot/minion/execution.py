"""Run one task under its lease, to one of its endings: done, tried again later, set aside, given back or undone.

Blocking, in the task's own thread. Every write carries the fence of the lease: a minion that was frozen while another
one took over the lease writes nothing when it wakes.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.records import InstanceRecord
from merlot.cluster.segments.mutations import TooManyReplacementsError
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import EndedTask, QueuedTask, TaskOutcome, TaskProgress, TaskRecord, TaskState
from merlot.errors import ConflictError, InvalidInputError, MerlotError, NotFoundError, UnavailableError
from merlot.metastore.protocol import Metastore, MetastoreSilentError, Put
from merlot.minion.control import StopReason, TaskControl, TaskStoppedError
from merlot.minion.tuning import MinionTuning
from merlot.uris import redact

_LOG = logging.getLogger(__name__)

_ENDS = 10


class Ending(StrEnum):
    """Ending of a run, for logs and metrics."""

    DONE = "done"
    FAILED = "failed"
    POISONED = "poisoned"
    CANCELLED = "cancelled"
    GIVEN_BACK = "given back"
    LOST = "lost"


class ObsoleteError(ConflictError):
    """Raised if a task has become pointless: its inputs are gone or changed."""


class TaskKind(Protocol):
    """Runs tasks of one kind. Every write carries the control's fence."""

    @property
    def max_parallel(self) -> int:
        """Number of tasks of the kind that a minion runs at the same time."""
        ...

    def run(self, task: TaskRecord, control: TaskControl) -> EndedTask:
        """Run the task to its end, in a thread, and continue whatever an earlier run left; return what to record.

        Raise InvalidInputError if the task cannot be done, ObsoleteError if it need not be done, and another
        MerlotError if it should be tried again later."""
        ...

    def undo(self, task: TaskRecord, control: TaskControl) -> None:
        """Undo what runs of the task have begun, unless the task is complete."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """Runs one leased task."""

    metastore: Metastore
    clock: Clock
    kind: TaskKind
    tuning: MinionTuning = field(default_factory=MinionTuning)

    def execute(self, task_id: str, kind_name: str, control: TaskControl) -> Ending:
        """Run the task if it still exists. A bug in a task ends it as a failure, too."""
        task = queue.find_task(self.metastore, kind_name, task_id)
        if task is None or task.record.state is TaskState.POISONED:
            return Ending.DONE
        try:
            return self._execute(task, control)
        except MerlotError as error:
            # The metastore is silent, or the lease is gone: the next holder of the lease continues.
            _LOG.warning("task is left as it is task=%s cause=%s", task_id, error)
            return Ending.LOST

    def _execute(self, task: QueuedTask, control: TaskControl) -> Ending:
        if task.record.state is TaskState.CANCELLED:
            return self._cancel(task, control, "")
        started_ms = self.clock.now_ms()
        task = self._begun(task, control, started_ms)
        if task.record.state is TaskState.POISONED:
            return Ending.POISONED
        try:
            done = self.kind.run(task.record, control)
        except TaskStoppedError as error:
            return self._stopped(task, control, error.reason)
        except ObsoleteError as error:
            return self._cancel(task, control, str(error))
        except MetastoreSilentError:
            # The task is not to blame, so this is no attempt; nor could an attempt be recorded now.
            raise
        except MerlotError as error:
            return self._failed(task, control, error)
        except Exception as error:  # noqa: BLE001 - the outermost loop of a task
            _LOG.exception("task failed by a bug task=%s", task.record.id)
            return self._failed(task, control, error)
        ended = done.model_copy(
            update={
                "owner": control.owner,
                "started_ms": started_ms,
                "ended_ms": self.clock.now_ms(),
                "attempts": task.record.attempts + 1,
            }
        )
        return self._end(task, ended, control)

    def _begun(self, task: QueuedTask, control: TaskControl, started_ms: int) -> QueuedTask:
        """Record who runs the task. Earlier runs without an ending count as deaths, unless their minions live."""
        record = task.record
        said = queue.progress(self.metastore, record.kind, record.id)
        silent = [] if said is None or not said.owner else [f"{said.owner}@{said.started_ms}"]
        died = tuple(run for run in (*record.broken_off, *silent) if not self._has_survived(run))
        if died != record.broken_off:
            _LOG.warning("runs of a task broke off task=%s runs=%s", record.id, ",".join(died) or "none after all")
            changed = record.model_copy(update={"broken_off": died})
            path = paths.task(record.kind, record.id)
            self.metastore.multi([control.fence, Put(path, changed.to_bytes(), task.version)])
            task = QueuedTask(changed, task.version + 1)
        if len(died) >= self.tuning.max_deaths:
            last = died[-1].rpartition("@")[0]
            poisoned = self._poison(task, control, f"{len(died)} minions died at it, the last one was {last}")
            return QueuedTask(poisoned, task.version + 1)
        progress = TaskProgress(phase="BEGUN", started_ms=started_ms, updated_ms=started_ms, owner=control.owner)
        queue.write_progress(self.metastore, record.kind, record.id, progress)
        return task

    def _has_survived(self, run: str) -> bool:
        """Return whether the process that began a run still lives: it lost its lease, or could not record the run's
        ending."""
        owner, _, begun_ms = run.rpartition("@")
        path = paths.live(owner)
        node = self.metastore.get(path)
        return node is not None and InstanceRecord.from_bytes(node.data, path).started_ms <= int(begun_ms)

    def _stopped(self, task: QueuedTask, control: TaskControl, reason: StopReason) -> Ending:
        if reason is StopReason.LOST:
            return Ending.LOST
        if reason is StopReason.CANCELLED:
            return self._cancel(task, control, "")
        self._forget_progress(task.record)
        return Ending.GIVEN_BACK

    def _max_attempts(self, error: Exception) -> int:
        if isinstance(error, TooManyReplacementsError):
            return 1 << 30  # it ends by itself, with the table's grace period, however long that is
        return self.tuning.max_outages if isinstance(error, UnavailableError) else self.tuning.backoff.most_attempts

    def _failed(self, task: QueuedTask, control: TaskControl, error: Exception) -> Ending:
        if control.stop_reason is not None:
            # The task failed because it was to stop: its files or its lease were taken away.
            return self._stopped(task, control, control.stop_reason)
        text = redact(str(error) or repr(error))
        if isinstance(error, InvalidInputError):
            record = self._poison(task, control, text)
        else:
            text = text if isinstance(error, MerlotError) else f"bug: {error!r}"
            backoff = replace(self.tuning.backoff, most_attempts=self._max_attempts(error))
            record = queue.fail(self.metastore, task, text, self.clock.now_ms(), control.fence, backoff)
        _LOG.warning(
            "task failed task=%s attempts=%d state=%s cause=%s", record.id, record.attempts, record.state, text
        )
        self._forget_progress(record)
        if record.state is not TaskState.POISONED:
            return Ending.FAILED
        self.kind.undo(record, control.undoing())
        return Ending.POISONED

    def _poison(self, task: QueuedTask, control: TaskControl, text: str) -> TaskRecord:
        """Set the task aside at once, because another attempt would fail the same way."""
        return queue.fail(
            self.metastore, task, text, self.clock.now_ms(), control.fence, queue.Backoff(most_attempts=1)
        )

    def _cancel(self, task: QueuedTask, control: TaskControl, reason: str) -> Ending:
        self.kind.undo(task.record, control.undoing())
        ended = EndedTask(
            id=task.record.id,
            outcome=TaskOutcome.CANCELLED,
            level=str(task.record.config.get("level", "")),
            owner=control.owner,
            ended_ms=self.clock.now_ms(),
            attempts=task.record.attempts,
            error=reason,
        )
        _LOG.info("task cancelled task=%s reason=%s", task.record.id, reason or "asked for")
        self._end(task, ended, control)
        return Ending.CANCELLED

    def _end(self, task: QueuedTask, ended: EndedTask, control: TaskControl) -> Ending:
        """Record the ending, even if a cancellation has changed the task's node meanwhile."""
        current: QueuedTask | None = task
        for _ in range(_ENDS):
            if current is None:
                self._forget_progress(task.record)
                return Ending.DONE
            try:
                queue.end(self.metastore, current, ended, control.fence)
                return Ending.DONE
            except (ConflictError, NotFoundError):
                if not control.lease.is_held(self.metastore):
                    raise
                current = queue.find_task(self.metastore, task.record.kind, task.record.id)
        raise ConflictError(f"task cannot be ended, its node changes all the time task={task.record.id}")

    def _forget_progress(self, record: TaskRecord) -> None:
        with contextlib.suppress(NotFoundError):
            self.metastore.delete(paths.task_progress(record.kind, record.id))
