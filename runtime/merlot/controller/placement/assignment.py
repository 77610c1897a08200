"""Which servers hold which segments: as many replicas as the table asks for, moved only when they must.

Pure: the assignment that is, the servers that are, the assignment that shall be. A server that is silent for a while
keeps its segments, since it mostly comes back with them on its disk; only one that is `gone` loses them. A server that
joins takes as many as even the loads out, and no more.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from merlot.ids import InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers of a table's tenant: those that can be given segments, and those that shall not keep theirs.

    `gone` have lost them; `leaving` still serve what they have, until others do.
    """

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
    """The segments whose servers change, with their new ones; replicas sorted by id.

    segments: all names of the table, neighbours in time next to each other, so that they spread over the servers.
    Missing replicas go to the live servers with the fewest segments; surplus ones leave the servers with the most. Then
    the loads of live servers are evened out, one replica at a time, until they differ by one at most: the fewest moves
    that do; not so without `balance`. With fewer live servers than `replication`, a segment gets as many as there are;
    with none, everything stays as it is: nobody could do better.
    """
    if not servers.live:
        return {}
    kept = {name: _kept(current.get(name, ()), servers) for name in segments}
    loads = Counter(dict.fromkeys(servers.live, 0))
    loads.update(server for replicas in kept.values() for server in replicas)
    placed = {}
    for name in segments:
        replicas = _shrink(kept[name], loads, servers, replication)
        placed[name] = _grow(replicas, loads, servers, replication)
    if balance:
        _balance(placed, loads, servers)
    return {
        name: tuple(sorted(replicas))
        for name, replicas in placed.items()
        if sorted(replicas) != sorted(current.get(name, ()))
    }


def _kept(replicas: Sequence[InstanceId], servers: Servers) -> list[InstanceId]:
    lost = servers.gone | servers.leaving
    return [server for server in dict.fromkeys(replicas) if server not in lost]


def _shrink(
    replicas: list[InstanceId], loads: Counter[InstanceId], servers: Servers, replication: int
) -> list[InstanceId]:
    """Drop what is over `replication`: silent servers first, then those with the most segments."""
    surplus = len(replicas) - replication
    if surplus <= 0:
        return replicas
    dropped = sorted(replicas, key=lambda server: (server in servers.live, -loads[server], server))[:surplus]
    loads.subtract(dropped)
    return [server for server in replicas if server not in dropped]


def _grow(
    replicas: list[InstanceId], loads: Counter[InstanceId], servers: Servers, replication: int
) -> list[InstanceId]:
    """Add live servers with the fewest segments until there are `replication`."""
    missing = replication - len(replicas)
    if missing <= 0:
        return replicas
    candidates = servers.live - set(replicas)
    added = heapq.nsmallest(missing, candidates, key=lambda server: (loads[server], server))
    loads.update(added)
    return replicas + added


def _balance(placed: dict[str, list[InstanceId]], loads: Counter[InstanceId], servers: Servers) -> None:
    """Move replicas from the fullest live server to the emptiest. Changes `placed`.

    There is always one to move: a server with two replicas more than another has a segment that the other lacks.
    """
    if len(servers.live) < 2:
        return
    # In an order that has nothing to do with time, so that a new server does not get one stretch of days.
    names: dict[InstanceId, list[str]] = {server: [] for server in servers.live}
    for name in sorted(placed, key=lambda name: (zlib.crc32(name.encode()), name)):
        for server in placed[name]:
            if server in servers.live:
                names[server].append(name)
    while True:
        fullest = max(servers.live, key=lambda server: (loads[server], server))
        emptiest = min(servers.live, key=lambda server: (loads[server], server))
        if loads[fullest] - loads[emptiest] <= 1:
            return
        place = next(place for place, name in enumerate(names[fullest]) if emptiest not in placed[name])
        name = names[fullest].pop(place)
        names[emptiest].append(name)
        placed[name] = [emptiest if server == fullest else server for server in placed[name]]
        loads.subtract([fullest])
        loads.update([emptiest])
