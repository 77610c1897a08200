"""Assignment of segments to servers: as many replicas as the table asks for, moved only when they must.

A pure function of the current assignment and the servers. A server that is silent for a while keeps its segments, since
it mostly comes back with them on its disk; only a server that is `gone` loses them. A server that joins takes as many
as even the loads out, and no more.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from merlot.ids import InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Servers of a table's tenant: those that can be given segments, and those that must not keep theirs.

    `gone` have lost their segments; `leaving` serve them until others do."""

    live: Set[InstanceId]
    gone: Set[InstanceId] = frozenset()
    leaving: Set[InstanceId] = frozenset()


def assign(
    segments: Sequence[str],
    current: Mapping[str, tuple[InstanceId, ...]],
    servers: Servers,
    replication: int,
    *,
    balance: bool = True,
) -> dict[str, tuple[InstanceId, ...]]:
    """Return the segments whose servers change, with their new servers; replicas are sorted by id.

    segments: all names of the table, neighbours in time next to each other, so that they spread over the servers.
    Missing replicas go to the live servers with the fewest segments; surplus ones leave the servers with the most.
    Then, unless `balance` is False, replicas move one at a time until the loads of live servers differ by one at most.
    No smaller number of moves achieves that. With fewer live servers than `replication`, a segment gets as many as
    there are. With none, nothing changes."""
    if not servers.live:
        return {}
    remaining = {name: _remaining(current.get(name, ()), servers) for name in segments}
    loads = Counter(dict.fromkeys(servers.live, 0))
    loads.update(server for replicas in remaining.values() for server in replicas)
    placed = {}
    for name in segments:
        replicas = _shrink(remaining[name], loads, servers, replication)
        placed[name] = _grow(replicas, loads, servers, replication)
    if balance:
        _balance(placed, loads, servers)
    return {
        name: tuple(sorted(replicas))
        for name, replicas in placed.items()
        if sorted(replicas) != sorted(current.get(name, ()))
    }


def _remaining(replicas: Sequence[InstanceId], servers: Servers) -> list[InstanceId]:
    lost = servers.gone | servers.leaving
    return [server for server in dict.fromkeys(replicas) if server not in lost]


def _shrink(
    replicas: list[InstanceId], loads: Counter[InstanceId], servers: Servers, replication: int
) -> list[InstanceId]:
    """Drop replicas beyond `replication`: those on silent servers first, then those on servers with the most
    segments."""
    surplus = len(replicas) - replication
    if surplus <= 0:
        return replicas
    dropped = sorted(replicas, key=lambda server: (server in servers.live, -loads[server], server))[:surplus]
    loads.subtract(dropped)
    return [server for server in replicas if server not in dropped]


def _grow(
    replicas: list[InstanceId], loads: Counter[InstanceId], servers: Servers, replication: int
) -> list[InstanceId]:
    """Add the live servers with the fewest segments until there are `replication`."""
    missing = replication - len(replicas)
    if missing <= 0:
        return replicas
    candidates = servers.live - set(replicas)
    added = heapq.nsmallest(missing, candidates, key=lambda server: (loads[server], server))
    loads.update(added)
    return replicas + added


def _balance(placed: dict[str, list[InstanceId]], loads: Counter[InstanceId], servers: Servers) -> None:
    """Move replicas from the fullest live server to the emptiest. Changes `placed`.

    There is always a replica to move: a server with two more than another has a segment that the other lacks."""
    if len(servers.live) < 2:
        return
    # The order has nothing to do with time, so that a new server does not get the segments of successive days.
    names: dict[InstanceId, list[str]] = {server: [] for server in servers.live}
    for name in sorted(placed, key=lambda name: (zlib.crc32(name.encode()), name)):
        for server in placed[name]:
            if server in servers.live:
                names[server].append(name)
    # A server that gives never receives later, and one that receives never gives. So a replica that was passed over for
    # a pair of servers can never move between them, and the search goes on behind it: from the start, it takes minutes.
    behind: dict[tuple[InstanceId, InstanceId], Iterator[str]] = {}
    while True:
        fullest = max(servers.live, key=lambda server: (loads[server], server))
        emptiest = min(servers.live, key=lambda server: (loads[server], server))
        if loads[fullest] - loads[emptiest] <= 1:
            return
        candidates = behind.setdefault((fullest, emptiest), iter(names[fullest]))
        name = next(name for name in candidates if fullest in placed[name] and emptiest not in placed[name])
        placed[name] = [emptiest if server == fullest else server for server in placed[name]]
        loads.subtract([fullest])
        loads.update([emptiest])
