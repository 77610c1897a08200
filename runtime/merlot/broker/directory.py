"""All tables and servers of the cluster, as the broker knows them.

Survives a silent metastore: what cannot be read stays as it was last seen, and a server that lost its ephemeral stays
in the routing for a while (`health`). Belongs to the event loop; metastore callbacks only poke.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from merlot.broker.asking.channels import Channels
from merlot.broker.refresher import Refresher
from merlot.broker.routing.health import CallOutcome, ServerHealth, Standing
from merlot.broker.tables import ServedTable, TableSources, TableWatch
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
    """Finds a table by name; keeps the tables' routes current with servers and segments."""

    def __init__(self, metastore: Metastore, channels: Channels, clock: Clock) -> None:
        self._metastore = metastore
        self._channels = channels
        self._clock = clock
        self._health = ServerHealth()
        self._executor = ThreadPoolExecutor(NUM_READERS, thread_name_prefix="broker-watch")
        self._tables: dict[TableName, ServedTable] = {}
        self._by_spelling: dict[str, TableName] = {}
        self._watches: dict[TableName, TableWatch] = {}
        self._drains: Mapping[InstanceId, DrainRecord] = {}
        self._live: frozenset[InstanceId] = frozenset()
        self._subscriptions: list[Watch] = []
        self._brokers: Mapping[InstanceId, InstanceRecord] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called on the event loop after anything changed that `tables` or `drains` tell."""
        self._tables_refresher = Refresher("tables", self._refresh_tables)
        self._servers_refresher = Refresher("servers", self._refresh_servers)

    async def start(self) -> None:
        """Read everything once, so that the first query finds its table. UnavailableError if nobody answers."""
        await self._in_thread(self._subscribe)
        await self._refresh_servers()
        await self._refresh_tables()
        self._servers_refresher.start()
        self._tables_refresher.start()

    async def settle(self, patience_s: float) -> None:
        """Wait, so long at most, for tables that a stuttering metastore has not told of yet: a broker without them
        would answer that they do not exist."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not all(watch.is_settled for watch in self._watches.values()):
                    await asyncio.sleep(SETTLE_S)

    async def stop(self) -> None:
        """Follow no more."""
        await self._tables_refresher.stop()
        await self._servers_refresher.stop()
        await asyncio.gather(*(watch.stop() for watch in self._watches.values()))
        await self._in_thread(self._unsubscribe)
        self._executor.shutdown(wait=False)

    def find(self, name: str) -> ServedTable | None:
        """The table that SQL names: with or without a type, in any case if only one fits. Whether the type is one of
        its halves, `ServedTable.check_spelled` tells."""
        table = self._by_spelling.get(name) or self._by_spelling.get(name.lower())
        return None if table is None else self._tables.get(table)

    @property
    def tables(self) -> Mapping[TableName, ServedTable]:
        """Every table that can be queried."""
        return self._tables

    @property
    def num_brokers(self) -> int:
        """Live ones, this one included."""
        return max(1, len(self._brokers))

    @property
    def drains(self) -> Mapping[InstanceId, DrainRecord]:
        """Marked servers: asked only for what nobody else has."""
        return self._drains

    async def live_brokers(self) -> Mapping[InstanceId, InstanceRecord]:
        """Brokers that are announced now, this one included; as they were last seen while the metastore is silent."""
        with contextlib.suppress(UnavailableError):
            self._brokers = await self._in_thread(lambda: live_instances(self._metastore, Role.BROKER))
        return self._brokers

    def report_call(self, instance: InstanceId, outcome: CallOutcome) -> None:
        """A call to a server ended; routes follow if that changes its standing."""
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
            metastore=self._metastore, executor=self._executor, clock=self._clock, standings=self._standings
        )
        return TableWatch(name, sources, lambda served: self._set(name, served))

    def _standings(self) -> Mapping[InstanceId, Standing]:
        """As their health has them; a marked server is at best a backup, and once it no longer announces itself it has
        stopped, as it was told to."""
        standings = self._health.standings(self._clock.monotonic())
        return {
            one: Standing.BACKUP if one in self._drains else standing
            for one, standing in standings.items()
            if one not in self._drains or one in self._live
        }

    def _set(self, name: TableName, served: ServedTable | None) -> None:
        is_known = name in self._tables
        if served is not None:
            self._tables[name] = served
        else:
            self._tables.pop(name, None)
        if is_known != (served is not None):
            self._by_spelling = _spellings(self._tables)
        self.on_change()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _spellings(tables: Mapping[TableName, ServedTable]) -> dict[str, TableName]:
    """Exact names win over names in lower case; a lower-case spelling of two tables means neither."""
    exact: dict[str, TableName] = {}
    lowered: dict[str, list[TableName]] = {}
    for table in tables:
        for spelling in (str(table), str(raw_name(table)), str(realtime(raw_name(table)))):
            exact[spelling] = table
            lowered.setdefault(spelling.lower(), []).append(table)
    return {text: found[0] for text, found in lowered.items() if len(found) == 1} | exact
