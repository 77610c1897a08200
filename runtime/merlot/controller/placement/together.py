"""Placement of partitions that a server must answer as a whole: all segments of a partition are on the same servers.
Pure.

A partition moves as a whole: the new server loads and consumes all of it before the old one lets any of it go. So at
every step of a move some server has all of the partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from merlot.cluster.segments.parts import partition_groups
from merlot.cluster.segments.view import TableView
from merlot.controller.placement.assignment import Servers, assign
from merlot.controller.placement.moves import Situation, has, step
from merlot.ids import InstanceId

Partitions = Mapping[str, Sequence[str]]
"""Names of the segments of each partition that moves as a whole, open segments included, by its label."""


def split(view: TableView, *, is_strict: bool) -> tuple[Partitions, list[str]]:
    """Return the partitions that move as a whole, and the names of the committed segments that move by themselves.
    These are in the order of their start times: queries read neighbours together, and this order spreads neighbours
    over the servers."""
    groups = partition_groups(view.segments.values()) if is_strict else {}
    grouped = {name for names in groups.values() for name in names}
    single = [name for name, segment in view.segments.items() if not segment.is_open and name not in grouped]
    return groups, sorted(single, key=lambda name: _order_key(view, name))


def assignment(view: TableView, groups: Partitions, situation: Situation) -> dict[str, tuple[InstanceId, ...]]:
    """Return the servers of each segment of these partitions whose servers change in the next step, by name.
    Partitions are spread evenly, unless `situation.balance` is False."""
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
    return changes


def targets(
    view: TableView, groups: Partitions, servers: Servers, replication: int
) -> dict[str, tuple[InstanceId, ...]]:
    """Return the servers that the segments of these partitions end on when partitions are spread evenly."""
    by_label = _targets(view, groups, servers, replication, balance=True)
    return {name: by_label[label] for label, names in groups.items() for name in names}


def _targets(
    view: TableView, groups: Partitions, servers: Servers, replication: int, *, balance: bool
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


def _order_key(view: TableView, name: str) -> tuple[int, str]:
    start_time_ms = view.segments[name].start_time_ms
    return (start_time_ms if start_time_ms is not None else -1, name)
