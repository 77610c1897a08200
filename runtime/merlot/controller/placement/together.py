"""Placement of partitions that a server must answer as a whole: all segments of a partition are on the same servers.
Pure.

A partition moves as a whole: the new server loads and consumes all of it before the old one lets any of it go. So at
every step of a move some server has all of the partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from merlot.cluster.segments.parts import partition_groups
from merlot.cluster.segments.view import TableView
from merlot.controller.placement.assignment import Servers, assign
from merlot.controller.placement.moves import Situation, has, step
from merlot.ids import InstanceId


@dataclass(frozen=True, slots=True)
class GroupedPlacement:
    """Servers of the segments whose servers change. `names`: all segments that belong to partitions, changed or not."""

    names: Set[str]
    changes: Mapping[str, tuple[InstanceId, ...]]


def assignment(view: TableView, situation: Situation) -> GroupedPlacement:
    """Return the next step of every partition's placement, open segments included. Partitions are spread evenly, unless
    `situation.balance` is False."""
    groups = partition_groups(view.segments.values())
    target = _targets(view, groups, situation.servers, situation.spec.replication, balance=situation.balance)
    changes: dict[str, tuple[InstanceId, ...]] = {}
    for label, names in groups.items():
        wanted = target[label]
        is_loaded = all(_is_on_all(view, name, wanted, situation) for name in names)
        for name in names:
            current_servers = view.servers_of(name)
            stepped = step(view.segments[name].key, current_servers, wanted, situation)
            if not is_loaded:
                stepped = tuple(sorted({*stepped, *_staying(current_servers, situation)}))
            if stepped != current_servers:
                changes[name] = stepped
    return GroupedPlacement(frozenset(name for names in groups.values() for name in names), changes)


def targets(view: TableView, servers: Servers, replication: int) -> dict[str, tuple[InstanceId, ...]]:
    """Return the servers that the segments of each partition end on when partitions are spread evenly."""
    groups = partition_groups(view.segments.values())
    by_label = _targets(view, groups, servers, replication, balance=True)
    return {name: by_label[label] for label, names in groups.items() for name in names}


def _targets(
    view: TableView, groups: Mapping[str, Sequence[str]], servers: Servers, replication: int, *, balance: bool
) -> dict[str, tuple[InstanceId, ...]]:
    current = {label: _servers_of(view, names) for label, names in groups.items()}
    return {**current, **assign(sorted(groups), current, servers, replication, balance=balance)}


def _servers_of(view: TableView, names: Sequence[str]) -> tuple[InstanceId, ...]:
    """Return the servers of a partition: those of its open segment, else those that hold most of its segments."""
    open_names = [name for name in names if view.segments[name].is_open]
    counts = Counter(view.servers_of(name) for name in open_names or names if view.servers_of(name))
    return max(counts, key=lambda servers: (counts[servers], servers), default=())


def _is_on_all(view: TableView, name: str, wanted: Sequence[InstanceId], situation: Situation) -> bool:
    key = view.segments[name].key
    return all(has(situation, server, key) for server in wanted if server in situation.servers.live)


def _staying(current: Sequence[InstanceId], situation: Situation) -> list[InstanceId]:
    return [server for server in current if server not in situation.servers.gone]
