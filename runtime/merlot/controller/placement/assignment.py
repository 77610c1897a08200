"""Assignment of segments to servers: as many replicas as the table asks for, moved only when they must.

A pure function of the current assignment and the servers. A server that is silent for a while keeps its segments, since
it mostly comes back with them on its disk; only a server that is `gone` loses them. A server that joins takes as many
as even the loads out, and no more.

Replicas of a segment are spread over zones, so that the loss of a zone leaves replicas in the others. That comes before
even loads: if zones differ in the number of their servers, loads are even within what the spread allows.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from merlot.ids import InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Servers of a table's tenant: those that can be given segments, and those that must not keep theirs.

    `gone` have lost their segments; `leaving` serve them until others do."""

    live: Set[InstanceId]
    gone: Set[InstanceId] = frozenset()
    leaving: Set[InstanceId] = frozenset()
    zones: Mapping[InstanceId, str] = field(default_factory=dict)
    """Zones of servers. Servers whose zones are unknown are in one zone."""

    def zone(self, server: InstanceId) -> str:
        """Return the zone of a server."""
        return self.zones.get(server, "")

    def num_zones(self, replicas: Iterable[InstanceId]) -> int:
        """Return the number of zones that these servers are in."""
        return len({self.zone(server) for server in replicas})


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
    Missing replicas go to the live servers with the fewest segments in the zones with the fewest replicas; surplus ones
    leave the servers with the most. Then, unless `balance` is False, replicas move one at a time: into zones that have
    none, and until the loads of live servers differ by one at most. No smaller number of moves achieves that within one
    zone. With fewer live servers than `replication`, a segment gets as many as there are. With none, nothing
    changes."""
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
        _spread(placed, loads, servers)
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
    """Drop replicas beyond `replication`: those on silent servers first, then those that share a zone, then those on
    servers with the most segments."""
    while len(replicas) > replication:
        crowds = Counter(map(servers.zone, replicas))
        dropped = min(
            replicas,
            key=lambda server: (server in servers.live, -crowds[servers.zone(server)], -loads[server], server),
        )
        loads.subtract([dropped])
        replicas = [server for server in replicas if server != dropped]
    return replicas


def _grow(
    replicas: list[InstanceId], loads: Counter[InstanceId], servers: Servers, replication: int
) -> list[InstanceId]:
    """Add live servers until there are `replication`: in the zones with the fewest replicas, those with the fewest
    segments."""
    while len(replicas) < replication and not servers.live <= set(replicas):
        crowds = Counter(map(servers.zone, replicas))
        added = min(
            servers.live - set(replicas),
            key=lambda server: (crowds[servers.zone(server)], loads[server], server),
        )
        loads.update([added])
        replicas = [*replicas, added]
    return replicas


def _spread(placed: dict[str, list[InstanceId]], loads: Counter[InstanceId], servers: Servers) -> None:
    """Move replicas that share a zone into zones that have none. Changes `placed`."""
    zones = {servers.zone(server) for server in servers.live}
    if len(zones) < 2:
        return
    for replicas in placed.values():
        while (free := zones.difference(map(servers.zone, replicas))) and (giver := _crowded(replicas, loads, servers)):
            taker = min(
                (server for server in servers.live if servers.zone(server) in free),
                key=lambda server: (loads[server], server),
            )
            _move(replicas, loads, giver, taker)


def _crowded(replicas: Sequence[InstanceId], loads: Counter[InstanceId], servers: Servers) -> InstanceId | None:
    """Return the fullest live server of those that share a zone; None if there is none."""
    crowds = Counter(map(servers.zone, replicas))
    sharing = [server for server in replicas if server in servers.live and crowds[servers.zone(server)] > 1]
    return max(sharing, key=lambda server: (loads[server], server), default=None)


def _move(replicas: list[InstanceId], loads: Counter[InstanceId], giver: InstanceId, taker: InstanceId) -> None:
    replicas[replicas.index(giver)] = taker
    loads.subtract([giver])
    loads.update([taker])


def _balance(placed: dict[str, list[InstanceId]], loads: Counter[InstanceId], servers: Servers) -> None:
    """Move replicas from full live servers to emptier ones, as far as no segment is in fewer zones for it. Changes
    `placed`.

    Within one zone the fullest server always has a replica for the emptiest: a server with two more than another has a
    segment that the other lacks."""
    # The order has nothing to do with time, so that a new server does not get the segments of successive days.
    names: dict[InstanceId, list[str]] = {server: [] for server in servers.live}
    for name in sorted(placed, key=lambda name: (zlib.crc32(name.encode()), name)):
        for server in placed[name]:
            if server in servers.live:
                names[server].append(name)
    # A server that gives never receives later, and one that receives never gives, unless zones are in the way. So a
    # replica that was passed over for a pair of servers need not be looked at again, and the search goes on behind it:
    # from the start, it takes minutes.
    behind: dict[tuple[InstanceId, InstanceId], Iterator[str]] = {}
    while True:
        for giver, taker in _uneven(loads, servers):
            candidates = behind.setdefault((giver, taker), iter(names[giver]))
            movable = next((name for name in candidates if _may_move(placed[name], giver, taker, servers)), None)
            if movable is not None:
                _move(placed[movable], loads, giver, taker)
                break
        else:
            return


def _uneven(loads: Counter[InstanceId], servers: Servers) -> Iterator[tuple[InstanceId, InstanceId]]:
    """Yield pairs of live servers of which the first has at least two segments more, the most uneven pairs first."""
    by_load = sorted(servers.live, key=lambda server: (loads[server], server))
    for giver in reversed(by_load):
        for taker in by_load:
            if loads[giver] - loads[taker] <= 1:
                break
            yield giver, taker


def _may_move(replicas: Sequence[InstanceId], giver: InstanceId, taker: InstanceId, servers: Servers) -> bool:
    if giver not in replicas or taker in replicas:
        return False
    after = [taker if server == giver else server for server in replicas]
    return servers.num_zones(after) >= servers.num_zones(replicas)
