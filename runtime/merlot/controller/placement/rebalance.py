"""Plan and progress of a rebalance, and how to stop it half-way. Pure; the loop carries the moves out.

The loop evens loads out by itself whenever servers come and go. A rebalance that a user asks for is the same plan with
a beginning to measure progress from. An abort takes back what has not been loaded yet, and keeps the loop from starting
again until the servers change or a user asks for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from merlot.cluster.records import RebalanceRecord
from merlot.cluster.segments.view import TableView
from merlot.controller.placement import together
from merlot.controller.placement.assignment import Servers, assign
from merlot.ids import InstanceId, TableName
from merlot.pinot.cluster_json import Json

Loaded = Mapping[InstanceId, Set[str]]
"""Keys of the segments that servers report, by server."""


@dataclass(frozen=True, slots=True)
class Move:
    """A segment's servers before and after."""

    name: str
    size_bytes: int
    before: tuple[InstanceId, ...]
    after: tuple[InstanceId, ...]

    @property
    def added(self) -> tuple[InstanceId, ...]:
        """Return the servers that have to load the segment."""
        return tuple(server for server in self.after if server not in self.before)


@dataclass(frozen=True, slots=True)
class RebalancePlan:
    """All moves, by name, and the number of segments on each server before and after."""

    moves: tuple[Move, ...]
    before: Mapping[InstanceId, int]
    after: Mapping[InstanceId, int]

    @property
    def num_replicas(self) -> int:
        """Return the number of copies to load."""
        return sum(len(move.added) for move in self.moves)

    @property
    def num_bytes(self) -> int:
        """Return the bytes of these copies."""
        return sum(len(move.added) * move.size_bytes for move in self.moves)


@dataclass(frozen=True, slots=True)
class RebalanceProgress:
    """Copies that assigned servers still have to load, and the number of segments with surplus servers."""

    num_replicas: int
    num_bytes: int
    num_moving: int


def plan(view: TableView, servers: Servers, replication: int, *, is_strict: bool = False) -> RebalancePlan:
    """Return the fewest moves that give every segment its replicas and every server its share. If `is_strict`,
    partitions move as a whole."""
    partitions, single = together.split(view, is_strict=is_strict)
    target = assign(single, view.assignment, servers, replication)
    for name, wanted in together.targets(view, partitions, servers, replication).items():
        if not view.segments[name].is_open and wanted != view.servers_of(name):
            target[name] = wanted
    settled = {**view.assignment, **target}
    moves = [Move(name, view.segments[name].size_bytes, view.servers_of(name), target[name]) for name in sorted(target)]
    everyone = {*servers.live, *_counts(view.assignment), *_counts(settled)}
    before, after = _counts(view.assignment), _counts(settled)
    return RebalancePlan(
        moves=tuple(moves),
        before={server: before[server] for server in sorted(everyone)},
        after={server: after[server] for server in sorted(everyone)},
    )


def progress(view: TableView, loaded: Loaded, replication: int) -> RebalanceProgress:
    """Return how far the moves under way are."""
    missing = [
        view.segments[name].size_bytes
        for name, servers in view.assignment.items()
        if name in view.segments
        for server in servers
        if str(view.segments[name].key) not in loaded.get(server, frozenset())
    ]
    moving = sum(len(servers) > replication for servers in view.assignment.values())
    return RebalanceProgress(num_replicas=len(missing), num_bytes=sum(missing), num_moving=moving)


def abort(view: TableView, loaded: Loaded, replication: int) -> dict[str, tuple[InstanceId, ...]]:
    """Return the segments that are moving, with the servers to leave them on: those that have loaded them, up to
    `replication`."""
    changes = {}
    for name, servers in view.assignment.items():
        if len(servers) > replication and name in view.segments:
            changes[name] = _settled(str(view.segments[name].key), servers, loaded, replication)
    return changes


def is_balancing(record: RebalanceRecord | None, live: Set[InstanceId]) -> bool:
    """Return whether the loop shall even loads out. It does not after an abort, as long as the servers are the same."""
    return record is None or not record.is_aborted or set(record.servers) != live


def plan_json(table: TableName, planned: RebalancePlan, *, is_dry_run: bool) -> Json:
    """Return the answer of `POST /tables/{t}/rebalance`."""
    return {
        "table": table,
        "status": "NO_OP" if not planned.moves else "PLANNED" if is_dry_run else "IN_PROGRESS",
        "segmentsToMove": len(planned.moves),
        "replicasToLoad": planned.num_replicas,
        "bytesToLoad": planned.num_bytes,
        "servers": {
            server: {"before": planned.before[server], "after": planned.after[server]} for server in planned.after
        },
        "moves": {move.name: {"from": list(move.before), "to": list(move.after)} for move in planned.moves},
    }


def progress_json(table: TableName, done: RebalanceProgress, record: RebalanceRecord | None) -> Json:
    """Return the answer of `GET /tables/{t}/rebalance`."""
    is_moving = bool(done.num_moving or done.num_replicas)
    total = max(done.num_replicas, 0 if record is None else record.num_replicas)
    return {
        "table": table,
        "id": None if record is None else record.id,
        "status": _status(record, is_moving=is_moving),
        "startedMs": None if record is None else record.started_ms,
        "segmentsMoving": done.num_moving,
        "replicasToLoad": done.num_replicas,
        "bytesToLoad": done.num_bytes,
        "replicasLoaded": total - done.num_replicas,
        "replicasTotal": total,
    }


def _status(record: RebalanceRecord | None, *, is_moving: bool) -> str:
    if is_moving:
        return "IN_PROGRESS"
    if record is None:
        return "IDLE"
    return "ABORTED" if record.is_aborted else "DONE"


def _settled(key: str, servers: Sequence[InstanceId], loaded: Loaded, replication: int) -> tuple[InstanceId, ...]:
    """Return `replication` of the servers, those first that have loaded the segment."""
    by_use = sorted(servers, key=lambda server: (key not in loaded.get(server, frozenset()), server))
    return tuple(sorted(by_use[:replication]))


def _counts(assignment: Mapping[str, Sequence[InstanceId]]) -> Counter[InstanceId]:
    return Counter(server for servers in assignment.values() for server in servers)
