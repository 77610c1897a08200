"""No pod is evicted whose loss takes the last replica that answers for a segment, whatever state a pool is in.

A pool of servers with real routing tables, echoes and statuses, to which things happen in any order: segments come and
are loaded, servers crash and come back with or without their disk, probes say what they like.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.unit.operator.pool_parts import CONFIG, DEMAND

from merlot.broker.echo import echo_of
from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot, build
from merlot.cluster.instances.reports import ServerReport
from merlot.cluster.records import (
    DrainRecord,
    EchoRecord,
    InstanceRecord,
    Role,
    RootRecord,
    SegmentRecord,
    TableRecord,
)
from merlot.cluster.segments.view import Bucket, TableView
from merlot.controller.status.cluster import ClusterFacts, TableFacts, table_status
from merlot.ids import InstanceId, TableName
from merlot.spec.manifest import load
from merlot_operator.manifests.pool import instance_of, stateful_set
from merlot_operator.reconcilers import rollout

TABLE, BROKER = TableName("flights_OFFLINE"), InstanceId("Broker_b_8099")
SPEC = load(
    """
apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: flights}
spec: {replication: 2, schema: {fields: [{name: a, type: INT}]}, tenants: {server: {name: own-flights}}}
"""
)[0].spec
OLD, NEW = DEMAND, dataclasses.replace(DEMAND, restarted_at="now")
RUNNING, WAITING = {"running": {}}, {"waiting": {"reason": "CrashLoopBackOff"}}


@dataclass
class Server:
    """A pod, the process in it, and its disk."""

    name: str
    template: Any
    is_running: bool = True
    is_ready: bool = True
    loaded: set[str] = field(default_factory=set)

    @property
    def instance(self) -> InstanceId:
        return instance_of(self.name)

    @property
    def pod(self) -> dict[str, Any]:
        ready = {"type": "Ready", "status": "True" if self.is_ready and self.is_running else "False"}
        container = {"name": "server", "state": RUNNING if self.is_running else WAITING}
        status = {"phase": "Running", "conditions": [ready], "containerStatuses": [container]}
        return {"metadata": {"name": self.name, **self.template["metadata"]}, "status": status}


class World:
    """Three servers, one broker, one table; `restart` of all of them is asked for."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        old = stateful_set(OLD, CONFIG, 3)["spec"]["template"]
        self.wanted = stateful_set(NEW, CONFIG, 3)
        self.servers: dict[str, Server] = {name: Server(name, old) for name in ("pool-0", "pool-1", "pool-2")}
        self.assignment: dict[str, tuple[str, ...]] = {}
        self.drains: dict[InstanceId, DrainRecord] = {}
        self.snapshot: RoutingSnapshot | None = None
        self.echo = EchoRecord()
        self.num_marks = self.num_evictions = 0
        for _ in range(4):
            self.publish()

    @property
    def view(self) -> TableView:
        records = {
            name: SegmentRecord(name=name, crc=1, size_bytes=1, url=f"file:///{name}", total_docs=1, push_time_ms=1)
            for name in self.assignment
        }
        assignment = {name: tuple(map(instance_of, servers)) for name, servers in self.assignment.items()}
        return TableView(TABLE, RootRecord(epoch=1, num_buckets=1), 1, {0: Bucket("x", records, assignment)})

    @property
    def live(self) -> dict[InstanceId, Server]:
        return {one.instance: one for one in self.servers.values() if one.is_running}

    def publish(self) -> None:
        self.assignment[f"s{len(self.assignment)}"] = tuple(self.chance.sample(["pool-0", "pool-1", "pool-2"], 2))

    def load(self) -> None:
        server = self.chance.choice(list(self.servers.values()) or [None])
        if server is not None and server.is_running:
            missing = [f"{name}@1" for name, given in self.assignment.items() if server.name in given]
            server.loaded |= {key for key in missing if self.chance.random() < 0.7}

    def probe(self) -> None:
        for server in self.servers.values():
            server.is_ready = self.chance.random() < 0.5

    def crash(self) -> None:
        if len(self.live) == 3 and len(self.servers) == 3:
            self.chance.choice(list(self.servers.values())).is_running = False

    def come_back(self) -> None:
        """Containers start again, the set makes the pods that are missing."""
        for server in self.servers.values():
            if not server.is_running:
                self.start(server)
        for name in {"pool-0", "pool-1", "pool-2"} - self.servers.keys():
            server = self.servers[name] = Server(name, self.wanted["spec"]["template"])
            server.loaded = {f"{one}@1" for one, given in self.assignment.items() if name in given}
            self.start(server)

    def start(self, server: Server) -> None:
        server.is_running = True
        if self.chance.random() < 0.3:
            server.loaded = set()
        self.drains.pop(server.instance, None)

    def route(self) -> None:
        """The broker takes up what is so, and says so."""
        standings = {
            server: ServerStanding.BACKUP if server in self.drains else ServerStanding.PREFERRED for server in self.live
        }
        reports = {server.instance: set(server.loaded) for server in self.servers.values()}
        inputs = RoutingInputs(view=self.view, reports=reports, standings=standings, now_ms=10**12)
        self.snapshot = build(inputs, self.snapshot)
        served: Any = SimpleNamespace(revision=1, snapshot=self.snapshot, problems=tuple)
        self.echo = echo_of({TABLE: served}, self.drains)

    def status(self) -> dict[str, Any]:
        server_records = {
            one: InstanceRecord(id=one, role=Role.SERVER, host="h", tenant="own-flights") for one in self.live
        }
        broker = {BROKER: InstanceRecord(id=BROKER, role=Role.BROKER, host="h")}
        cluster = ClusterFacts(live=server_records | broker, echoes={BROKER: self.echo}, drains=self.drains)
        reports = {one.instance: ServerReport(one.instance, frozenset(one.loaded), {}) for one in self.servers.values()}
        record = TableRecord(name=TABLE, manifest={}, revision=1)
        return table_status(TableFacts(record=record, spec=SPEC, view=self.view, reports=reports), cluster)

    def operate(self) -> None:
        """One pass of the operator over the pool."""
        pods = [server.pod for _, server in sorted(self.servers.items())]
        state = rollout.PoolState(live=self.wanted, pods=pods, claims=[], statuses={"flights": self.status()})
        plan = rollout.plan(NEW, self.wanted, state)
        for server, leaving in plan.drain.items():
            self.num_marks += 1
            self.drains[server] = DrainRecord(token=str(self.num_marks), leaving=leaving)
        for server in plan.undrain:
            self.drains.pop(server, None)
        if plan.restart is not None:
            self.evict(self.servers[plan.restart.pod["metadata"]["name"]])

    def evict(self, server: Server) -> None:
        answered = server.loaded if server.is_running else set()
        others = set().union(*(one.loaded for one in self.live.values() if one is not server))
        routed = {
            key for route in (self.snapshot.turns if self.snapshot else ()) for one in route for key in one.segments
        }
        assert answered & routed <= others, f"{server.name} goes with the last replica of {answered & routed - others}"
        assert not server.is_running or len(self.servers) == 3, "two servers are away at a time"
        del self.servers[server.name]
        self.num_evictions += 1


EVENTS = ("publish", "load", "load", "probe", "crash", "come_back", "come_back", "route", "route", "operate", "operate")


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_no_eviction_takes_the_last_replica_and_all_are_restarted_in_the_end(seed: int) -> None:
    world = World(Random(seed))
    for _ in range(80):
        getattr(world, world.chance.choice(EVENTS))()
    for _ in range(40):
        # Nothing comes any more: loads end, probes succeed.
        world.come_back()
        for server in world.servers.values():
            server.loaded = {f"{name}@1" for name, given in world.assignment.items() if server.name in given}
            server.is_ready = True
        world.route()
        world.operate()
    assert world.num_evictions >= 3
    hashes = {server.template["metadata"]["annotations"]["merlot.dev/inputs"] for server in world.servers.values()}
    assert hashes == {world.wanted["spec"]["template"]["metadata"]["annotations"]["merlot.dev/inputs"]}
