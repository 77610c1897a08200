"""A minion from start to drain: registered, asked for its health, and given its task's time to end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from merlot import __version__, telemetry
from merlot.clock import Clock, SystemClock
from merlot.cluster.liveness import Registration, register
from merlot.cluster.metastore import Metastore
from merlot.cluster.records import InstanceRecord, Role
from merlot.errors import UnavailableError
from merlot.ids import InstanceId
from merlot.minion.worker import TaskKind, Worker

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinionConfig:
    """Port 0: any; None: no endpoint."""

    host: str = "127.0.0.1"
    bind_host: str | None = None
    http_port: int | None = 0
    instance: str | None = None
    """Default: Minion_{host}_{http port}."""
    kinds: Mapping[str, TaskKind] = field(default_factory=dict)


class MinionRole:
    """One minion on the running event loop."""

    def __init__(self, metastore: Metastore, config: MinionConfig, *, clock: Clock | None = None) -> None:
        self._metastore = metastore
        self._config = config
        self._clock = clock or SystemClock()
        self._registration: Registration | None = None
        self._runner: web.AppRunner | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_draining = False
        self.http_port = 0

    @property
    def instance(self) -> InstanceId:
        """Its name among the instances."""
        return InstanceId(self._config.instance or f"Minion_{self._config.host}_{self.http_port}")

    def not_ready(self) -> str | None:
        """Why it takes no task now; None if it does."""
        if self._is_draining:
            return "draining"
        return "starting" if self._registration is None else None

    async def start(self) -> None:
        """Register and look for tasks. UnavailableError if the port is taken or the metastore silent."""
        await self._start_http()
        record = InstanceRecord(
            id=self.instance,
            role=Role.MINION,
            host=self._config.host,
            http_port=self.http_port,
            started_ms=self._clock.now_ms(),
            version=__version__,
        )
        self._registration = await asyncio.to_thread(register, self._metastore, record)
        worker = Worker(self._metastore, self.instance, self._clock, self._config.kinds)
        self._task = asyncio.create_task(worker.run())

    async def stop(self) -> None:
        """Take no new task, let the running one end, leave."""
        self._is_draining = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._registration is not None:
            await asyncio.to_thread(self._registration.close)
        if self._runner is not None:
            await self._runner.cleanup()
        _LOG.info("minion stopped instance=%s", self.instance)

    async def _start_http(self) -> None:
        if self._config.http_port is None:
            return
        app = web.Application()
        app.router.add_get("/health", self._readiness)
        app.router.add_get("/health/readiness", self._readiness)
        app.router.add_get("/health/liveness", self._liveness)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        bind_host = self._config.bind_host or self._config.host
        try:
            await web.TCPSite(self._runner, bind_host, self._config.http_port).start()
        except OSError as error:
            text = f"cannot listen address={bind_host}:{self._config.http_port} reason={error.strerror}"
            raise UnavailableError(text) from error
        self.http_port = self._runner.addresses[0][1]

    async def _readiness(self, _: web.Request) -> web.Response:
        reason = self.not_ready()
        if reason is not None:
            return web.Response(text=reason, status=503)
        return web.Response(text="OK" if self._config.kinds else "OK: no kind of task is known to this version")

    async def _liveness(self, _: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=telemetry.render_metrics(), headers={"Content-Type": telemetry.CONTENT_TYPE})
