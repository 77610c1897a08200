"""A minion from start to drain: it registers, serves its health and tasks over HTTP, and gives tasks back when it
stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from merlot import __version__
from merlot.clock import Clock, SystemClock
from merlot.cluster.instances.liveness import Registration, register
from merlot.cluster.records import InstanceRecord, Role
from merlot.cluster.tasks import queue
from merlot.cluster.tasks.queue import QueuedTask, TaskRecord, TaskState
from merlot.errors import MerlotError, UnavailableError
from merlot.http.described import OBJECT, describe
from merlot.http.door import DOOR, READING, of_cluster
from merlot.http.health import health_routes, readiness_of
from merlot.http.process import process_routes
from merlot.http.server import HttpServer
from merlot.ids import InstanceId
from merlot.metastore.protocol import Metastore
from merlot.minion.control import CrashPoint
from merlot.minion.execution import TaskKind
from merlot.minion.kinds import own_kinds
from merlot.minion.settings import MergeSettings
from merlot.minion.spark_merge import SparkLauncher
from merlot.minion.tuning import MinionTuning
from merlot.minion.worker import Worker, WorkerSettings
from merlot.security.door import Door
from merlot.security.tls import Certificates
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore

_LOG = logging.getLogger(__name__)

TASKS_FOLDER = "tasks"
OVER_S = 1.0
"""Seconds between two checks whether the only task is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MinionConfig:
    """Settings of a minion. Port 0: any free port; None: no endpoint."""

    host: str = "127.0.0.1"
    bind_host: str | None = None
    http_port: int | None = 0
    instance: str | None = None
    """Name of the instance. Default: Minion_{host}_{http port}."""
    data_dir: Path | None = None
    """Directory for temporary files, emptied at the start; None: no task that needs files is run."""
    deep_store: str | None = None
    """URI of the cluster's deep store."""
    deep_store_prefixes: tuple[str, ...] = ()
    """URI prefixes below which tables may name deep stores of their own, besides the cluster's."""
    slots: int = 1
    """Tasks that run at the same time."""
    memory_bytes: int = 1 << 30
    """Memory of all tasks together."""
    drain_timeout_s: float = 20.0
    load_timeout_s: float = 600.0
    """Seconds that a merge waits for servers to load its outputs."""
    spark: SparkLauncher | None = None
    """Way to start Spark jobs; None: Spark in local mode, if pyspark is installed."""
    leaves_spark: bool = False
    """True if tasks that need Spark are left to other minions."""
    only_task: str | None = None
    """Id of the only task that it runs; see `until_over`."""
    kinds: Mapping[str, TaskKind] = field(default_factory=dict)
    """Additional kinds of tasks."""
    reached: CrashPoint | None = None
    """Called with the steps of tasks; for tests."""
    certificates: Certificates | None = None
    """Certificates of its port; None: no TLS."""
    tuning: MinionTuning = field(default_factory=MinionTuning)


class MinionRole:
    """A minion on the running event loop."""

    def __init__(
        self, metastore: Metastore, config: MinionConfig, *, clock: Clock | None = None, door: Door | None = None
    ) -> None:
        self._metastore = metastore
        self._door = door or Door()
        self._config = config
        self._clock = clock or SystemClock()
        self._registration: Registration | None = None
        self._http: HttpServer | None = None
        self._worker: Worker | None = None
        self._task: asyncio.Task[None] | None = None
        self._kinds = {**self._own_kinds(), **config.kinds}
        self._is_draining = False
        self.http_port = 0

    @property
    def instance(self) -> InstanceId:
        """Name of the instance."""
        return InstanceId(self._config.instance or f"Minion_{self._config.host}_{self.http_port}")

    def not_ready(self) -> str | None:
        """Return why it takes no tasks now; None if it does."""
        if self._is_draining:
            return "draining"
        if self._task is not None and self._task.done():
            return "the worker has ended; see the log"
        return "starting" if self._registration is None else None

    async def start(self) -> None:
        """Register and begin to take tasks. Raise UnavailableError if the data folder cannot be made, the port is
        taken, or the metastore does not answer."""
        await asyncio.to_thread(self._clear_folder)
        await self._start_http()
        record = InstanceRecord(
            id=self.instance,
            role=Role.MINION,
            host=self._config.host,
            http_port=self.http_port,
            started_ms=self._clock.now_ms(),
            version=__version__,
            tls=self._config.certificates is not None,
        )
        self._registration = await asyncio.to_thread(register, self._metastore, record)
        self._worker = Worker(
            self._metastore,
            self.instance,
            self._clock,
            self._kinds,
            WorkerSettings(
                slots=self._config.slots,
                takes=self._takes,
                reached=self._config.reached,
                tuning=self._config.tuning,
            ),
        )
        self._task = asyncio.create_task(self._worker.run())

    async def until_over(self) -> None:
        """Wait until the only task is gone or set aside, by any minion."""
        assert self._config.only_task is not None
        while True:
            with contextlib.suppress(MerlotError):
                task = await asyncio.to_thread(self._find_only_task)
                if task is None or task.record.state is TaskState.POISONED:
                    return
            await asyncio.sleep(OVER_S)

    def _find_only_task(self) -> QueuedTask | None:
        tasks = (queue.find_task(self._metastore, kind, str(self._config.only_task)) for kind in self._kinds)
        return next((task for task in tasks if task is not None), None)

    def _takes(self, task: TaskRecord) -> bool:
        if self._config.only_task is not None:
            return task.id == self._config.only_task
        return not (self._config.leaves_spark and queue.needs_spark(task))

    async def stop(self) -> None:
        """Take no new task, have running tasks given back, and leave the cluster."""
        self._is_draining = True
        if self._worker is not None:
            await self._worker.drain(self._config.drain_timeout_s)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._registration is not None:
            await asyncio.to_thread(self._registration.close)
        if self._http is not None:
            await self._http.stop()
        _LOG.info("minion stopped instance=%s", self.instance)

    def _own_kinds(self) -> Mapping[str, TaskKind]:
        config = self._config
        if config.data_dir is None:
            return {}
        allowed = AllowedStores(own=config.deep_store, prefixes=config.deep_store_prefixes)
        stores: dict[str, DeepStore] = {}

        def open_store(uri: str | None) -> DeepStore:
            chosen = allowed.uri_of(uri)
            if chosen is None:
                raise UnavailableError("no deep store: the table names none and the minion has none")
            return stores.setdefault(chosen, DeepStore(chosen, keeps_copies=False))

        settings = MergeSettings(
            folder=config.data_dir.resolve() / TASKS_FOLDER,
            open_store=open_store,
            memory_bytes=config.memory_bytes // max(1, config.slots),
            max_parallel=config.slots,
            load_timeout_s=config.load_timeout_s,
            load_look_s=config.tuning.load_look_s,
            spark=config.spark or (SparkLauncher() if SparkLauncher.is_possible() else None),
        )
        return own_kinds(self._metastore, self._clock, settings)

    def _clear_folder(self) -> None:
        if self._config.data_dir is None:
            return
        folder = self._config.data_dir / TASKS_FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"cannot make the data folder path={folder} reason={error.strerror}") from error

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        health = health_routes(readiness_of(self.not_ready))
        return [*health, *process_routes(), web.get("/tasks", self._tasks)]

    async def _start_http(self) -> None:
        if self._config.http_port is None:
            return
        app = web.Application()
        app[DOOR] = self._door
        app.add_routes(self.routes())
        self._http = HttpServer(app, certificates=self._config.certificates)
        self.http_port = await self._http.start(self._config.bind_host or self._config.host, self._config.http_port)

    @describe(answer=OBJECT, right=of_cluster(*READING))
    async def _tasks(self, _: web.Request) -> web.Response:
        """Answer with the tasks that run now."""
        running = [] if self._worker is None else self._worker.running
        return web.json_response({"instance": self.instance, "slots": self._config.slots, "running": running})
