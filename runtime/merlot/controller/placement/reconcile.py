"""Decide which mutations bring a table's segments from their current to their wanted state. Pure.

A segment leaves its old servers only when the new ones have loaded it. Until then it is assigned to both. So no step of
a move, of a rebalance or to a lower replication leaves a segment without a server. A server that has not loaded a
segment yet can lose it at once, so the first server of a starting cluster need not load everything.
`controller.realtime` places open segments of streams, and `together` places partitions that one server answers for.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

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


def _assignment(view: TableView, removed: Set[str], situation: Situation) -> dict[str, tuple[InstanceId, ...]]:
    """Return the servers of each committed segment whose servers change, by name."""
    partitions, single = together.split(view, is_strict=situation.spec.is_strict)
    grouped = together.assignment(view, partitions, situation)
    staying = view.segments.keys() - removed
    changes = {
        name: servers for name, servers in grouped.items() if name in staying and not view.segments[name].is_open
    }
    names = [name for name in single if name in staying]
    target = assign(names, view.assignment, situation.servers, situation.spec.replication, balance=situation.balance)
    for name, wanted in target.items():
        current = view.servers_of(name)
        stepped = step(view.segments[name].key, current, wanted, situation)
        if stepped != current:
            changes[name] = stepped
    return changes
