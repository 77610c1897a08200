"""Works off queues: one child of `/TASKS/{kind}` is one task; whoever leases it runs it, and deletes it when done.

A task whose minion dies is free again when the minion's session ends; so tasks are idempotent, and fence what they
write with their lease. Once in a while the worker looks whether each running task is still wanted and still its own,
and writes down how far it is.
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
from merlot.wakeups import WakeUp

_LOG = logging.getLogger(__name__)

PAUSE_S = 5.0
"""Between two looks at the queues, when no watch calls."""
LOOK_S = 0.5
"""Between two looks at whether running tasks are still wanted."""
PROGRESS_S = 1.0
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
    """What a worker is made for."""

    slots: int = 1
    """Tasks at a time."""
    takes: Callable[[TaskRecord], bool] = lambda _: True
    """Which tasks it runs; the others are left to others."""
    reached: CrashPoint | None = None


class Worker:
    """Runs up to `slots` tasks at a time. Used on the event loop."""

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
        self._running: dict[str, _Running] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(settings.slots + 1, thread_name_prefix="merlot-task")
        self._is_draining = False
        self._wake_at_ms: int | None = None
        self._next_sweep = time.monotonic() + SWEEP_S
        self._wake_up: WakeUp | None = None

    @property
    def running(self) -> list[dict[str, Any]]:
        """The tasks that it runs now, for people."""
        return [
            {
                "kind": one.kind,
                "id": one.task_id,
                "table": one.table,
                "phase": one.control.said.phase,
                "rows": one.control.said.rows,
                "rowsTotal": one.control.said.rows_total,
                "bytes": one.control.said.num_bytes,
                "startedMs": one.started_ms,
                "stopping": one.control.stop_reason,
            }
            for one in self._running.values()
        ]

    async def run(self) -> None:
        """Until cancelled. Tasks under way go on: see `drain`."""
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
        """Begin nothing more; have running tasks give themselves back, and wait for that so long."""
        self._is_draining = True
        for one in self._running.values():
            one.control.stop(StopReason.DRAIN)
        if self._jobs:
            await asyncio.wait(self._jobs, timeout=timeout_s)
        for one in self._running.values():
            _LOG.warning("task does not stop, its lease ends with the session task=%s", one.task_id)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _watch(self, wake_up: WakeUp) -> list[Watch]:
        return [self._metastore.watch_children(paths.tasks(kind), wake_up.call) for kind in self._kinds]

    async def _work_off(self) -> float:
        """Start what can be started; returns how long to wait for a wake-up."""
        try:
            for kind in self._kinds:
                await self._start_some(kind)
        except MerlotError as error:
            _LOG.warning("queue not read cause=%s", error)
        if self._wake_at_ms is None:
            return PAUSE_S
        return min(PAUSE_S, max(0.01, (self._wake_at_ms - self._clock.now_ms()) / 1000))

    async def _start_some(self, kind: str) -> None:
        self._wake_at_ms = None
        if not self._free_slots(kind):
            return
        queued = await asyncio.to_thread(queue.list_tasks, self._metastore, kind)
        telemetry.MINION_QUEUED.labels(kind).set(len(queued))
        for task in sorted(queued.values(), key=_turn):
            if not self._free_slots(kind):
                return
            if queue.whole_of(task.record.id) not in queued and self._is_due(task):
                await self._start_if_free(task)

    def _free_slots(self, kind: str) -> int:
        if self._is_draining:
            return 0
        of_kind = Counter(one.kind for one in self._running.values())[kind]
        return min(self._slots - len(self._running), self._kinds[kind].max_parallel - of_kind)

    def _is_due(self, task: QueuedTask) -> bool:
        record = task.record
        if record.state is TaskState.POISONED or record.id in self._running or not self._takes(record):
            return False
        if record.not_before_ms <= self._clock.now_ms():
            return True
        self._wake_at_ms = min(record.not_before_ms, self._wake_at_ms or record.not_before_ms)
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

    async def _run(self, one: _Running) -> None:
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        execution = Execution(self._metastore, self._clock, self._kinds[one.kind])
        _LOG.info("task begins kind=%s task=%s table=%s", one.kind, one.task_id, one.table)
        ending = Ending.LOST
        try:
            ending = await loop.run_in_executor(self._threads, execution.execute, one.task_id, one.kind, one.control)
        except Exception:  # noqa: BLE001 - the outermost loop of a task
            _LOG.exception("task failed by a bug of the worker kind=%s task=%s", one.kind, one.task_id)
        finally:
            seconds = time.monotonic() - started
            telemetry.MINION_TASKS.labels(one.kind, ending).inc()
            telemetry.MINION_TASK_SECONDS.labels(one.kind).observe(seconds)
            telemetry.MINION_RUNNING.labels(one.kind).dec()
            _LOG.info("task ends kind=%s task=%s ending=%s seconds=%.1f", one.kind, one.task_id, ending, seconds)
            await loop.run_in_executor(self._threads, self._leave, one, ending)
            del self._running[one.task_id]
            if self._wake_up is not None:
                self._wake_up.call()

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for one in list(self._running.values()):
                try:
                    await asyncio.to_thread(self._look, one)
                except MerlotError as error:
                    # A silent metastore stops no task: its writes are fenced.
                    _LOG.info("cannot look after task task=%s cause=%s", one.task_id, error)
            if time.monotonic() > self._next_sweep:
                self._next_sweep = time.monotonic() + SWEEP_S
                await asyncio.to_thread(sweep, self._metastore, self._kinds, self._clock)

    def _leave(self, one: _Running, ending: Ending) -> None:
        """Nothing of it is written from here on, and the next one may have it."""
        with one.lock:
            one.is_over = True
        if ending is not Ending.LOST:
            with contextlib.suppress(MerlotError):
                self._metastore.delete(paths.task_progress(one.kind, one.task_id))
        one.control.lease.release(self._metastore)

    def _look(self, one: _Running) -> None:
        with one.lock:
            if not one.is_over:
                self._look_at(one)

    def _look_at(self, one: _Running) -> None:
        task = queue.find_task(self._metastore, one.kind, one.task_id)
        if not one.control.lease.is_held(self._metastore):
            one.control.stop(StopReason.LOST)
            return
        if task is None or task.record.state is TaskState.CANCELLED:
            one.control.stop(StopReason.CANCELLED)
        elif task.record.state is TaskState.QUEUED:
            self._write_progress(one)

    def _write_progress(self, one: _Running) -> None:
        said = one.control.said
        now = time.monotonic()
        if not said.phase or now - one.written_at < PROGRESS_S:
            return
        progress = TaskProgress(
            phase=said.phase,
            rows=said.rows,
            rows_total=said.rows_total,
            num_bytes=said.num_bytes,
            started_ms=one.started_ms,
            updated_ms=self._clock.now_ms(),
            owner=str(self._instance),
        )
        if one.written is not None and one.written.model_copy(update={"updated_ms": progress.updated_ms}) == progress:
            return
        queue.write_progress(self._metastore, one.kind, one.task_id, progress)
        one.written, one.written_at = progress, now


def _turn(task: QueuedTask) -> tuple[bool, int, str]:
    """Those to undo first, then by age."""
    return task.record.state is not TaskState.CANCELLED, task.record.created_ms, task.record.id
