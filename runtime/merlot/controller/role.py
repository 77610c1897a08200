"""The controller in a process: registered, leading or waiting to lead, and answering HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

import merlot
from merlot.clock import Clock, SystemClock
from merlot.cluster.instances.liveness import Registration, register
from merlot.cluster.records import InstanceRecord, Role
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.cleaning.catalog_store import CatalogStore
from merlot.controller.cleaning.cleaner import TRASH_S, CleaningConfig
from merlot.controller.cleaning.trash import DeepStoreFiles
from merlot.controller.compactions.loop import CompactionLoop
from merlot.controller.http import api
from merlot.controller.loop import ControllerLoop, LoopConfig
from merlot.controller.merges.loop import MergeLoop
from merlot.controller.service import ControllerService
from merlot.controller.tuning import ControllerTuning
from merlot.http.browsers import HOSTS, hosts_of
from merlot.http.door import DOOR
from merlot.http.server import HttpServer
from merlot.http.tls_door import CERTIFICATES
from merlot.ids import InstanceId
from merlot.metastore.protocol import Check, Metastore
from merlot.security.door import Door
from merlot.security.tls import Certificates

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Settings of a controller. Others call `host`; it listens on `bind`. Port 0 takes a free one. Durations in
    seconds."""

    host: str = "127.0.0.1"
    bind: str = "127.0.0.1"
    http_port: int = 9000
    resync_s: float = 60.0
    server_grace_s: float = 300.0
    file_grace_s: float = TRASH_S
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    certificates: Certificates | None = None
    """Certificates of its port and calls; None: no TLS."""
    tuning: ControllerTuning = field(default_factory=ControllerTuning)


class ControllerRole:
    """Controller that is started and stopped on one event loop. An embedded node serves `routes` and calls `start` with
    its port.

    `files` is the cluster's deep store; without it files are never deleted. `open_store` opens deep stores that tables
    name, as far as `places` allows."""

    def __init__(
        self,
        metastore: Metastore,
        config: ControllerConfig | None = None,
        *,
        files: DeepStoreFiles | None = None,
        open_store: Callable[[str], DeepStoreFiles] | None = None,
        places: AllowedPlaces | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._metastore = metastore
        self.door = Door()
        """Knows who asks, and what they may; another one may be set before `start`."""
        self._config = config or ControllerConfig()
        self._files = files
        self._open_store = open_store
        self._clock = clock or SystemClock()
        self._places = places or AllowedPlaces()
        self.service = ControllerService(metastore, self._clock, places=self._places)
        self.service.recovery.open_files = None if files is None else self._open_files
        self._http: HttpServer | None = None
        self._registration: Registration | None = None
        self._loop: ControllerLoop | None = None
        self._merges: MergeLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_leader(self) -> bool:
        """Return whether this controller led in its last round."""
        return self._loop is not None and self._loop.is_leader

    def routes(self) -> list[web.RouteDef]:
        """Return the endpoint's routes, for another application to serve."""
        return api.routes(self.service)

    async def start(self, *, served_port: int | None = None) -> int:
        """Serve, register, and lead as soon as the lease is free; return the port.

        served_port: port on which another application serves `routes` already."""
        port = served_port if served_port is not None else await self._serve()
        instance = InstanceId(f"Controller_{self._config.host}_{port}")
        record = InstanceRecord(
            id=instance,
            role=Role.CONTROLLER,
            host=self._config.host,
            http_port=port,
            started_ms=self._clock.now_ms(),
            version=merlot.__version__,
            tls=self._config.certificates is not None,
        )
        self._registration = await asyncio.to_thread(register, self._metastore, record)
        config = LoopConfig(
            owner=instance,
            resync_s=self._config.resync_s,
            tuning=self._config.tuning,
            server_grace_s=self._config.server_grace_s,
            file_grace_s=self._config.file_grace_s,
            cleaning=self._config.cleaning,
        )
        open_files = None if self._files is None else self._open_files
        open_catalog_store = self._open_catalog_store if isinstance(self._files, CatalogStore) else None
        self._loop = ControllerLoop(
            self._metastore, config, open_files=open_files, open_catalog_store=open_catalog_store, clock=self._clock
        )
        self._merges = MergeLoop(self._metastore, self._clock, self._fence, self.service.merges.reader)
        compactions = CompactionLoop(self._metastore, self._clock, self._fence)
        self._tasks = [
            asyncio.create_task(self._loop.run(), name="controller-loop"),
            asyncio.create_task(self._merges.run(), name="merge-loop"),
            asyncio.create_task(compactions.run(), name="compaction-loop"),
        ]
        return port

    async def stop(self) -> None:
        """Release the lease, unregister and stop serving."""
        for task in reversed(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._registration is not None:
            await asyncio.to_thread(self._registration.close)
        if self._http is not None:
            await self._http.stop()
        await asyncio.to_thread(self.service.close)

    def _fence(self) -> Check | None:
        return None if self._loop is None else self._loop.fence

    def _open_files(self, uri: str | None) -> DeepStoreFiles:
        """Return the cluster's deep store, or the one that a table names."""
        assert self._files is not None
        if uri is None or self._open_store is None:
            return self._files
        self._places.stores.check(uri)
        return self._open_store(uri)

    def _open_catalog_store(self, uri: str | None) -> CatalogStore:
        files = self._open_files(uri)
        assert isinstance(files, CatalogStore)
        return files

    async def _serve(self) -> int:
        app = api.make_app(self.service)
        app[HOSTS] = hosts_of(self._config.bind, self._config.host)
        app[DOOR] = self.door
        if self._config.certificates is not None:
            app[CERTIFICATES] = self._config.certificates
        self._http = HttpServer(app, certificates=self._config.certificates)
        return await self._http.start(self._config.bind, self._config.http_port)
