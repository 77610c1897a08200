"""Partitions that one server answers for move as a whole: at every step some server has all of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.unit.controller.test_stream_decisions import EMPTY, SERVERS, SPEC, after, seal, settled, situation

from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.segments.parts import partition_groups
from merlot.cluster.segments.view import TableView
from merlot.controller.placement import rebalance, reconcile
from merlot.controller.placement.assignment import Servers
from merlot.controller.realtime.decisions import StreamSituation, decide
from merlot.ids import InstanceId
from merlot.spec.table import InstanceSelector, RoutingSpec, TableSpec

ROUTING = RoutingSpec(instance_selector=InstanceSelector.STRICT_REPLICA_GROUP)
NUM_PARTITIONS = 5


@dataclass
class Cluster:
    """A table's tree, and what each server has loaded."""

    view: TableView
    live: set[InstanceId]
    spec: TableSpec
    gone: set[InstanceId] = field(default_factory=set)
    loaded: dict[InstanceId, set[str]] = field(default_factory=dict)

    def asked(self) -> StreamSituation:
        made = situation(NUM_PARTITIONS)
        loaded = {server: frozenset(self.loaded.get(server, ())) for server in self.live}
        servers = Servers(live=frozenset(self.live), gone=frozenset(self.gone))
        return replace(made, table=replace(made.table, spec=self.spec, servers=servers, loaded=loaded))

    def decide(self) -> bool:
        """One round of the controller; whether it did anything. What a server is not assigned any more, it drops."""
        before = self.view
        asked = self.asked()
        for mutation in reconcile.decide(self.view, asked.table):
            self.view = after(self.view, [mutation])
        self.view = after(self.view, list(decide(self.view, asked)))
        for server, keys in self.loaded.items():
            keys.intersection_update(self.assigned(server))
        return self.view.assignment != before.assignment

    def assigned(self, server: InstanceId) -> set[str]:
        segments = self.view.segments
        return {segments[name].key_text for name, servers in self.view.assignment.items() if server in servers}

    def load(self, number: int) -> None:
        """Some server loads one of what it lacks, or starts to consume."""
        lacking = sorted((server, key) for server in self.live for key in self.assigned(server) - self.has(server))
        if lacking:
            server, key = lacking[number % len(lacking)]
            self.loaded.setdefault(server, set()).add(key)

    def has(self, server: InstanceId) -> set[str]:
        return self.loaded.get(server, set())

    def load_all(self) -> None:
        for server in self.live:
            self.loaded.setdefault(server, set()).update(self.assigned(server))

    def groups(self) -> dict[str, set[str]]:
        """Keys by partition."""
        segments = self.view.segments
        found = partition_groups(segments.values())
        return {label: {segments[name].key_text for name in names} for label, names in found.items()}

    def whole(self, label: str) -> set[InstanceId]:
        """Live servers that have all of a partition."""
        return {server for server in self.live if self.groups()[label] <= self.has(server)}

    def settle(self) -> None:
        for _ in range(60):
            self.load_all()
            if not self.decide():
                return
        raise AssertionError("decisions do not end")


def cluster_of(num_live: int, replication: int = 2, seals: int = 3) -> Cluster:
    asked = situation(NUM_PARTITIONS, num_live)
    spec = SPEC.model_copy(update={"routing": ROUTING, "replication": replication})
    view = settled(EMPTY, replace(asked, table=replace(asked.table, spec=spec)))
    for partition in range(NUM_PARTITIONS):
        for number in range(seals):
            view = seal(view, partition, 10 * partition + 5 * number + 5)
    cluster = Cluster(view, set(SERVERS[:num_live]), spec)
    cluster.settle()
    return cluster


def check_settled(cluster: Cluster) -> None:
    view = cluster.view
    counts: Counter[InstanceId] = Counter()
    for names in partition_groups(view.segments.values()).values():
        (servers,) = {view.servers_of(name) for name in names}
        assert len(servers) == min(len(cluster.live), cluster.spec.replication)
        assert set(servers) <= cluster.live
        counts.update(servers)
    loads = [counts[server] for server in cluster.live]
    assert max(loads) - min(loads) <= 1, counts
    assert planned(cluster) == {}, "a rebalance has nothing to do"


def planned(cluster: Cluster) -> dict[str, tuple[InstanceId, ...]]:
    """Servers of the sealed segments that a rebalance would move."""
    servers = Servers(live=frozenset(cluster.live), gone=frozenset(cluster.gone))
    plan = rebalance.plan(cluster.view, servers, cluster.spec.replication, is_strict=True)
    return {move.name: move.after for move in plan.moves}


STEPS = st.tuples(st.sampled_from(["load", "load", "load", "decide", "join", "lose", "seal"]), st.integers(0, 40))


@settings(max_examples=examples(60), deadline=None)
@given(num_live=st.integers(2, 4), replication=st.integers(1, 2), steps=st.lists(STEPS, max_size=40))
def test_no_step_of_a_move_leaves_a_partition_without_a_server_that_has_all_of_it(
    num_live: int, replication: int, steps: list[tuple[str, int]]
) -> None:
    cluster = cluster_of(num_live, replication)
    check_settled(cluster)
    for step, number in steps:
        match step:
            case "load":
                cluster.load(number)
            case "decide":
                whole = {label: cluster.whole(label) for label in cluster.groups()}
                cluster.decide()
                assert all(cluster.whole(label) for label, servers in whole.items() if servers)
            case "join":
                server = SERVERS[number % len(SERVERS)]
                cluster.live.add(server)
                cluster.gone.discard(server)
            case "lose" if len(cluster.live) > 1:
                server = sorted(cluster.live)[number % len(cluster.live)]
                cluster.live.discard(server)
                cluster.gone.add(server)
                cluster.loaded.pop(server, None)
            case "seal":
                partition = number % NUM_PARTITIONS
                start = open_segments(cluster.view)[partition].start_offset
                before = {server: cluster.has(server) & cluster.assigned(server) for server in cluster.live}
                cluster.view = seal(cluster.view, partition, start + 5)
                for server, keys in before.items():
                    if any(f"__{partition}__" in key for key in keys if key.endswith("@0")):
                        cluster.loaded[server] |= {key for key in cluster.assigned(server) if f"__{partition}__" in key}
    cluster.settle()
    check_settled(cluster)


def test_a_partition_that_is_on_its_way_is_whole_somewhere_until_all_of_it_has_come() -> None:
    """One replica, segment by segment: the old server keeps all until the new one has the last."""
    cluster = cluster_of(1, replication=1)
    cluster.live.add(SERVERS[1])
    cluster.decide()
    for number in range(len(cluster.view.segments)):
        assert all(cluster.whole(label) for label in cluster.groups())
        cluster.load(number)
        cluster.decide()
    cluster.settle()
    check_settled(cluster)


def test_a_server_that_joins_gets_partitions_with_all_of_their_segments() -> None:
    cluster = cluster_of(2)
    cluster.live.add(SERVERS[2])
    before, moves = cluster.view.assignment, planned(cluster)
    cluster.settle()
    check_settled(cluster)
    assert {name: set(servers) - set(before[name]) for name, servers in moves.items()} == {
        name: {SERVERS[2]}
        for name, segment in cluster.view.segments.items()
        if not segment.is_open and SERVERS[2] in cluster.view.servers_of(name)
    }
    num_segments = len(cluster.view.segments) // NUM_PARTITIONS
    assert len(cluster.assigned(SERVERS[2])) % num_segments == 0
    assert cluster.assigned(SERVERS[2])
