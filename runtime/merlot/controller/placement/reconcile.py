"""Mutations that bring a table's segments from their current to their wanted state. Pure.

A replica leaves its old server only when the new ones have loaded it. Until then the segment is assigned to both, so
that no step of a move, a rebalance or a lower replication leaves a segment without a server. A server that has not
loaded a segment yet can lose it at once: when a cluster starts, the first server need not load everything.
`controller.realtime` places open segments of streams, and `together` places partitions that one server answers for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from merlot.cluster.segments.transaction import Assign, Mutation, RemoveSegments
from merlot.cluster.segments.view import TableView
from merlot.controller.placement import together
from merlot.controller.placement.assignment import assign
from merlot.controller.placement.moves import Situation, step
from merlot.controller.placement.retention import covered_by_batches, expired, removable, safe_to_remove
from merlot.ids import InstanceId


def decide(view: TableView, situation: Situation) -> Sequence[Mutation]:
    """Return what to change now; nothing for a suspended table."""
    spec = situation.spec
    if spec.suspend:
        return []
    mutations: list[Mutation] = []
    sure_ms = situation.sure_ms
    due = sorted({*expired(removable(view), spec.retention_ms, sure_ms), *covered_by_batches(view, spec, sure_ms)})
    old = safe_to_remove(view, due)
    if old:
        mutations.append(RemoveSegments(old))
    changes = _assignment(view, {key.name for key in old}, situation)
    if changes:
        mutations.append(Assign(changes))
    return mutations


def is_moving(view: TableView, replication: int, leaving: Set[InstanceId] = frozenset()) -> bool:
    """Return whether any segment waits for others to load it: it has more servers than it should, or one that
    leaves."""
    return any(len(servers) > replication or not leaving.isdisjoint(servers) for servers in view.assignment.values())


def in_time(view: TableView, names: Iterable[str]) -> list[str]:
    """Return the names in order of time, so that neighbours, which queries read together, spread over the servers."""
    return sorted(names, key=lambda name: _order_key(view, name))


def _assignment(view: TableView, going: Set[str], situation: Situation) -> dict[str, tuple[InstanceId, ...]]:
    committed = {name for name, segment in view.segments.items() if not segment.is_open} - going
    changes: dict[str, tuple[InstanceId, ...]] = {}
    if situation.spec.is_strict:
        grouped = together.assignment(view, situation)
        changes = {name: servers for name, servers in grouped.changes.items() if name in committed}
        committed -= grouped.names
    names = in_time(view, committed)
    target = assign(names, view.assignment, situation.servers, situation.spec.replication, balance=situation.balance)
    for name, wanted in target.items():
        current = view.servers_of(name)
        stepped = step(view.segments[name].key, current, wanted, situation)
        if stepped != current:
            changes[name] = stepped
    return changes


def _order_key(view: TableView, name: str) -> tuple[int, str]:
    start_time_ms = view.segments[name].start_time_ms
    return (start_time_ms if start_time_ms is not None else -1, name)
