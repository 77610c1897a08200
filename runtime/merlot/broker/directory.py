"""Find tables by name, and keep their routes current with the cluster's servers and segments.

If the metastore does not answer, everything stays as it was last read. A server that lost its ephemeral node stays in
the routing for a while (`health`). Belongs to the event loop; callbacks of the metastore only poke.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from merlot.broker.refresher import Refresher
from merlot.broker.routing.health import CallOutcome, ServerHealth, ServerStanding
from merlot.broker.scatter_gather.channels import Channels
from merlot.broker.tables import ServedTable, TableSources, TableWatch
from merlot.broker.tuning import BrokerTuning
from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.instances.drains import marks
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.records import DrainRecord, InstanceRecord, Role
from merlot.errors import UnavailableError
from merlot.ids import InstanceId, TableName, raw_name, realtime
from merlot.metastore.protocol import Metastore, Watch

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

NUM_READERS = 4
SETTLE_S = 0.05


class Directory:
    """All tables and servers of the cluster, as this broker knows them."""

    def __init__(
        self, metastore: Metastore, channels: Channels, clock: Clock, tuning: BrokerTuning | None = None
    ) -> None:
        self._metastore = metastore
        self._tuning = tuning or BrokerTuning()
        self._channels = channels
        self._clock = clock
        self._health = ServerHealth(self._tuning.suspect_s)
        self._executor = ThreadPoolExecutor(NUM_READERS, thread_name_prefix="broker-watch")
        self._tables: dict[TableName, ServedTable] = {}
        self._spellings = _Spellings()
        self._watches: dict[TableName, TableWatch] = {}
        self._drains: Mapping[InstanceId, DrainRecord] = {}
        self._live: frozenset[InstanceId] = frozenset()
        self._subscriptions: list[Watch] = []
        self._brokers: Mapping[InstanceId, InstanceRecord] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called on the event loop after a change of `tables` or `drains`."""
        self._tables_refresher = Refresher("tables", self._refresh_tables, retry_s=self._tuning.retry_s)
        self._servers_refresher = Refresher("servers", self._refresh_servers, retry_s=self._tuning.retry_s)

    async def start(self) -> None:
        """Read everything once, so that the first query finds its table. Raise UnavailableError if the metastore does
        not answer."""
        await self._in_thread(self._subscribe)
        await self._refresh_servers()
        await self._refresh_tables()
        self._servers_refresher.start()
        self._tables_refresher.start()

    async def settle(self, patience_s: float) -> None:
        """Wait, `patience_s` at most, until every table has been read or cannot be. A broker that lacks tables because
        the metastore stuttered would answer that they do not exist."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not all(watch.is_settled for watch in self._watches.values()):
                    await asyncio.sleep(SETTLE_S)

    async def stop(self) -> None:
        """Stop following tables and servers."""
        await self._tables_refresher.stop()
        await self._servers_refresher.stop()
        await asyncio.gather(*(watch.stop() for watch in self._watches.values()))
        await self._in_thread(self._unsubscribe)
        self._executor.shutdown(wait=False)

    def find(self, name: str) -> ServedTable | None:
        """Return the table that SQL names, with or without a type; in upper or lower case if only one table fits.
        `ServedTable.check_spelled` tells whether the type may be named."""
        table = self._spellings.find(name)
        return None if table is None else self._tables.get(table)

    @property
    def tables(self) -> Mapping[TableName, ServedTable]:
        """Tables that can be queried."""
        return self._tables

    @property
    def num_brokers(self) -> int:
        """Number of live brokers, this one included."""
        return max(1, len(self._brokers))

    @property
    def drains(self) -> Mapping[InstanceId, DrainRecord]:
        """Marks of servers that are about to stop: a marked server is asked only for segments that no other server
        has."""
        return self._drains

    async def live_brokers(self) -> Mapping[InstanceId, InstanceRecord]:
        """Return the brokers that are registered now, this one included. If the metastore does not answer, return those
        last seen."""
        with contextlib.suppress(UnavailableError):
            self._brokers = await self._in_thread(lambda: live_instances(self._metastore, Role.BROKER))
        return self._brokers

    def report_call(self, instance: InstanceId, outcome: CallOutcome) -> None:
        """Record how a call to a server ended; reroute if that changes the server's standing."""
        now = self._clock.monotonic()
        if self._health.observe_call(instance, outcome, now):
            _LOG.warning("server changes its standing instance=%s call=%s", instance, outcome.name)
            self._reroute(now)

    def _subscribe(self) -> None:
        servers, tables = self._servers_refresher, self._tables_refresher
        self._subscriptions = [
            self._metastore.watch_children(paths.LIVE, servers.poke),
            self._metastore.watch_children(paths.DRAINS, servers.poke),
            self._metastore.watch_children(paths.TABLES, tables.poke),
        ]

    def _unsubscribe(self) -> None:
        for subscription in self._subscriptions:
            subscription.cancel()

    async def _refresh_servers(self) -> None:
        everybody = await self._in_thread(lambda: live_instances(self._metastore))
        records = {name: record for name, record in everybody.items() if record.role is Role.SERVER}
        self._brokers = {name: record for name, record in everybody.items() if record.role is Role.BROKER}
        self._drains = await self._in_thread(lambda: marks(self._metastore))
        self._live = frozenset(records)
        now = self._clock.monotonic()
        self._health.observe_live({name: record.started_ms for name, record in records.items()}, now)
        self._channels.observe(records)
        self._reroute(now)
        self._channels.forget(set(self._health.standings(now)))
        self.on_change()

    def _reroute(self, now: float) -> None:
        for watch in self._watches.values():
            watch.routes_changed()
        next_change = self._health.next_change(now)
        if next_change is not None:
            self._servers_refresher.poke_in(next_change - now)

    async def _refresh_tables(self) -> None:
        names = {TableName(name) for name in await self._in_thread(lambda: self._metastore.children(paths.TABLES))}
        for name in self._watches.keys() - names:
            await self._watches.pop(name).stop()
            self._set(name, None)
        added = {name: self._new_watch(name) for name in sorted(names - self._watches.keys())}
        self._watches |= added
        await asyncio.gather(*(watch.start() for watch in added.values()))

    def _new_watch(self, name: TableName) -> TableWatch:
        sources = TableSources(
            metastore=self._metastore,
            executor=self._executor,
            clock=self._clock,
            standings=self._standings,
            retry_s=self._tuning.retry_s,
        )
        return TableWatch(name, sources, lambda served: self._set(name, served))

    def _standings(self) -> Mapping[InstanceId, ServerStanding]:
        """Return the standings by health, with marked servers as backups at best. A marked server without its ephemeral
        node has stopped as planned, and is left out."""
        standings = self._health.standings(self._clock.monotonic())
        return {
            instance: ServerStanding.BACKUP if instance in self._drains else standing
            for instance, standing in standings.items()
            if instance not in self._drains or instance in self._live
        }

    def _set(self, name: TableName, served: ServedTable | None) -> None:
        if served is None:
            self._tables.pop(name, None)
            self._spellings.remove(name)
        else:
            self._tables[name] = served
            self._spellings.add(name)
        self.on_change()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


class _Spellings:
    """Names of tables by the texts that mean them. Exact names win over lower-case ones; a lower-case spelling of two
    tables names neither. Any thread may search."""

    def __init__(self) -> None:
        self._exact: dict[str, TableName] = {}
        self._lowered: dict[str, tuple[TableName, ...]] = {}

    def find(self, text: str) -> TableName | None:
        """Return the table that a text means; None if there is none, or more than one."""
        lowered = text.lower()
        matches = self._lowered.get(lowered, ())
        return self._exact.get(text) or self._exact.get(lowered) or (matches[0] if len(matches) == 1 else None)

    def add(self, table: TableName) -> None:
        """Add a table, unless it is there."""
        if str(table) in self._exact:
            return
        for text in _texts(table):
            self._exact[text] = table
            self._lowered[text.lower()] = (*self._lowered.get(text.lower(), ()), table)

    def remove(self, table: TableName) -> None:
        """Remove a table, if it is there."""
        if str(table) not in self._exact:
            return
        for text in _texts(table):
            self._exact.pop(text, None)
            others = tuple(other for other in self._lowered.pop(text.lower(), ()) if other != table)
            if others:
                self._lowered[text.lower()] = others


def _texts(table: TableName) -> Collection[str]:
    """Return the texts that mean a table, with a type and without."""
    return {str(table), str(raw_name(table)), str(realtime(raw_name(table)))}
