"""Run one broker: read the cluster, register, answer queries, and leave without failing a query."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from merlot import __version__
from merlot.broker.directory import Directory
from merlot.broker.echo import Echo, echo_of
from merlot.broker.http.endpoint import make_app
from merlot.broker.http.listener import Listener
from merlot.broker.queries import Queries, SqlRequest
from merlot.broker.response import BrokerAnswer
from merlot.broker.scatter_gather.channels import ChannelFactory, Channels
from merlot.broker.settings import BrokerSettings
from merlot.broker.tuning import BrokerTuning
from merlot.clock import Clock, SystemClock
from merlot.cluster.instances import liveness
from merlot.cluster.instances.drains import unmark
from merlot.cluster.instances.liveness import Registration
from merlot.cluster.records import InstanceRecord, Role
from merlot.errors import MerlotError
from merlot.http.browsers import HOSTS, hosts_of
from merlot.http.door import DOOR
from merlot.http.tls_door import CERTIFICATES
from merlot.ids import InstanceId
from merlot.metastore.protocol import Metastore
from merlot.security.door import Door
from merlot.security.tls import Certificates
from merlot.sql.budget import Budget

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


SETTLE_S = 30.0
"""Longest wait at the start for tables that cannot be read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Addresses and timeouts of a broker."""

    host: str = "127.0.0.1"
    """Name under which clients reach it."""
    bind: str | None = None
    """Address to listen on; `host` if left out."""
    http_port: int = 8099
    """0: any free port."""
    grpc_port: int | None = None
    """None: no queries over gRPC; 0: any free port."""
    is_mounted: bool = False
    """True if another server serves `make_app(role)` on `http_port`; then the role opens no port."""
    drain_s: float = 10.0
    """Time that running queries may take to end after `stop`."""
    warm_up_s: float | None = None
    """Longest wait at the start for the query kernels, which also merge answers, to load. None: they are not loaded."""
    certificates: Certificates | None = None
    """Certificates of its ports and calls; None: they speak no TLS."""
    settings: BrokerSettings = field(default_factory=BrokerSettings)
    tuning: BrokerTuning = field(default_factory=BrokerTuning)


class _Closable(Protocol):
    async def close(self, grace_s: float) -> None: ...


class BrokerRole:
    """One broker; runs on the event loop that is running."""

    def __init__(
        self,
        metastore: Metastore,
        config: BrokerConfig,
        channel_factory: ChannelFactory,
        clock: Clock | None = None,
        door: Door | None = None,
    ) -> None:
        self._metastore = metastore
        self.door = door or Door()
        """Knows who asks, and what they may."""
        self._config = config
        self._clock = clock or SystemClock()
        self._channels = Channels(channel_factory)
        self._directory = Directory(metastore, self._channels, self._clock, config.tuning)
        self._queries = Queries(self._directory, self._channels, self._clock, config.settings, self.door)
        self._registration: Registration | None = None
        self._echo: Echo | None = None
        self._listener: Listener | None = None
        self._rpc: _Closable | None = None
        self.grpc_port = 0
        """Port of the gRPC endpoint; 0 until it is open, or if there is none."""
        self._running: set[asyncio.Task[object]] = set()
        self._unready: str | None = "starting"

    def _start_warming(self) -> threading.Thread | None:
        if self._config.warm_up_s is None:
            return None
        from merlot.kernels.warm import start_loading

        return start_loading(compiles=True)

    async def start(self) -> int:
        """Read the cluster, listen, register, and return the HTTP port.

        Raise UnavailableError if the metastore does not answer."""
        warming = self._start_warming()
        await self._directory.start()
        await self._directory.settle(SETTLE_S)
        if warming is not None:
            await asyncio.to_thread(warming.join, self._config.warm_up_s)
        self._queries.is_open = True
        port = self._config.http_port if self._config.is_mounted else await self._listen()
        self._queries.broker_id = InstanceId(f"Broker_{self._config.host}_{port}")
        if self._config.grpc_port is not None:
            self.grpc_port = await self._listen_for_grpc(self._config.grpc_port)
        await self._start_echo(self._queries.broker_id)
        record = InstanceRecord(
            id=self._queries.broker_id,
            role=Role.BROKER,
            host=self._config.host,
            http_port=port,
            query_port=self.grpc_port,
            started_ms=self._clock.now_ms(),
            version=__version__,
            tls=self._config.certificates is not None,
        )
        self._registration = await asyncio.to_thread(liveness.register, self._metastore, record)
        # The broker runs again, so the mark that asked it to stop is void. If this fails, `undrain` removes the mark.
        with contextlib.suppress(MerlotError):
            await asyncio.to_thread(unmark, self._metastore, record.id)
        self._unready = None
        _LOG.info("broker serves id=%s tables=%d", record.id, len(self._directory.tables))
        return port

    async def stop(self) -> None:
        """Unregister, wait for the queries that run now, accept no more, wait for those that came meanwhile, and close.
        Both waits together take `drain_s` at most. Another call changes nothing."""
        if self._unready == "draining":
            return
        self._unready = "draining"
        if self._registration is not None:
            await asyncio.to_thread(self._registration.close)
        if self._echo is not None:
            await self._echo.stop()
        await self._drain()
        self._queries.close()
        await self._directory.stop()
        await self._channels.close()

    async def _drain(self) -> None:
        """Close the ports once the running queries have ended, or `drain_s` is over."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._config.drain_s
        if self._running:
            await asyncio.wait(self._running, timeout=self._config.drain_s)
        if self._listener is not None:
            self._listener.finish()
        if self._rpc is not None:
            await self._rpc.close(ends_at - loop.time())
        if self._running:
            await asyncio.wait(self._running, timeout=max(0.0, ends_at - loop.time()))
        if self._listener is not None:
            await self._listener.close()

    @property
    def broker_id(self) -> str:
        """`Broker_host_port`."""
        return self._queries.broker_id

    @property
    def directory(self) -> Directory:
        """Tables and their routes."""
        return self._directory

    def unready_reason(self) -> str | None:
        """Return the reason why clients should send no queries now; None if there is none. Queries that arrive are
        still answered."""
        if self._unready is None and self._queries.broker_id in self._directory.drains:
            return "marked to stop"
        return self._unready

    async def query(self, request: SqlRequest) -> BrokerAnswer:
        """Run a query; `stop` waits for it if it was called after the query began."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await self._queries.run(request)
        finally:
            self._running.discard(task)

    def running(self, asker: str | None = None) -> Mapping[str, str]:
        """Return the texts of the queries under way by request id: all, or those that `asker` has asked."""
        return self._queries.running(asker)

    def query_log(self, table: str, asker: str | None = None) -> Mapping[str, object]:
        """Return the log of the queries that named the table lately, by its raw name: all, or those of `asker`."""
        return self._queries.log.report(table, asker)

    async def plan_with(self, sql: str, work: Callable[[Budget], T]) -> T:
        """Run work on a text among the texts that are planned. Raise UnavailableError at a query's deadline, or if too
        many wait."""
        return await self._queries.plan_with(sql, work)

    def cancel(self, wanted: str, *, by_client_id: bool = False, asker: str | None = None) -> bool:
        """Cancel a running query; return False if no query that `asker` may cancel has the id."""
        return self._queries.cancel(wanted, by_client_id=by_client_id, asker=asker)

    async def _start_echo(self, broker: InstanceId) -> None:
        """Publish the echo before the broker registers, so that every live broker has an echo."""
        directory = self._directory
        self._echo = Echo(
            self._metastore, broker, lambda: echo_of(directory.tables, directory.drains), self._config.tuning
        )
        await self._echo.start()
        directory.on_change = self._echo.poke

    async def _listen(self) -> int:
        app = make_app(self)
        app[HOSTS] = hosts_of(self._address, self._config.host)
        app[DOOR] = self.door
        if self._config.certificates is not None:
            app[CERTIFICATES] = self._config.certificates
        self._listener = Listener(self, app, self._clock, self._config.certificates)
        return await self._listener.open(self._address, self._config.http_port)

    async def _listen_for_grpc(self, port: int) -> int:
        from merlot.broker.rpc.endpoint import RpcListener  # gRPC takes 15 MB of memory

        listener = self._rpc = RpcListener(self, self.door, certificates=self._config.certificates)
        return await listener.open(self._address, port)

    @property
    def _address(self) -> str:
        return self._config.bind or self._config.host
