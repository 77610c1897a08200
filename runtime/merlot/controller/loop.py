"""The controller's loop: wakes by watches and a slow timer, decides under the lease, writes with its fence.

It runs on an event loop. Blocking calls run in one thread at a time, so the state here needs no lock except for the
names that watches leave. Losing the lease or the metastore ends a round, and so does a bug, but never the loop.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial

from merlot import telemetry
from merlot.clock import Clock, SystemClock
from merlot.cluster import paths
from merlot.cluster.instances.drains import marks, unmark
from merlot.cluster.instances.echoes import echoing, remove_echo
from merlot.cluster.instances.leases import Lease
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.instances.rebalances import forget_rebalance, rebalances
from merlot.cluster.instances.reports import remove_report
from merlot.cluster.losses import find_lost, lost_tables
from merlot.cluster.manifests.tables import readable_tables
from merlot.cluster.records import DrainRecord, InstanceRecord, RebalanceRecord, Role, TableRecord
from merlot.cluster.segments.transaction import WriteContext, mutate, sweep
from merlot.cluster.segments.view import TableView
from merlot.controller.cleaning.catalog_store import OpenCatalogStore
from merlot.controller.cleaning.catalogs import Catalogs
from merlot.controller.cleaning.cleaner import TRASH_S, CleaningConfig, TableCleaner
from merlot.controller.cleaning.manifest_copies import ManifestCopies
from merlot.controller.cleaning.sure_time import SureClock
from merlot.controller.cleaning.trash import OpenFiles, Pass, empty_trash
from merlot.controller.placement.assignment import Servers
from merlot.controller.placement.moves import Situation
from merlot.controller.placement.rebalance import is_balancing
from merlot.controller.placement.reconcile import decide, is_moving
from merlot.controller.placement.table_follower import TableFollower
from merlot.controller.realtime import boundary
from merlot.controller.realtime.following import follow_stream
from merlot.controller.tuning import ControllerTuning
from merlot.errors import (
    ConflictError,
    InvalidInputError,
    MerlotError,
    NotFoundError,
    UnavailableError,
)
from merlot.ids import InstanceId, TableName
from merlot.metastore.protocol import Check, Metastore, Watch
from merlot.spec.table import TableSpec
from merlot.wakeups import OwnThread, WakeUp

_LOG = logging.getLogger(__name__)

LEASE = "controller"
WATCHED = (paths.TABLES, paths.LIVE, paths.lease(LEASE), paths.DRAINS, paths.REBALANCES, paths.LOST)
"""Nodes whose children concern every table."""
UNCONFIRMED_S = 5.0
"""Longest time between two looks at a new table whose deep store does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """Owner of the lease, and durations in seconds."""

    owner: str
    """Instance id of the controller."""
    resync_s: float = 60.0
    """Longest time between two looks at everything, whatever the watches say."""
    tuning: ControllerTuning = field(default_factory=ControllerTuning)
    server_grace_s: float = 300.0
    """Time for which a silent server keeps its segments; a restart takes less."""
    file_grace_s: float = TRASH_S
    """Time for which files of removed segments are kept: servers may still fetch them, and users may want them back."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """State that concerns every table: live servers, those that shall stop, and requested rebalances."""

    live: Mapping[InstanceId, InstanceRecord]
    drains: Mapping[InstanceId, DrainRecord] = field(compare=False)
    """Marked servers. They are not compared: servers that come back keep their segments, and only streams are looked
    at."""
    leaving: Set[InstanceId]
    rebalances: Mapping[TableName, RebalanceRecord]


class ControllerLoop:
    """Owner of the controller's lasting state. Run `run` as a task, and cancel it to stop."""

    def __init__(
        self,
        metastore: Metastore,
        config: LoopConfig,
        *,
        open_files: OpenFiles | None = None,
        open_catalog_store: OpenCatalogStore | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._metastore = metastore
        self._config = config
        self._open_files = open_files
        self._clock = clock or SystemClock()
        self._sure = SureClock(metastore, self._clock)
        self._cleaner = TableCleaner(metastore, config.cleaning, open_files, self._clock, self._sure)
        self._catalogs = Catalogs(metastore, open_catalog_store, self._clock)
        self._manifests = ManifestCopies(metastore, open_catalog_store, self._clock)
        self._process = f"{config.owner}.{secrets.token_hex(5)}"
        """Name of this process. Another process of the same owner must not pardon what this one has condemned."""
        self._lease: Lease | None = None
        self._tables: dict[TableName, TableFollower] = {}
        self._cluster: _Cluster | None = None
        self._silent_brokers: Set[InstanceId] = frozenset()
        self._lost: set[TableName] = set()
        self._silent_since: dict[InstanceId, float] = {}
        self._next_resync = float("-inf")
        self._watches: list[Watch] = []
        self._wake: Callable[[], None] = lambda: None
        self._round_lock = threading.Lock()
        self._lock = threading.Lock()
        self._dirty: set[TableName] = set()

    @property
    def is_leader(self) -> bool:
        """Return whether this controller led in its last round."""
        return self._lease is not None

    @property
    def fence(self) -> Check | None:
        """Return the check that other writes of the leader carry; None unless this controller led in its last round."""
        lease = self._lease
        return None if lease is None else lease.fence

    async def run(self) -> None:
        """Run until cancelled; then release the lease."""
        wake_up = WakeUp()
        self._wake = wake_up.call
        with OwnThread("controller-round") as thread:
            try:
                while True:
                    await wake_up.wait(await thread.run(self.round))
            finally:
                await thread.run(self.close)

    def round(self) -> float:
        """Look, decide and act once; return the number of seconds to wait for a wake-up. Blocks."""
        with self._round_lock:
            pause_s = self._round()
        telemetry.CONTROLLER_IS_LEADER.set(self.is_leader)
        return pause_s

    def _round(self) -> float:
        try:
            self._watch_cluster()
            if self._lead():
                return self._act()
        except ConflictError as error:
            _LOG.info("round ends, another one leads or writes cause=%s", error)
        except MerlotError as error:
            _LOG.warning("round failed cause=%s", error)
        except Exception:  # noqa: BLE001 - the outermost loop: without it nobody would assign or clean up any more
            _LOG.exception("round failed by a bug")
        self._cluster = None
        return self._config.tuning.retry_s

    def close(self) -> None:
        """Cancel the watches and release the lease, after the round under way. Blocks."""
        with self._round_lock:
            self._close()

    def _close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches = []
        self._forget_tables()
        if self._lease is not None:
            self._lease.release(self._metastore)
            self._lease = None

    def _watch_cluster(self) -> None:
        for path in WATCHED[len(self._watches) :]:
            self._watches.append(self._metastore.watch_children(path, self._wake))

    def _lead(self) -> bool:
        """Return whether this controller holds the lease; take it if it is free. A new leader looks at everything."""
        if self._lease is not None and self._lease.is_held(self._metastore):
            return True
        if self._lease is not None:
            _LOG.warning("controller lost its lease owner=%s version=%d", self._lease.owner, self._lease.version)
        self._lease = Lease.acquire(self._metastore, LEASE, self._config.owner, self._clock)
        if self._lease is not None:
            _LOG.info("controller leads owner=%s version=%d", self._lease.owner, self._lease.version)
            self._forget_tables()
            self._next_resync = float("-inf")
        return self._lease is not None

    def _forget_tables(self) -> None:
        """Forget what was read under another lease: another metastore may have other tables under the same
        revisions."""
        for table in self._tables.values():
            table.close()
        self._tables = {}

    def _act(self) -> float:
        assert self._lease is not None
        self._sure.lead(self._lease)
        self._catalogs.lead(self._lease)
        self._manifests.lead(self._lease)
        now = self._clock.monotonic()
        is_resync = now >= self._next_resync
        records, unreadable = readable_tables(self._metastore)
        for name in self._tables.keys() - records.keys() - unreadable:
            self._tables.pop(name).close()
            self._catalogs.forget(name)
        cluster = self._read_cluster()
        is_everything = is_resync or cluster != self._cluster or self._has_grace_ended(now)
        dirty = self._take_dirty() | {name for name, table in self._tables.items() if table.is_backfilled}
        lost = set(lost_tables(self._metastore))
        unconfirmed = {name for name, record in records.items() if record.is_unconfirmed}
        dirty |= lost ^ self._lost | unconfirmed
        self._lost = lost
        if self._cluster is not None and cluster.drains.keys() != self._cluster.drains.keys():
            dirty |= {name for name, table in self._tables.items() if table.has_stream}
        for name, record in records.items():
            if is_everything or name in dirty or name not in self._tables:
                self._try(name, partial(self._reconcile, self._table(name), record, cluster))
        if records and not unreadable:  # an empty metastore may have lost tables that will be applied again
            self._catalogs.settle()
        if is_resync:
            if unreadable:
                _LOG.error("nothing is cleaned while records cannot be read tables=%s", ",".join(sorted(unreadable)))
            else:
                self._clean(records, cluster)
                self._manifests.keep(records)
            self._next_resync = now + self._config.resync_s
        self._cluster = cluster
        self._forget_silent()
        return min(self._pause_s(now), UNCONFIRMED_S) if unconfirmed else self._pause_s(now)

    def _read_cluster(self) -> _Cluster:
        drains = marks(self._metastore)
        return _Cluster(
            live=live_instances(self._metastore, Role.SERVER),
            drains=drains,
            leaving=frozenset(server for server, mark in drains.items() if mark.leaving),
            rebalances=rebalances(self._metastore),
        )

    def _forget_silent(self) -> None:
        """Forget silent servers that hold no segments any more."""
        if self._silent_since:
            views = [table.view for table in self._tables.values() if table.view is not None]
            assigned = {server for view in views for servers in view.assignment.values() for server in servers}
            self._silent_since = {server: since for server, since in self._silent_since.items() if server in assigned}

    def _table(self, name: TableName) -> TableFollower:
        if name not in self._tables:
            self._tables[name] = TableFollower(self._metastore, name, partial(self._mark, name))
        return self._tables[name]

    def _mark(self, name: TableName) -> None:
        """Mark the table to be looked at. Runs on the metastore's thread."""
        with self._lock:
            self._dirty.add(name)
        self._wake()

    def _take_dirty(self) -> set[TableName]:
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        return dirty

    def _try(self, name: TableName, act: Callable[[], None]) -> None:
        """Run what concerns one table. A table that cannot be read, that others write all the time, or that meets a bug
        must not stop the others. Raise UnavailableError, and ConflictError if the lease is lost."""
        assert self._lease is not None
        try:
            act()
        except NotFoundError:
            _LOG.info("table went away table=%s", name)
        except UnavailableError:
            raise
        except ConflictError as error:
            if not self._lease.is_held(self._metastore):
                raise
            _LOG.info("table is reconciled later, others write it now table=%s cause=%s", name, error)
            with self._lock:
                self._dirty.add(name)
        except Exception:  # noqa: BLE001 - the outermost of a table
            telemetry.CONTROLLER_PASSES.labels("failed").inc()
            _LOG.exception("table cannot be reconciled table=%s", name)

    def _reconcile(self, table: TableFollower, record: TableRecord, cluster: _Cluster) -> None:
        assert self._lease is not None
        spec = table.spec(record)
        view = table.refresh()
        if self._catalogs.is_lost(record, view):
            return
        servers = self._servers_of(spec, view, cluster)
        situation = Situation(
            spec=spec,
            servers=servers,
            now_ms=self._clock.now_ms(),
            sure_ms=self._sure.past_ms(),
            loaded=table.loaded(),
            balance=is_balancing(cluster.rebalances.get(table.name), servers.live),
        )
        table.view = mutate(
            self._metastore,
            table.name,
            lambda view: decide(view, situation),
            self._lease.fence,
            previous=view,
            context=WriteContext(clock=self._clock),
        )
        if spec.ingestion.stream is not None:
            table.watch_stream()
            table.upsert_watch.follow(None if spec.upsert is None else spec.upsert.config_ref)
            draining = cluster.drains.keys() & servers.live | servers.leaving
            table.view, table.is_backfilled = follow_stream(
                self._metastore, table.view, situation, self._clock, self._lease.fence, draining
            )
        self._follow_boundary(table, situation)
        has_changed = table.view.epoch != view.epoch
        telemetry.CONTROLLER_PASSES.labels("changed" if has_changed else "unchanged").inc()
        self._catalogs.keep(record, table.view, spec)
        if has_changed:
            _LOG.info("table reconciled table=%s epoch=%d", table.name, table.view.epoch)

    def _follow_boundary(self, table: TableFollower, situation: Situation) -> None:
        """Move a hybrid table's boundary. Keep reading reports while the boundary, or the place of segments, depends on
        them."""
        assert self._lease is not None
        assert table.view is not None
        spec, now_ms = situation.spec, situation.now_ms
        is_due = boundary.is_waiting(table.view, spec, now_ms)
        if is_due:
            loaded = table.loaded()
            table.view = mutate(
                self._metastore,
                table.name,
                lambda view: boundary.decide(view, spec, loaded, now_ms),
                self._lease.fence,
                previous=table.view,
                context=WriteContext(clock=self._clock),
            )
            is_due = boundary.is_waiting(table.view, spec, now_ms)
        is_moved = not spec.suspend and is_moving(table.view, spec.replication, situation.servers.leaving)
        table.follow_reports(is_due or is_moved)

    def _servers_of(self, spec: TableSpec, view: TableView, cluster: _Cluster) -> Servers:
        """Return the table's servers: live ones of its tenant; gone ones are silent for too long, or live in another
        tenant."""
        now = self._clock.monotonic()
        for server in cluster.live:
            self._silent_since.pop(server, None)
        assigned = {server for servers in view.assignment.values() for server in servers}
        if spec.suspend:
            # Its servers are meant to be silent; silence counts from when the table is resumed.
            for server in assigned:
                self._silent_since.pop(server, None)
            return Servers(live=frozenset())
        tenant = spec.tenants.server.name
        ours = frozenset(name for name, record in cluster.live.items() if record.tenant == tenant)
        gone = assigned & (cluster.live.keys() - ours)
        for server in assigned - cluster.live.keys():
            since = self._silent_since.setdefault(server, now)
            if now - since >= self._config.server_grace_s:
                gone.add(server)
        return Servers(
            live=ours - cluster.leaving,
            gone=frozenset(gone),
            leaving=cluster.leaving - gone,
            zones={server: record.zone for server, record in cluster.live.items()},
        )

    def _has_grace_ended(self, now: float) -> bool:
        return any(now - since >= self._config.server_grace_s for since in self._silent_since.values())

    def _pause_s(self, now: float) -> float:
        grace_ends = [since + self._config.server_grace_s for since in self._silent_since.values()]
        waits = [end - now for end in (self._next_resync, *grace_ends) if end > now]
        if self._dirty or any(table.is_backfilled for table in self._tables.values()):
            waits.append(self._config.tuning.retry_s)
        return max(0.01, min(waits, default=self._config.tuning.retry_s))

    def _clean(self, records: Mapping[TableName, TableRecord], cluster: _Cluster) -> None:
        """Remove what crashes and removals left behind."""
        assert self._lease is not None
        last_pass_ms = self._sure.begin_pass(self._lease.fence)
        for name, record in records.items():
            self._try(name, partial(self._clean_table, name, record, cluster.live))
        for name in cluster.rebalances.keys() - records.keys():
            forget_rebalance(self._metastore, name)
        self._clean_instances(cluster)
        if self._open_files is not None:
            grace_ms = round(self._config.file_grace_s * 1000)
            empty_trash(
                self._metastore,
                self._open_files,
                self._clock,
                grace_ms=grace_ms,
                cleaner=self._process,
                by=Pass(
                    sure=self._sure,
                    last_pass_ms=last_pass_ms,
                    spared=lost_tables(self._metastore),
                    views={name: table.view for name, table in self._tables.items() if table.view is not None},
                ),
            )

    def _clean_instances(self, cluster: _Cluster) -> None:
        """Remove marks of instances that neither live nor have segments, and echoes of brokers that are missing at two
        looks in a row."""
        views = [table.view for table in self._tables.values() if table.view is not None]
        assigned = {server for view in views for servers in view.assignment.values() for server in servers}
        live = live_instances(self._metastore).keys()
        for instance in cluster.drains.keys() - live - assigned:
            unmark(self._metastore, instance)
        silent = set(echoing(self._metastore)) - live
        for broker in silent & self._silent_brokers:
            remove_echo(self._metastore, broker)
        self._silent_brokers = silent

    def _clean_table(self, name: TableName, record: TableRecord, live: Mapping[InstanceId, InstanceRecord]) -> None:
        """Remove buckets that no root names, and reports of servers that neither live nor have segments; then let the
        cleaner clean the table."""
        assert self._lease is not None
        if find_lost(self._metastore, name) is not None or not self._catalogs.may_sweep(name):
            return
        num_deleted = sweep(self._metastore, name)
        if num_deleted:
            _LOG.info("unreferenced buckets deleted table=%s num_buckets=%d", name, num_deleted)
        view = self._table(name).refresh()
        assigned = {server for servers in view.assignment.values() for server in servers}
        reporting = {InstanceId(instance) for instance in self._metastore.children(paths.reports(name))}
        for instance in reporting - live.keys() - assigned:
            remove_report(self._metastore, name, instance)
        try:
            table = self._table(name)
            table.view = self._cleaner.clean(view, table.spec(record), self._lease.fence)
        except (UnavailableError, InvalidInputError) as error:
            _LOG.warning("table not cleaned table=%s cause=%s", name, error)
