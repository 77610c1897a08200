"""Take tasks from the queues and run them. A child of `/TASKS/{kind}` is a task; the minion that leases it runs it and
deletes it at the end.

If a minion dies, its tasks are free again when its session ends; so tasks are idempotent and fence their writes with
their lease. The worker regularly checks that each running task is still wanted and its lease still held, and records
the task's progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from merlot import telemetry
from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.instances.leases import Lease
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import QueuedTask, TaskProgress, TaskRecord, TaskState
from merlot.errors import MerlotError
from merlot.ids import InstanceId
from merlot.metastore.protocol import Metastore, Watch
from merlot.minion.control import CrashPoint, StopReason, TaskControl
from merlot.minion.execution import Ending, Execution, TaskKind
from merlot.minion.leftovers import sweep
from merlot.minion.lost_runs import LostRuns
from merlot.minion.tuning import MinionTuning
from merlot.wakeups import WakeUp

_LOG = logging.getLogger(__name__)

SWEEP_S = 600.0


@dataclass(slots=True)
class _Running:
    kind: str
    task_id: str
    table: str
    control: TaskControl
    started_ms: int
    written: TaskProgress | None = None
    written_at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of a worker."""

    slots: int = 1
    """Tasks that run at the same time."""
    takes: Callable[[TaskRecord], bool] = lambda _: True
    """Selects the tasks that it runs; other workers run the rest."""
    reached: CrashPoint | None = None
    tuning: MinionTuning = field(default_factory=MinionTuning)


class Worker:
    """Runs up to `slots` tasks at the same time. Used on the event loop."""

    def __init__(
        self,
        metastore: Metastore,
        instance: InstanceId,
        clock: Clock,
        kinds: Mapping[str, TaskKind],
        settings: WorkerSettings | None = None,
    ) -> None:
        settings = settings or WorkerSettings()
        self._metastore = metastore
        self._instance = instance
        self._clock = clock
        self._kinds = kinds
        self._slots = settings.slots
        self._reached = settings.reached
        self._takes = settings.takes
        self._tuning = settings.tuning
        self._running: dict[str, _Running] = {}
        self._lost = LostRuns(settings.tuning.backoff)
        self._jobs: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(settings.slots + 1, thread_name_prefix="merlot-task")
        self._is_draining = False
        self._wake_at_ms: int | None = None
        self._next_sweep = time.monotonic() + SWEEP_S
        self._wake_up: WakeUp | None = None

    @property
    def running(self) -> list[dict[str, Any]]:
        """Running tasks, for people."""
        return [
            {
                "kind": task.kind,
                "id": task.task_id,
                "table": task.table,
                "phase": task.control.said.phase,
                "rows": task.control.said.rows,
                "rowsTotal": task.control.said.rows_total,
                "bytes": task.control.said.num_bytes,
                "startedMs": task.started_ms,
                "stopping": task.control.stop_reason,
            }
            for task in self._running.values()
        ]

    async def run(self) -> None:
        """Run until cancelled. Tasks that have begun continue: see `drain`."""
        wake_up = self._wake_up = WakeUp()
        watches = await asyncio.to_thread(self._watch, wake_up)
        _LOG.info("minion works kinds=%s slots=%d", ",".join(sorted(self._kinds)) or "none", self._slots)
        looking = asyncio.create_task(self._look_after())
        try:
            while True:
                await wake_up.wait(await self._work_off())
        finally:
            looking.cancel()
            for watch in watches:
                watch.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def drain(self, timeout_s: float) -> None:
        """Begin no more tasks, have running tasks given back, and wait for them up to the timeout."""
        self._is_draining = True
        for task in self._running.values():
            task.control.stop(StopReason.DRAIN)
        if self._jobs:
            await asyncio.wait(self._jobs, timeout=timeout_s)
        for task in self._running.values():
            _LOG.warning("task does not stop, its lease ends with the session task=%s", task.task_id)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _watch(self, wake_up: WakeUp) -> list[Watch]:
        return [self._metastore.watch_children(paths.tasks(kind), wake_up.call) for kind in self._kinds]

    async def _work_off(self) -> float:
        """Start the tasks that can be started; return how many seconds to wait for a wake-up."""
        self._wake_at_ms = None
        try:
            for kind in self._kinds:
                await self._start_some(kind)
        except MerlotError as error:
            _LOG.warning("queue not read cause=%s", error)
        return self._wait_s()

    def _wait_s(self) -> float:
        """Return how many seconds to wait: until a task is due, but at most the pause between two looks."""
        if self._wake_at_ms is None:
            return self._tuning.pause_s
        return min(self._tuning.pause_s, max(0.01, (self._wake_at_ms - self._clock.now_ms()) / 1000))

    async def _start_some(self, kind: str) -> None:
        if not self._free_slots(kind):
            return
        queued, unreadable = await asyncio.to_thread(queue.list_readable, self._metastore, kind)
        for task_id, error in unreadable.items():
            _LOG.warning("task is left out task=%s cause=%s", task_id, error)
        telemetry.MINION_QUEUED.labels(kind).set(len(queued) + len(unreadable))
        self._lost.forget_others(kind, queued.keys())
        ids = {*queued, *unreadable}
        for task in sorted(queued.values(), key=_turn):
            if not self._free_slots(kind):
                return
            if queue.whole_of(task.record.id) not in ids and self._is_due(task):
                await self._start_if_free(task)

    def _free_slots(self, kind: str) -> int:
        if self._is_draining:
            return 0
        of_kind = Counter(task.kind for task in self._running.values())[kind]
        return min(self._slots - len(self._running), self._kinds[kind].max_parallel - of_kind)

    def _is_due(self, task: QueuedTask) -> bool:
        record = task.record
        if record.state is TaskState.POISONED or record.id in self._running or not self._takes(record):
            return False
        not_before_ms = max(record.not_before_ms, self._lost.until_ms(record.kind, record.id))
        if not_before_ms <= self._clock.now_ms():
            return True
        self._wake_at_ms = min(not_before_ms, self._wake_at_ms or not_before_ms)
        return False

    async def _start_if_free(self, task: QueuedTask) -> None:
        record = task.record
        name = queue.lease_name(record.kind, record.id)
        lease = await asyncio.to_thread(Lease.acquire, self._metastore, name, str(self._instance), self._clock)
        if lease is None:
            return
        control = TaskControl(lease, reached=self._reached)
        if self._is_draining:
            await asyncio.to_thread(lease.release, self._metastore)
            return
        self._running[record.id] = _Running(record.kind, record.id, record.table, control, self._clock.now_ms())
        telemetry.MINION_RUNNING.labels(record.kind).inc()
        job = asyncio.create_task(self._run(self._running[record.id]))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _run(self, task: _Running) -> None:
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        execution = Execution(self._metastore, self._clock, self._kinds[task.kind], self._tuning)
        _LOG.info("task begins kind=%s task=%s table=%s", task.kind, task.task_id, task.table)
        ending = Ending.LOST
        try:
            ending = await loop.run_in_executor(self._threads, execution.execute, task.task_id, task.kind, task.control)
        except Exception:  # noqa: BLE001 - the outermost loop of a task
            _LOG.exception("task failed by a bug of the worker kind=%s task=%s", task.kind, task.task_id)
        finally:
            seconds = time.monotonic() - started
            telemetry.MINION_TASKS.labels(task.kind, ending).inc()
            telemetry.MINION_TASK_SECONDS.labels(task.kind).observe(seconds)
            telemetry.MINION_RUNNING.labels(task.kind).dec()
            _LOG.info("task ends kind=%s task=%s ending=%s seconds=%.1f", task.kind, task.task_id, ending, seconds)
            await loop.run_in_executor(self._threads, self._leave, task, ending)
            if ending is Ending.LOST:
                self._lost.add(task.kind, task.task_id, self._clock.now_ms())
            else:
                self._lost.forget(task.kind, task.task_id)
            del self._running[task.task_id]
            if self._wake_up is not None:
                self._wake_up.call()

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(self._tuning.look_s)
            for task in list(self._running.values()):
                try:
                    await asyncio.to_thread(self._look, task)
                except MerlotError as error:
                    # A silent metastore stops no task: its writes are fenced.
                    _LOG.info("cannot look after task task=%s cause=%s", task.task_id, error)
            if time.monotonic() > self._next_sweep:
                self._next_sweep = time.monotonic() + SWEEP_S
                await asyncio.to_thread(sweep, self._metastore, self._kinds, self._clock)

    def _leave(self, task: _Running, ending: Ending) -> None:
        """Release the lease; nothing of the task is written afterwards."""
        with task.lock:
            task.is_over = True
        if ending is not Ending.LOST:
            with contextlib.suppress(MerlotError):
                self._metastore.delete(paths.task_progress(task.kind, task.task_id))
        task.control.lease.release(self._metastore)

    def _look(self, running: _Running) -> None:
        with running.lock:
            if not running.is_over:
                self._look_at(running)

    def _look_at(self, running: _Running) -> None:
        task = queue.find_task(self._metastore, running.kind, running.task_id)
        if not running.control.lease.is_held(self._metastore):
            running.control.stop(StopReason.LOST)
            return
        if task is None or task.record.state is TaskState.CANCELLED:
            running.control.stop(StopReason.CANCELLED)
        elif task.record.state is TaskState.QUEUED:
            self._write_progress(running)

    def _write_progress(self, running: _Running) -> None:
        reported = running.control.said
        now = time.monotonic()
        if not reported.phase or now - running.written_at < self._tuning.progress_s:
            return
        progress = TaskProgress(
            phase=reported.phase,
            rows=reported.rows,
            rows_total=reported.rows_total,
            num_bytes=reported.num_bytes,
            started_ms=running.started_ms,
            updated_ms=self._clock.now_ms(),
            owner=str(self._instance),
        )
        if (
            running.written is not None
            and running.written.model_copy(update={"updated_ms": progress.updated_ms}) == progress
        ):
            return
        queue.write_progress(self._metastore, running.kind, running.task_id, progress)
        running.written, running.written_at = progress, now


def _turn(task: QueuedTask) -> tuple[bool, int, str]:
    """Return the sort key of a task: tasks to undo come first, then the oldest."""
    return task.record.state is not TaskState.CANCELLED, task.record.created_ms, task.record.id
