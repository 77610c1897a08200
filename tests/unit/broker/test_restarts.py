"""Whoever restarts, however soon after a publish, no answer lacks rows in silence that were answered before."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.budget import count
from tests.unit.broker.test_routing import NOW_MS, record, view_of

from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import NEW_SEGMENT_MS, RoutingInputs, RoutingSnapshot, build
from merlot.cluster.instances.reports import ReportReader, ReportWriter
from merlot.cluster.records import SegmentRecord
from merlot.ids import InstanceId, TableName
from merlot.metastore.sqlite import SqliteMetastore

TABLE = TableName("flights_OFFLINE")
SERVERS = [InstanceId(f"Server_host_{port}") for port in (1, 2)]
ACTIONS = [
    *("publish", "replace", "refresh", "remove"),
    *("load", "load", "lose", "restart", "stop"),
    *("broker", "broker", "wait"),
]
NUM_SEEDS = count("MERLOT_RESTARTS", quick=25, every=200, fuzz=5000)


class Server:
    """One server's report, by the writer that servers have."""

    def __init__(self, cluster: Cluster, name: InstanceId) -> None:
        self._cluster = cluster
        self.name = name
        self.is_up = True
        self.loaded: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        self._writer = ReportWriter(self._cluster.store, TABLE, self.name)

    def report(self) -> None:
        if self.is_up:
            self.loaded &= self._cluster.keys
            self._writer.write(self.loaded, {}, is_missed=self._cluster.keys.__contains__)

    def restart(self) -> None:
        """It has nothing mapped yet when it reports for the first time."""
        self.loaded, self.is_up = set(), True
        self._begin()
        self.report()


class Cluster:
    """Two servers and two brokers over a table that grows, all within the time for which a segment passes for new."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteMetastore(folder / "meta.db")
        self.records: dict[str, SegmentRecord] = {}
        self.now_ms = NOW_MS
        self.servers = [Server(self, name) for name in SERVERS]
        self.brokers: list[RoutingSnapshot | None] = [None, None]
        self.answered: set[str] = set()
        """Keys of segments that some broker has routed to somebody."""
        self.successors: dict[str, str] = {}
        """By key of a segment that was replaced: the key of the segment that replaced it."""

    @property
    def keys(self) -> set[str]:
        return {one.key_text for one in self.records.values()}

    def replace(self, name: str, by: str) -> None:
        """Publish one segment in place of another, with the times that `publish` gives it."""
        old = self.records.pop(name)
        refreshed = {"refresh_time_ms": self.now_ms}
        self.records[by] = record(by, old.crc + 1, pushed_ms=self.now_ms).model_copy(update=refreshed)
        self.successors[old.key_text] = self.records[by].key_text

    def current(self, key: str) -> str:
        """Return the key of the segment that has this segment's rows now."""
        while key in self.successors:
            key = self.successors[key]
        return key

    def look(self, broker: int) -> RoutingSnapshot:
        """The broker follows all that was written."""
        reports = ReportReader(self.store, TABLE).read()
        inputs = RoutingInputs(
            view=view_of(*self.records.values()),
            reports={one: report.loaded for one, report in reports.items()},
            served=frozenset[str]().union(*(report.served for report in reports.values())),
            standings={one.name: ServerStanding.PREFERRED for one in self.servers if one.is_up},
            now_ms=self.now_ms,
        )
        snapshot = self.brokers[broker] = build(inputs, self.brokers[broker])
        return snapshot


def change_table(cluster: Cluster, action: str, step: int, draw: random.Random) -> None:
    name = draw.choice(sorted(cluster.records)) if cluster.records else None
    match action:
        case "publish":
            cluster.records[f"s{step}"] = record(f"s{step}", pushed_ms=cluster.now_ms)
        case "remove" if name is not None:
            cluster.records.pop(name)
        case "replace" | "refresh" if name is not None:
            cluster.replace(name, by=name if action == "refresh" else f"s{step}")
    if action == "remove" or draw.random() < 0.1:  # servers keep for a while what is gone
        for server in cluster.servers:
            server.report()


def change_server(cluster: Cluster, server: Server, action: str, draw: random.Random) -> None:
    match action:
        case "load":
            server.loaded |= {draw.choice(sorted(cluster.keys))} if cluster.keys and server.is_up else set()
            server.report()
        case "lose" if server.loaded:
            server.loaded.discard(draw.choice(sorted(server.loaded)))
            server.report()
        case "restart":
            server.restart()
        case "stop":
            server.is_up = False


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_a_broker_that_restarts_misses_what_was_answered_before(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    cluster = Cluster(tmp_path)
    for step in range(40):
        action = draw.choice(ACTIONS)
        change_table(cluster, action, step, draw)
        change_server(cluster, draw.choice(cluster.servers), action, draw)
        if action == "broker":
            cluster.brokers[draw.randrange(2)] = None
        elif action == "wait":
            cluster.now_ms += draw.randrange(NEW_SEGMENT_MS // 50)
        for broker in range(2):
            snapshot = cluster.look(broker)
            told = {segment.key for segment in snapshot.segments.values()}
            routed = told | {cluster.current(key) for key in told}
            answered = {cluster.current(key) for key in cluster.answered}
            assert answered & cluster.keys <= routed, "neither answered nor told to be missing"
            cluster.answered |= {one.key for one in snapshot.segments.values() if one.replicas}
    cluster.store.close()


def test_a_segment_that_nobody_ever_loaded_is_new_after_a_restart(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.records["s"] = record("s")
    cluster.servers[0].restart()
    assert cluster.look(0).segments == {}
    cluster.store.close()
