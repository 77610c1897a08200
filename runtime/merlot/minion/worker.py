"""Works off queues: one child of `/TASKS/{kind}` is one task; whoever leases it runs it, and deletes it when done.

A task whose minion dies is free again when the minion's session ends; so tasks are idempotent, and fence what they
write with their lease. A task that fails stays queued, and is tried again after a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from merlot import telemetry
from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.leases import Lease
from merlot.cluster.metastore import Metastore
from merlot.errors import MerlotError, NotFoundError
from merlot.ids import InstanceId

_LOG = logging.getLogger(__name__)

PAUSE_S = 5.0
"""Between two looks at the queues, when no watch calls."""


class TaskKind(Protocol):
    """Knows how to run one kind of task."""

    def run(self, data: bytes, lease: Lease) -> None:
        """Run to the end, in a thread; every write carries the lease's fence. MerlotError: try again later."""
        ...


@dataclass(slots=True)
class Worker:
    """Runs one task at a time. Used on the event loop."""

    metastore: Metastore
    instance: InstanceId
    clock: Clock
    kinds: Mapping[str, TaskKind] = field(default_factory=dict)
    is_busy: bool = False

    async def run(self) -> None:
        """Until cancelled; a task under way is waited for."""
        loop = asyncio.get_running_loop()
        awake = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(awake.set)

        def watch_all() -> list[object]:
            return [self.metastore.watch_children(paths.tasks(kind), wake) for kind in self.kinds]

        watches = await asyncio.to_thread(watch_all)
        _LOG.info("minion works kinds=%s watches=%d", sorted(self.kinds) or "none", len(watches))
        while True:
            awake.clear()
            for kind in self.kinds:
                await self._work_off(kind)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S if self.kinds else None):
                    await awake.wait()

    async def _work_off(self, kind: str) -> None:
        try:
            for task in await asyncio.to_thread(self.metastore.children, paths.tasks(kind)):
                job = asyncio.ensure_future(asyncio.to_thread(self._run_if_free, kind, task))
                self.is_busy = True
                try:
                    await asyncio.shield(job)
                except asyncio.CancelledError:
                    await job
                    raise
                finally:
                    self.is_busy = False
        except MerlotError as error:
            _LOG.warning("queue not read kind=%s cause=%s", kind, error)

    def _run_if_free(self, kind: str, task: str) -> None:
        lease = Lease.acquire(self.metastore, f"task-{kind}-{task}", self.instance, self.clock)
        if lease is None:
            return
        path = paths.child(paths.tasks(kind), task)
        outcome = "failed"
        try:
            node = self.metastore.get(path)
            if node is not None:
                self.kinds[kind].run(node.data, lease)
                with contextlib.suppress(NotFoundError):
                    self.metastore.delete(path)
            outcome = "done"
        except MerlotError as error:
            _LOG.warning("task failed, stays queued kind=%s task=%s cause=%s", kind, task, error)
        except Exception:  # noqa: BLE001 - the outermost loop of a task
            _LOG.exception("task failed by a bug, stays queued kind=%s task=%s", kind, task)
        finally:
            telemetry.MINION_TASKS.labels(kind, outcome).inc()
            lease.release(self.metastore)
