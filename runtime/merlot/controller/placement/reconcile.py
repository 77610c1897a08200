"""From how a table is to how it should be: the mutations of its segments. Pure.

A replica leaves its old server only when the new ones have loaded: until then the segment is assigned to both, so
that no step of a move, a rebalance or a lower replication leaves a segment with nobody to serve it. A server that has
not loaded a segment yet can lose it at once: when a cluster starts, the first server is not made to load everything.
Open segments of streams are placed by `controller.realtime`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from merlot.cluster.segments.transaction import Assign, Mutation, RemoveSegments
from merlot.cluster.segments.view import TableView
from merlot.controller.placement.assignment import Servers, assign
from merlot.controller.placement.retention import expired, removable
from merlot.ids import InstanceId, SegmentKey
from merlot.spec.table import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a decision looks at. `loaded`: keys (`name@crc`) that servers report; None if nobody has looked yet."""

    spec: TableSpec
    servers: Servers
    now_ms: int
    loaded: Mapping[InstanceId, Set[str]] | None = None
    balance: bool = True
    """False: repair only, leave uneven loads as they are."""


def decide(view: TableView, situation: Situation) -> Sequence[Mutation]:
    """What to change now; nothing for a suspended table."""
    spec = situation.spec
    if spec.suspend:
        return []
    mutations: list[Mutation] = []
    old = expired(removable(view), spec.retention_ms, situation.now_ms)
    if old:
        mutations.append(RemoveSegments(old))
    changes = _assignment(view, {key.name for key in old}, situation)
    if changes:
        mutations.append(Assign(changes))
    return mutations


def is_moving(view: TableView, replication: int, leaving: Set[InstanceId] = frozenset()) -> bool:
    """Whether some segment still has more servers than it should, or one that leaves, waiting for others to load it."""
    return any(len(servers) > replication or not leaving.isdisjoint(servers) for servers in view.assignment.values())


def in_time(view: TableView, names: Iterable[str]) -> list[str]:
    """Names in the order of time, so that neighbours, which queries read together, spread over the servers."""
    return sorted(names, key=lambda name: _place(view, name))


def _assignment(view: TableView, going: Set[str], situation: Situation) -> dict[str, tuple[InstanceId, ...]]:
    names = in_time(view, (name for name, one in view.segments.items() if name not in going and not one.is_open))
    replication = situation.spec.replication
    target = assign(names, view.assignment, situation.servers, replication, balance=situation.balance)
    changes = {}
    for name, wanted in target.items():
        current = view.servers_of(name)
        stepped = step(view.segments[name].key, current, wanted, situation)
        if stepped != current:
            changes[name] = stepped
    return changes


def step(
    key: SegmentKey, current: Sequence[InstanceId], wanted: Sequence[InstanceId], situation: Situation
) -> tuple[InstanceId, ...]:
    """The servers on the way from `current` to `wanted`: both, until all of `wanted` that can serve the segment do."""
    servers = situation.servers
    staying = [server for server in current if server not in servers.gone and _may_have(situation, server, key)]
    waiting = [server for server in wanted if server in servers.live and not _has(situation, server, key)]
    return tuple(sorted({*wanted, *staying} if waiting else set(wanted)))


def _has(situation: Situation, server: InstanceId, key: SegmentKey) -> bool:
    return situation.loaded is not None and str(key) in situation.loaded.get(server, frozenset())


def _may_have(situation: Situation, server: InstanceId, key: SegmentKey) -> bool:
    return situation.loaded is None or _has(situation, server, key)


def _place(view: TableView, name: str) -> tuple[int, str]:
    start_time_ms = view.segments[name].start_time_ms
    return (start_time_ms if start_time_ms is not None else -1, name)
