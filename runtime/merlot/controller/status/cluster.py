"""Status of the cluster in one answer, for operators to watch. Pure: facts in, JSON-ready values out.

Counts are of what queries see. A segment is unavailable if answers lack it; the broker that lacks the most counts. A
new segment is not part of answers before it is loaded, and a replaced one is until then. A segment is loading if some
server that should have it neither has it nor reports why not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from merlot.cluster.instances.reports import ServerReport
from merlot.cluster.losses import LostRecord
from merlot.cluster.records import DrainRecord, EchoRecord, IndexingRecord, InstanceRecord, Role, TableRecord
from merlot.cluster.segments.view import TableView
from merlot.controller.placement.reconcile import is_moving
from merlot.ids import InstanceId, raw_name
from merlot.pinot.cluster_json import Json, unpartitioned
from merlot.spec.table import TableSpec

MAX_ERRORS = 5
"""Most messages shown per server and table; there may be thousands of a kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table as it was last read."""

    record: TableRecord
    spec: TableSpec
    view: TableView
    reports: Mapping[InstanceId, ServerReport]
    lost: LostRecord | None = None
    """The loss of records, if the metastore has lost part of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """The processes: those that live, the echoes of brokers, and those that are marked to stop."""

    live: Mapping[InstanceId, InstanceRecord]
    echoes: Mapping[InstanceId, EchoRecord]
    drains: Mapping[InstanceId, DrainRecord]

    @property
    def leaving(self) -> frozenset[InstanceId]:
        """Return the instances that shall stop for good."""
        return frozenset(instance for instance, mark in self.drains.items() if mark.leaving)

    def of_role(self, role: Role) -> list[InstanceId]:
        """Return the live instances of a role, sorted."""
        return sorted(instance for instance, record in self.live.items() if record.role is role)


def table_status(facts: TableFacts, cluster: ClusterFacts) -> Json:
    """Return a table's part of `GET /status`."""
    view, name = facts.view, raw_name(facts.view.table)
    servers = _servers_of(facts, cluster)
    states = {server: _ServerState.of(server, facts) for server in servers}
    echoes = {broker: cluster.echoes.get(broker, EchoRecord()) for broker in cluster.of_role(Role.BROKER)}
    brokers = {
        broker: {"revision": echo.revisions.get(view.table, 0), "problems": list(echo.problems.get(view.table, ()))}
        for broker, echo in echoes.items()
    }
    return {
        "name": name,
        "revision": facts.record.revision,
        "adoptedSegments": facts.record.num_adopted,
        "updatedMs": facts.record.updated_ms,
        "suspended": facts.spec.suspend,
        "metastoreLost": "" if facts.lost is None else facts.lost.to_text(view.table),
        "unconfirmed": facts.record.is_unconfirmed,
        "replication": facts.spec.replication,
        "segments": len(view.visible),
        "totalDocs": view.total_docs,
        "sizeBytes": view.size_bytes,
        "segmentsUnavailable": _num_unavailable(facts, cluster),
        "segmentsLoading": sum(len(state.missing) for state in states.values()),
        "indexes": _indexes_json(facts, states.values(), cluster),
        "segmentsFailed": len({key for state in states.values() for key in state.errors}),
        "unpartitioned": sum(bool(unpartitioned(record, facts.spec)) for record in view.visible.values()),
        "moving": is_moving(view, facts.spec.replication, cluster.leaving),
        "servers": {server: _server_json(state, facts, cluster) for server, state in states.items()},
        "brokers": brokers,
    }


def instances_status(cluster: ClusterFacts, tables: Mapping[str, Json]) -> Json:
    """Return live and marked instances. A marked one is drained if it is so in every table."""
    instances = sorted({*cluster.live, *cluster.drains})
    return {instance: _instance_json(instance, cluster, tables) for instance in instances}


def is_drained(server: InstanceId, table: str, cluster: ClusterFacts, num_assigned: int) -> bool:
    """Return whether a marked server may stop as far as this table goes: every live broker routes around it.

    A server that leaves for good has to be rid of its segments first. A broker that has not confirmed this very mark
    counts as one that routes to the server."""
    mark = cluster.drains.get(server)
    if mark is None or (mark.leaving and num_assigned):
        return False
    echoes = [cluster.echoes.get(broker) for broker in cluster.of_role(Role.BROKER)]
    return all(
        echo is not None and echo.drains.get(server) == mark.token and table not in echo.busy.get(server, ())
        for echo in echoes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServerState:
    server: InstanceId
    report: ServerReport | None
    num_assigned: int
    num_loaded: int
    errors: Mapping[str, str]
    missing: frozenset[str]

    @staticmethod
    def of(server: InstanceId, facts: TableFacts) -> _ServerState:
        report = facts.reports.get(server)
        segments = facts.view.segments
        records = [
            segments[name] for name, servers in facts.view.assignment.items() if server in servers and name in segments
        ]
        assigned = {str(record.key) for record in records}
        loaded = frozenset() if report is None else report.loaded & assigned
        # Segments that are consumed have no file to load; the status of the stream covers them.
        files = {str(record.key) for record in records if not record.is_open}
        failed = {} if report is None else {key: report.errors[key] for key in report.errors if key in files}
        return _ServerState(
            server=server,
            report=report,
            num_assigned=len(assigned),
            num_loaded=len(loaded),
            errors={key: failed[key] for key in sorted(failed)},
            missing=frozenset(files - loaded - failed.keys()),
        )


def _servers_of(facts: TableFacts, cluster: ClusterFacts) -> list[InstanceId]:
    """Return the live servers of the table's tenant, and those that have segments of the table."""
    tenant = facts.spec.tenants.server.name
    live = {server for server in cluster.of_role(Role.SERVER) if cluster.live[server].tenant == tenant}
    return sorted(live | {server for servers in facts.view.assignment.values() for server in servers})


def _num_unavailable(facts: TableFacts, cluster: ClusterFacts) -> int:
    """Return the greatest number of segments that a broker misses; if no broker reports it, the number that no live
    server has."""
    table = facts.view.table
    echoes = (cluster.echoes.get(broker) for broker in cluster.of_role(Role.BROKER))
    counts = [
        echo.missed.get(table, 0)
        for echo in echoes
        if echo is not None and echo.missed is not None and table in echo.revisions
    ]
    return max(counts) if counts else len(_unavailable(facts, cluster))


def _unavailable(facts: TableFacts, cluster: ClusterFacts) -> set[str]:
    answered: set[str] = set()
    for server, report in facts.reports.items():
        if server in cluster.live:
            answered |= report.loaded
    return {key for key in map(str, (record.key for record in facts.view.visible.values())) if key not in answered}


def _server_json(state: _ServerState, facts: TableFacts, cluster: ClusterFacts) -> Json:
    mark = cluster.drains.get(state.server)
    return {
        "live": state.server in cluster.live,
        "revision": 0 if state.report is None else state.report.revision,
        "assigned": state.num_assigned,
        "loaded": state.num_loaded,
        "numErrors": len(state.errors),
        "errors": dict(islice(state.errors.items(), MAX_ERRORS)),
        "indexing": _indexing_json(IndexingRecord() if state.report is None else state.report.indexing),
        "draining": mark is not None,
        "leaving": mark is not None and mark.leaving,
        "drained": is_drained(state.server, facts.view.table, cluster, state.num_assigned)
        and not _is_last_holder(state.server, facts, cluster),
    }


def _indexing_json(record: IndexingRecord) -> Json:
    return {
        "revision": record.revision,
        "wanted": record.wanted,
        "built": record.built,
        "leftOut": record.left_out,
        "problem": record.problem,
    }


def _indexes_json(facts: TableFacts, states: Iterable[_ServerState], cluster: ClusterFacts) -> Json | None:
    """Return the counts of indexes and star-trees that segments were not built with, over all live servers; None if
    none.

    `looking` lists servers that have not looked at their segments since the table was changed. A server of an older
    release makes no indexes and is not waited for: it runs the table as before."""
    reports = [state.report for state in states if state.report is not None and state.server in cluster.live]
    revision = facts.record.revision if facts.spec.indexing.asks_for_indexes else 0
    looking = sorted(
        report.instance for report in reports if report.loaded and 0 <= report.indexing.revision < revision
    )
    records = [report.indexing for report in reports]
    wanted = sum(record.wanted for record in records)
    if not wanted and not looking:
        return None
    problems = [record.problem for record in records if record.problem]
    return {
        "wanted": wanted,
        "built": sum(record.built for record in records),
        "leftOut": sum(record.left_out for record in records),
        "looking": looking,
        "problem": problems[0] if problems else "",
    }


def _is_last_holder(server: InstanceId, facts: TableFacts, cluster: ClusterFacts) -> bool:
    """Return whether the server reports a segment that no other live server does.

    The echoes of brokers are older than the reports: since then this server alone may have loaded a new segment, or
    another holder may have gone."""
    report = facts.reports.get(server)
    if report is None or server not in cluster.live:
        return False
    staying = cluster.live.keys() - cluster.drains.keys() - {server}
    others = (other.loaded for other in facts.reports.values() if other.instance in staying)
    elsewhere = frozenset[str]().union(*others)
    current = {record.key_text for record in facts.view.segments.values()}
    return not (report.loaded & current) <= elsewhere


def _instance_json(instance: InstanceId, cluster: ClusterFacts, tables: Mapping[str, Json]) -> Json:
    record, mark = cluster.live.get(instance), cluster.drains.get(instance)
    parts = [table["servers"][instance]["drained"] for table in _tables_with(instance, tables)]
    return {
        "role": None if record is None else str(record.role),
        "host": None if record is None else record.host,
        "live": record is not None,
        "draining": mark is not None,
        "leaving": mark is not None and mark.leaving,
        "drained": mark is not None and (all(parts) if parts else is_drained(instance, "", cluster, 0)),
    }


def _tables_with(instance: InstanceId, tables: Mapping[str, Json]) -> Iterator[Json]:
    return (table for table in tables.values() if instance in table["servers"])
