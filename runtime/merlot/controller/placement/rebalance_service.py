"""Requests about rebalances: show the plan, start, show progress, abort. Blocking; any thread may call.

The loop makes the moves. This module only writes where the loop looks.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from merlot.clock import Clock
from merlot.cluster.instances.drains import marks
from merlot.cluster.instances.liveness import live_instances
from merlot.cluster.instances.rebalances import put_rebalance, rebalances
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.manifests.tables import get_table, spec_of
from merlot.cluster.records import RebalanceRecord, Role
from merlot.cluster.segments.transaction import Assign, WriteContext, mutate
from merlot.cluster.segments.view import TableView, load
from merlot.controller.placement import rebalance
from merlot.controller.placement.assignment import Servers
from merlot.controller.placement.rebalance import Loaded
from merlot.errors import ConflictError
from merlot.ids import TableName
from merlot.metastore.protocol import Metastore
from merlot.pinot.cluster_json import Json
from merlot.spec.table import TableSpec


class Rebalancing:
    """Rebalances of the tables of one cluster."""

    def __init__(self, metastore: Metastore, clock: Clock) -> None:
        self._metastore = metastore
        self._clock = clock

    def plan(self, name: str) -> Json:
        """Return what would move, without moving it."""
        table, spec = self._table(name)
        view = load(self._metastore, table)
        plan = rebalance.plan(view, self._servers(spec, view), spec.replication, is_strict=spec.is_strict)
        return rebalance.plan_json(table, plan, is_dry_run=True)

    def start(self, name: str) -> Json:
        """Have the loop even the loads out, also after an abort."""
        table, spec = self._table(name)
        if spec.suspend:
            raise ConflictError(f"table is suspended, it is left alone until that ends table={table}")
        view = load(self._metastore, table)
        plan = rebalance.plan(view, self._servers(spec, view), spec.replication, is_strict=spec.is_strict)
        record = RebalanceRecord(
            id=secrets.token_hex(5),
            started_ms=self._clock.now_ms(),
            num_replicas=plan.num_replicas,
            num_bytes=plan.num_bytes,
        )
        put_rebalance(self._metastore, table, record)
        return {**rebalance.plan_json(table, plan, is_dry_run=False), "id": record.id}

    def progress(self, name: str) -> Json:
        """Return how far the moves are, whatever began them."""
        table, spec = self._table(name)
        view = load(self._metastore, table)
        done = rebalance.progress(view, self._loaded(table), spec.replication)
        return rebalance.progress_json(table, done, rebalances(self._metastore).get(table))

    def abort(self, name: str) -> Json:
        """Leave segments where they are loaded, and loads uneven until the servers change or a rebalance is asked for.

        Repair goes on: missing replicas are replaced, and servers that are gone or leaving lose theirs."""
        table, spec = self._table(name)
        before = rebalances(self._metastore).get(table)
        servers = self._servers(spec, load(self._metastore, table)).live
        record = RebalanceRecord(
            id=secrets.token_hex(5) if before is None else before.id,
            started_ms=self._clock.now_ms() if before is None else before.started_ms,
            is_aborted=True,
            servers=tuple(sorted(servers)),
        )
        put_rebalance(self._metastore, table, record)
        loaded = self._loaded(table)

        def decide(view: TableView) -> Sequence[Assign]:
            changes = rebalance.abort(view, loaded, spec.replication)
            return [Assign(changes)] if changes else []

        mutate(self._metastore, table, decide, context=WriteContext(clock=self._clock))
        return self.progress(name)

    def _table(self, name: str) -> tuple[TableName, TableSpec]:
        record = get_table(self._metastore, name)
        return record.name, spec_of(record).spec

    def _loaded(self, table: TableName) -> Loaded:
        return {server: report.loaded for server, report in ReportReader(self._metastore, table).read().items()}

    def _servers(self, spec: TableSpec, view: TableView) -> Servers:
        """Return the servers as the loop sees them, except that silence does not matter: a silent server keeps its
        segments."""
        live = live_instances(self._metastore, Role.SERVER)
        leaving = frozenset(server for server, mark in marks(self._metastore).items() if mark.leaving)
        ours = frozenset(server for server, record in live.items() if record.tenant == spec.tenants.server.name)
        assigned = {server for servers in view.assignment.values() for server in servers}
        gone = frozenset(assigned & (live.keys() - ours))
        zones = {server: record.zone for server, record in live.items()}
        return Servers(live=ours - leaving, gone=gone, leaving=leaving - gone, zones=zones)
