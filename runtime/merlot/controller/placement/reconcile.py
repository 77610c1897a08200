"""Decide which mutations bring a table's segments from their current to their wanted state. Pure.

A segment leaves its old servers only when the new ones have loaded it. Until then it is assigned to both. So no step of
a move, of a rebalance or to a lower replication leaves a segment without a server. A server that has not loaded a
segment yet can lose it at once, so the first server of a starting cluster need not load everything.
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
    """Return the mutations that are due now; none for a suspended table."""
    spec = situation.spec
    if spec.suspend:
        return []
    mutations: list[Mutation] = []
    sure_ms = situation.sure_ms
    due = sorted({*expired(removable(view), spec.retention_ms, sure_ms), *covered_by_batches(view, spec, sure_ms)})
    removed = safe_to_remove(view, due)
    if removed:
        mutations.append(RemoveSegments(removed))
    changes = _assignment(view, {key.name for key in removed}, situation)
    if changes:
        mutations.append(Assign(changes))
    return mutations


def is_moving(view: TableView, replication: int, leaving: Set[InstanceId] = frozenset()) -> bool:
    """Return True if a segment is moving: it has more servers than its replication, or a server that is leaving."""
    return any(len(servers) > replication or not leaving.isdisjoint(servers) for servers in view.assignment.values())


def in_time(view: TableView, names: Iterable[str]) -> list[str]:
    """Return the names in the order of the segments' start times. Queries read neighbours together, and this order
    spreads neighbours over the servers."""
    return sorted(names, key=lambda name: _order_key(view, name))


def _assignment(view: TableView, removed: Set[str], situation: Situation) -> dict[str, tuple[InstanceId, ...]]:
    """Return the servers of each committed segment whose servers change, by name."""
    committed = {name for name, segment in view.segments.items() if not segment.is_open} - removed
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
