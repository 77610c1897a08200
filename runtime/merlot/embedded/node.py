"""A node: controller, broker, server and minion on one loop, one SQLite metastore, one HTTP port.

The roles find each other through the metastore as they would in a cluster; only the channel between broker and server
is a call, and the routes of controller and broker share a port, as clients that know both expect.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

from merlot.broker.http import endpoint
from merlot.broker.http.listener import Listener
from merlot.broker.role import BrokerConfig, BrokerRole
from merlot.broker.settings import BrokerSettings
from merlot.broker.tuning import BrokerTuning
from merlot.catalog import recovered, uploaded
from merlot.clock import Clock, SystemClock
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.http import api
from merlot.controller.role import ControllerConfig, ControllerRole
from merlot.controller.tuning import ControllerTuning
from merlot.errors import UnavailableError
from merlot.http.browsers import HOSTS, hosts_of
from merlot.http.door import DOOR
from merlot.http.guard import BODY_LIMITS
from merlot.http.health import health_routes, readiness_of
from merlot.http.openapi import with_description
from merlot.http.tls_door import CERTIFICATES
from merlot.metastore.sqlite import SqliteMetastore
from merlot.minion.role import MinionConfig, MinionRole
from merlot.minion.tuning import MinionTuning
from merlot.security.door import Door
from merlot.security.tls import Certificates
from merlot.server.role import ServerConfig, ServerRole
from merlot.server.settings import ServerSettings
from merlot.server.tuning import ServerTuning
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import AllowedFolders
from merlot.uris import http_url
from merlot.wire.client import LocalChannel

_LOG = logging.getLogger(__name__)

METASTORE_FILE: Final = "metastore.sqlite"
SERVER_INSTANCE: Final = "Server_localhost_8098"
"""Instance id of the server, the same on whatever port the node listens: assignments go by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTuning:
    """Waits of the node's roles, which tests shorten."""

    server: ServerTuning = field(default_factory=ServerTuning)
    broker: BrokerTuning = field(default_factory=BrokerTuning)
    controller: ControllerTuning = field(default_factory=ControllerTuning)
    minion: MinionTuning = field(default_factory=MinionTuning)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Configuration of a node. `data_dir` belongs to one node at a time. Port 0: any free one."""

    data_dir: Path
    host: str = "127.0.0.1"
    """Address to listen on."""
    advertised_host: str | None = None
    """Name by which clients reach it; default: `host`, or the machine's name if that stands for every address."""
    http_port: int = 8099
    grpc_port: int | None = None
    """Port for queries over gRPC; None for no such port."""
    deep_store: str | None = None
    """Place of segment files of tables that name no deep store; default `{data_dir}/deepstore`."""
    deep_store_prefixes: tuple[str, ...] = ()
    """Prefixes below which tables may name deep stores of their own, besides that one."""
    stream_folders: tuple[str, ...] = ()
    """Folders below which streams of files may be."""
    secrets_dir: Path | None = None
    """Folder with a subfolder for each Secret that streams name."""
    grace_s: float = 60.0
    """Seconds for which a replaced version of a segment is still served."""
    warm_up_s: float | None = None
    """Seconds to wait at the start until the query kernels are loaded, as a server's."""
    certificates: Certificates | None = None
    """Certificates of its ports; None: no TLS."""
    server: ServerSettings = field(default_factory=ServerSettings)
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    tuning: NodeTuning = field(default_factory=NodeTuning)

    @property
    def reached_as(self) -> str:
        """Host in instance ids, which clients take apart and call."""
        is_every = self.host in {"0.0.0.0", "::", ""}
        return self.advertised_host or (socket.gethostname() if is_every else self.host) or "127.0.0.1"

    @property
    def deep_store_uri(self) -> str:
        """Deep store of the cluster."""
        return self.deep_store or str(self.data_dir.resolve() / "deepstore")


class EmbeddedNode:
    """Node whose roles start and stop on one event loop."""

    def __init__(self, config: NodeConfig, *, clock: Clock | None = None, door: Door | None = None) -> None:
        self._config = config
        self._door = door or Door()
        self._clock = clock
        self._exits = contextlib.AsyncExitStack()
        self._server: ServerRole | None = None
        self._broker: BrokerRole | None = None
        self.port = 0

    @property
    def grpc_port(self) -> int:
        """Port for queries over gRPC; 0 if there is none."""
        return 0 if self._broker is None else self._broker.grpc_port

    @property
    def url(self) -> str:
        """Address at which clients reach it."""
        host = "localhost" if self._config.host in {"0.0.0.0", "::", "127.0.0.1"} else self._config.host
        return http_url(host, self.port, tls=self._config.certificates is not None)

    async def start(self) -> int:
        """Run every role; return the port. UnavailableError if the port is taken or another node has the folder."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self.port

    async def stop(self) -> None:
        """Let running requests end, then stop every role, in reverse order."""
        if self._broker is not None:
            await self._broker.stop()
        await self._exits.aclose()

    def not_ready(self) -> str | None:
        """Return why queries may fail now; None if all that is assigned is served."""
        if self._server is None or self._broker is None:
            return "starting"
        return self._server.not_ready() or self._broker.unready_reason()

    async def _start(self) -> None:
        listener = _listen(self._config.host, self._config.http_port)
        self._exits.callback(listener.close)
        self.port = listener.getsockname()[1]
        data_dir = self._config.data_dir
        await asyncio.to_thread(_make_folder, data_dir)
        metastore = await asyncio.to_thread(SqliteMetastore, data_dir / METASTORE_FILE)
        self._exits.push_async_callback(asyncio.to_thread, metastore.close)
        self._server = await self._start_server(metastore)
        controller = await self._start_controller(metastore)
        self._broker = await self._start_broker(metastore, self._server)
        await self._start_minion(metastore)
        await self._serve(listener, [*endpoint.routes(self._broker), *controller.routes()])

    async def _start_server(self, metastore: SqliteMetastore) -> ServerRole:
        config = ServerConfig(
            data_dir=self._config.data_dir / "server",
            deep_store=self._config.deep_store_uri,
            deep_store_prefixes=self._config.deep_store_prefixes,
            host=self._config.reached_as,
            http_port=None,
            query_port=None,
            instance=SERVER_INSTANCE,
            grace_s=self._config.grace_s,
            warm_up_s=self._config.warm_up_s,
            settings=self._config.server,
            tuning=self._config.tuning.server,
            secrets_dir=self._config.secrets_dir,
            stream_folders=self._config.stream_folders,
        )
        role = ServerRole(metastore, config, clock=self._clock)
        self._exits.push_async_callback(role.stop)
        await role.start()
        return role

    async def _start_controller(self, metastore: SqliteMetastore) -> ControllerRole:
        files = DeepStore(self._config.deep_store_uri)
        config = ControllerConfig(
            host=self._config.reached_as,
            http_port=self.port,
            certificates=self._config.certificates,
            tuning=self._config.tuning.controller,
        )
        stores = AllowedStores(own=self._config.deep_store_uri, prefixes=self._config.deep_store_prefixes)
        role = ControllerRole(
            metastore,
            config,
            files=files,
            open_store=DeepStore,
            places=AllowedPlaces(stores, AllowedStreams(folders=AllowedFolders(self._config.stream_folders))),
            clock=self._clock,
        )
        role.service.uploads.take = uploaded.accept_upload
        role.service.recovery.read = recovered.read
        self._exits.push_async_callback(role.stop)
        await role.start(served_port=self.port)
        return role

    async def _start_broker(self, metastore: SqliteMetastore, server: ServerRole) -> BrokerRole:
        config = BrokerConfig(
            host=self._config.reached_as,
            bind=self._config.host,
            http_port=self.port,
            grpc_port=self._config.grpc_port,
            is_mounted=True,
            certificates=self._config.certificates,
            settings=self._config.broker,
            tuning=self._config.tuning.broker,
        )
        role = BrokerRole(metastore, config, lambda _: LocalChannel(server.handle), self._clock, self._door)
        self._exits.push_async_callback(role.stop)
        await role.start()
        return role

    async def _start_minion(self, metastore: SqliteMetastore) -> None:
        host = self._config.reached_as
        config = MinionConfig(
            host=host,
            instance=f"Minion_{host}_{self.port}",
            http_port=None,
            data_dir=self._config.data_dir / "minion",
            deep_store=self._config.deep_store_uri,
            deep_store_prefixes=self._config.deep_store_prefixes,
            drain_timeout_s=5.0,
            tuning=self._config.tuning.minion,
        )
        role = MinionRole(metastore, config, clock=self._clock)
        self._exits.push_async_callback(role.stop)
        await role.start()

    async def _serve(self, listener: socket.socket, routes: list[web.RouteDef]) -> None:
        app = web.Application()
        app[BODY_LIMITS] = {**endpoint.QUERY_LIMITS, **api.LIMITS}
        app[HOSTS] = hosts_of(self._config.host, self._config.reached_as)
        app[DOOR] = self._door
        if self._config.certificates is not None:
            app[CERTIFICATES] = self._config.certificates
        app.add_routes(with_description(_merged([*self._own_routes(), *routes]), "Merlot"))
        assert self._broker is not None
        door = Listener(self._broker, app, self._clock or SystemClock(), self._config.certificates)
        self._exits.push_async_callback(door.close)
        await door.open_on(listener)
        _LOG.info("node serves url=%s data=%s", self.url, self._config.data_dir)

    def _own_routes(self) -> list[web.RouteDef]:
        return health_routes(readiness_of(self.not_ready))


def _merged(routes: list[web.RouteDef]) -> list[web.RouteDef]:
    """Return the first of the routes that share method and path; aiohttp refuses the others."""
    first: dict[tuple[str, str], web.RouteDef] = {}
    for route in routes:
        first.setdefault((route.method, route.path), route)
    return list(first.values())


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot make the data folder path={path} reason={error.strerror}") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        hint = "; another process listens there: stop it, or choose another port" if port else ""
        raise UnavailableError(f"cannot listen address={host}:{port} reason={error.strerror}{hint}") from error
