"""A server from start to drain: the order in which it becomes visible to brokers, and in which it leaves.

Start: open what is on the disk, report it, accept calls, register. A broker that sees the server alive finds its report
true. Drain: hand over consumed partitions; unregister and report nothing, so that brokers choose other servers; answer
brokers that have not heard of it yet; then refuse (code 210 makes a broker ask another replica), let running queries
end, close.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from merlot import __version__, memory
from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.instances.drains import unmark
from merlot.cluster.instances.liveness import Registration, register
from merlot.cluster.manifests.tables import table_names
from merlot.cluster.records import InstanceRecord, Role
from merlot.errors import MerlotError, NotFoundError
from merlot.http.door import DOOR
from merlot.http.server import HttpServer
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Metastore, SessionState, Watch
from merlot.security.door import Door
from merlot.security.peer_names import BROKERS
from merlot.security.tls import Certificates
from merlot.server.caches import set_bounds
from merlot.server.files import LocalSegmentFiles
from merlot.server.health import HealthSources, make_app
from merlot.server.indexing import index_threads
from merlot.server.realtime.handover import hand_over
from merlot.server.realtime.memory_budget import MemoryBudget
from merlot.server.realtime.poller import DecodeSlots
from merlot.server.realtime.secrets import read_secret
from merlot.server.realtime.table import StreamThreads
from merlot.server.rpc import QueryHandler
from merlot.server.scheduler import Scheduler, SchedulerConfig
from merlot.server.scrub import ScrubConfig, scrub
from merlot.server.settings import ServerSettings
from merlot.server.table_data_manager import TableDataDeps, TableDataManager
from merlot.server.tuning import ServerTuning
from merlot.spec.table import TableSpec
from merlot.store.allowed import AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.streams.allowed import EVERY_HOST, AllowedStreams
from merlot.streams.folders import AllowedFolders
from merlot.wakeups import WakeUp, run_on
from merlot.wire.endpoint import TcpEndpoint
from merlot.wire.handshakes import PeerTls
from merlot.wire.messages import ServerRequest, ServerResponse

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

SEAL_THREADS = 1
"""Threads that make segments of streams; rows come in meanwhile."""
STREAM_WRITE_THREADS = 4
"""Partitions that write to the metastore at a time; writes of one table queue anyway."""
LOOK_THREADS = 4
"""Streams that are asked for their state at a time."""
SNAPSHOT_THREADS = 1
"""Partitions of upsert tables whose checkpoint is written at a time."""
UPSERT_THREADS = 1
"""Partitions of upsert tables of batches whose index is built at a time."""
DECODE_THREADS = 2
"""Threads that decode messages of streams at a time."""

OpenDeepStore = Callable[[str], DeepStore]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Configuration of a server. `deep_store` is the cluster's, for tables that name none. Port 0: any; port None: no
    such endpoint."""

    data_dir: Path
    deep_store: str
    deep_store_prefixes: tuple[str, ...] = ()
    """Prefixes below which tables may name deep stores of their own, besides the cluster's."""
    host: str = "127.0.0.1"
    """Address by which others reach this server; it also listens on it, unless `bind_host` says otherwise."""
    bind_host: str | None = None
    http_port: int | None = 0
    query_port: int | None = 0
    instance: str | None = None
    """Name of the instance, by default Server_{host}_{query port}. Assignments go by it: it should outlive the
    process."""
    tenant: str = "default"
    zone: str = ""
    """Zone that may fail as a whole; empty if it is unknown."""
    grace_s: float = 60.0
    """Seconds for which a replaced or removed version is still served."""
    drain_linger_s: float = 2.0
    """Seconds for which queries are still answered after the server is hidden from brokers."""
    drain_timeout_s: float = 30.0
    warm_up_s: float | None = None
    """Seconds to wait at the start until the query kernels are loaded; 0: load them meanwhile; None: when a query needs
    one."""
    scrub: ScrubConfig = field(default_factory=ScrubConfig)
    settings: ServerSettings = field(default_factory=ServerSettings)
    stream_hosts: tuple[str, ...] = (EVERY_HOST,)
    """Patterns of hosts that streams of tables may name."""
    stream_folders: tuple[str, ...] = ()
    """Folders below which streams of files may be."""
    hand_over_s: float = 0.0
    """Longest wait, in seconds, of a stop until what this server consumes is committed, or consumed elsewhere."""
    secrets_dir: Path | None = None
    """Folder with a subfolder per Secret, whose files are properties of stream clients."""
    certificates: Certificates | None = None
    """Certificates of its ports; None: no TLS."""
    peers: tuple[str, ...] = BROKERS
    """With certificates: patterns of the names of brokers, which alone may send queries."""
    tuning: ServerTuning = field(default_factory=ServerTuning)


class ServerRole:
    """Server on the running event loop."""

    def __init__(
        self,
        metastore: Metastore,
        config: ServerConfig,
        *,
        open_deep_store: OpenDeepStore = DeepStore,
        clock: Clock | None = None,
        door: Door | None = None,
    ) -> None:
        self._metastore = metastore
        self._door = door or Door()
        self._config = config
        self._clock = clock or SystemClock()
        self._open_deep_store = open_deep_store
        self._stores: dict[str, DeepStore] = {}
        self._allowed = AllowedStores(own=config.deep_store, prefixes=config.deep_store_prefixes)
        self._io = ThreadPoolExecutor(2, thread_name_prefix="server-io")
        self._loads = ThreadPoolExecutor(config.settings.load_threads, thread_name_prefix="server-load")
        self._indexes = index_threads()
        self._upserts = ThreadPoolExecutor(UPSERT_THREADS, thread_name_prefix="server-upsert")
        self._seals = ThreadPoolExecutor(SEAL_THREADS, thread_name_prefix="server-seal")
        self._stream_writes = ThreadPoolExecutor(STREAM_WRITE_THREADS, thread_name_prefix="server-stream-write")
        self._looks = ThreadPoolExecutor(LOOK_THREADS, thread_name_prefix="server-look")
        self._snapshots = ThreadPoolExecutor(SNAPSHOT_THREADS, thread_name_prefix="server-snapshot")
        self._scheduler = Scheduler(SchedulerConfig.of(config.settings))
        self._managers: dict[TableName, TableDataManager] = {}
        self._tasks: dict[TableName, asyncio.Task[None]] = {}
        self._background: list[asyncio.Task[None]] = []
        self._watches: list[Watch] = []
        self._tables_changed = WakeUp()
        set_bounds(config.settings)
        self._handler = QueryHandler(self._managers.get, self._scheduler, self._clock, config.host, config.settings)
        self._registration: Registration | None = None
        self._endpoint: TcpEndpoint | None = None
        self._http: HttpServer | None = None
        self._deps: TableDataDeps | None = None
        self._loop = asyncio.get_running_loop()
        self._was_lost = False
        self._is_draining = False
        self._behind: dict[TableName, frozenset[str] | None] = {}
        """Segments, by table, that the server was assigned when this process began and has not loaded yet; None if
        unknown."""
        self.http_port = 0
        self.query_port = 0

    @property
    def instance(self) -> InstanceId:
        """Name of the server in assignments and reports."""
        name = self._config.instance or f"Server_{self._config.host}_{self.query_port}"
        return InstanceId(name)

    @property
    def managers(self) -> Collection[TableDataManager]:
        """Managers of the tables that it knows."""
        return self._managers.values()

    async def handle(self, request: ServerRequest) -> ServerResponse:
        """Answer a request of an in-process channel."""
        return self._handler.answer_now(request) or await self._handler(request)

    def not_ready(self) -> str | None:
        """Return why another process should not stop for this one; None if it has caught up with what it missed while
        away.

        Queries come as soon as it is registered, for whatever it reports. What is assigned to it later takes nothing
        from what it serves: if a server were not ready at every load, it would look like a server that can be
        spared."""
        if self._is_draining:
            return "draining"
        if self._registration is None:
            return "starting"
        self._catch_up()
        return f"loading segments of {', '.join(sorted(self._behind))}" if self._behind else None

    def _catch_up(self) -> None:
        for name, before in list(self._behind.items()):
            manager = self._managers.get(name)
            missing = frozenset[str]() if manager is None else manager.missing
            left = missing if before is None or missing is None else before & missing
            if left == frozenset():
                del self._behind[name]
            else:
                self._behind[name] = left

    async def start(self) -> None:
        """Become visible to brokers, with all segments that are on the disk. Raises UnavailableError if a port is
        taken."""
        bind_host = self._config.bind_host or self._config.host
        warming = self._start_warming()
        await self._start_http(bind_host)
        if self._config.query_port is not None:
            self._endpoint = TcpEndpoint(
                self._handler,
                lambda: self.instance,
                answer_now=self._handler.answer_now,
                clock=self._clock,
            )
            self.query_port = self._endpoint.bind(bind_host, self._config.query_port)
        self._deps = self._make_deps()
        changed = self._tables_changed.call
        self._watches.append(await self._in_io(lambda: self._metastore.watch_children(paths.TABLES, changed)))
        self._watches.append(self._metastore.on_session(self._on_session))
        await self._follow_tables(await self._in_io(lambda: table_names(self._metastore)))
        self._behind = {manager.table: manager.missing for manager in self.managers}
        await self._in_io(self._sweep_unknown_tables)
        if warming is not None:
            await asyncio.to_thread(warming.join, self._config.warm_up_s)
        if self._endpoint is not None:
            await self._endpoint.start(self._peer_tls())
        self._registration = await self._in_io(lambda: register(self._metastore, self._record()))
        self._background.append(self._loop.create_task(self._clear_mark()))
        self._background.append(self._loop.create_task(self._watch_tables()))
        self._background.append(self._loop.create_task(scrub(lambda: self.managers, self._config.scrub)))
        _LOG.info(
            "server started instance=%s query_port=%d http_port=%d", self.instance, self.query_port, self.http_port
        )

    async def drain(self) -> None:
        """Hand over what is consumed, hide from brokers and let queries end; `stop` must follow."""
        self._is_draining = True
        _LOG.info("server drains instance=%s", self.instance)
        await self._hand_over()
        registration = self._registration
        if registration is not None:
            await self._in_io(registration.close)
        for manager in self.managers:
            with contextlib.suppress(MerlotError):
                await manager.withdraw()
        await asyncio.sleep(self._config.drain_linger_s)
        self._handler.is_draining = True
        if not await self._scheduler.wait_idle(self._config.drain_timeout_s):
            _LOG.warning("queries still run, given up instance=%s", self.instance)

    async def _hand_over(self) -> None:
        """Wait until the controller has handed over consumed partitions; the server stays visible and answers
        meanwhile."""
        consuming = [manager.table for manager in self.managers if manager.has_stream]
        if consuming and self._config.hand_over_s:
            await asyncio.to_thread(
                hand_over, self._metastore, self.instance, consuming, self._config.hand_over_s, self._clock
            )

    async def stop(self) -> None:
        """End now; queries that still run are cut off. Files stay, for the next start."""
        self._is_draining = self._handler.is_draining = True
        for watch in self._watches:
            watch.cancel()
        if self._registration is not None:
            await self._in_io(self._registration.close)
        tasks = [*self._background, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._endpoint is not None:
            await self._endpoint.stop(grace_s=0.5)
        if self._http is not None:
            await self._http.stop()
        for manager in self.managers:
            manager.segments.close()
        self._scheduler.close()
        await asyncio.to_thread(self._close_threads)
        _LOG.info("server stopped instance=%s", self.instance)

    def _close_threads(self) -> None:
        self._loads.shutdown(wait=True, cancel_futures=True)
        self._indexes.shutdown(wait=True, cancel_futures=True)
        self._upserts.shutdown(wait=True, cancel_futures=True)
        self._seals.shutdown(wait=True, cancel_futures=True)
        self._snapshots.shutdown(wait=True, cancel_futures=True)
        self._stream_writes.shutdown(wait=True, cancel_futures=True)
        self._looks.shutdown(wait=True, cancel_futures=True)
        self._io.shutdown(wait=True)

    async def _start_http(self, bind_host: str) -> None:
        if self._config.http_port is None:
            return
        app = make_app(HealthSources(self.not_ready, lambda: self.managers))
        app[DOOR] = self._door
        self._http = HttpServer(app, certificates=self._config.certificates)
        self.http_port = await self._http.start(bind_host, self._config.http_port)

    def _peer_tls(self) -> PeerTls | None:
        certificates = self._config.certificates
        return None if certificates is None else PeerTls(certificates, self._config.peers)

    def _start_warming(self) -> threading.Thread | None:
        if self._config.warm_up_s is None:
            return None
        from merlot.kernels.warm import start_loading

        # A broker in another process would not know that a query waits for a compiler.
        return start_loading(compiles=self._config.query_port is not None)

    def _make_deps(self) -> TableDataDeps:
        consuming_bytes = self._config.settings.consuming_bytes or memory.total_bytes() // 4
        return TableDataDeps(
            metastore=self._metastore,
            instance=self.instance,
            files=LocalSegmentFiles(self._config.data_dir, self._config.tuning.files),
            io=self._io,
            loads=self._loads,
            indexes=self._indexes,
            clock=self._clock,
            store_of=self._store_of,
            grace_s=self._config.grace_s,
            load_threads=self._config.settings.load_threads,
            upserts=self._upserts,
            tuning=self._config.tuning,
            streams=StreamThreads(
                seals=self._seals,
                writes=self._stream_writes,
                looks=self._looks,
                snapshots=self._snapshots,
                turns=DecodeSlots(DECODE_THREADS, consuming_bytes // 8),
                memory=MemoryBudget(consuming_bytes),
                folder=self._config.data_dir / "sealing",
                snapshot_folder=self._config.data_dir / "snapshots",
                secrets_of=partial(read_secret, self._config.secrets_dir),
                allowed=AllowedStreams(self._config.stream_hosts, AllowedFolders(self._config.stream_folders)),
            ),
        )

    def _record(self) -> InstanceRecord:
        return InstanceRecord(
            id=self.instance,
            role=Role.SERVER,
            host=self._config.host,
            http_port=self.http_port,
            query_port=self.query_port,
            tenant=self._config.tenant,
            zone=self._config.zone,
            started_ms=self._clock.now_ms(),
            version=__version__,
            tls=self._config.certificates is not None,
        )

    def _store_of(self, spec: TableSpec) -> DeepStore:
        """Return the deep store of a table. Any thread: if two open one store at once, it does no harm."""
        uri = self._allowed.uri_of(spec.deep_store_uri)
        assert uri is not None
        store = self._stores.get(uri)
        if store is None:
            store = self._stores[uri] = self._open_deep_store(uri)
        return store

    async def _clear_mark(self) -> None:
        """Clear the drain mark: the stop is over, and brokers may come again."""
        while True:
            try:
                await self._in_io(lambda: unmark(self._metastore, self.instance))
            except MerlotError as error:
                _LOG.warning("drain mark not cleared instance=%s cause=%s", self.instance, error)
                await asyncio.sleep(self._config.tuning.tables.retry_s)
            else:
                return

    async def _watch_tables(self) -> None:
        while True:
            await self._tables_changed.wait()
            try:
                await self._follow_tables(await self._in_io(lambda: table_names(self._metastore)))
                continue
            except MerlotError as error:
                _LOG.warning("tables not read, kept as they are cause=%s", error)
            except Exception:  # noqa: BLE001 - the outermost loop
                _LOG.exception("tables not followed instance=%s", self.instance)
            self._loop.call_later(self._config.tuning.tables.retry_s, self._tables_changed.call)

    async def _follow_tables(self, names: Collection[TableName]) -> None:
        """Keep a manager per table. New managers open what is on the disk first; those of dropped tables clean up. A
        manager whose task has ended is that of a table which was deleted, and perhaps applied again."""
        assert self._deps is not None
        for name in [name for name, task in self._tasks.items() if _has_ended(task) and name in names]:
            await self._drop_table(name)
        new = [TableDataManager(name, self._deps) for name in names if name not in self._managers]
        await asyncio.gather(*(self._open_table(manager) for manager in new))
        for name in [name for name in self._managers if name not in names]:
            await self._drop_table(name)

    async def _open_table(self, manager: TableDataManager) -> None:
        try:
            await manager.open_local()
        except NotFoundError:
            return  # dropped meanwhile
        except MerlotError as error:
            # Such as a manifest of another version, or a damaged record. The other tables are served; the manager of
            # this one goes on trying.
            _LOG.error("table cannot be read, it is not served until it can table=%s cause=%s", manager.table, error)
        self._managers[manager.table] = manager
        task = self._tasks[manager.table] = asyncio.create_task(manager.run())
        task.add_done_callback(lambda _: self._tables_changed.call())

    async def _drop_table(self, name: TableName) -> None:
        manager, task = self._managers.pop(name), self._tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        try:
            await manager.forget()
        except MerlotError as error:
            _LOG.warning("files of a dropped table stay until the next start table=%s cause=%s", name, error)
        _LOG.info("table dropped table=%s", name)

    def _sweep_unknown_tables(self) -> None:
        assert self._deps is not None
        for name in self._deps.files.tables():
            if name not in self._managers:
                self._deps.files.sweep(name, ())

    def _on_session(self, state: SessionState) -> None:
        """Rewrite reports after a lost session: nothing that was written can be taken for granted. Called on a thread
        of the metastore."""
        if state is SessionState.LOST:
            self._was_lost = True
        elif state is SessionState.CONNECTED and self._was_lost:
            self._was_lost = False
            run_on(self._loop, self._rewrite_reports)

    def _rewrite_reports(self) -> None:
        for manager in self.managers:
            manager.rewrite_report()
            manager.wake()

    async def _in_io(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._io, work)


def _has_ended(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
