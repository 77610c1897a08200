"""Route all that a query asks of a partition to one server (strict replica groups). Pure.

Replicas of a stream's partition are at different offsets, and replicas of an upsert table consider different rows
valid. Parts of two replicas do not add up to any state of the partition. So all segments of a partition are routed to
the servers that hold all of them, and each query asks one of these servers. If no server holds them all, one server is
asked: a preferred one if there is any, and of those the one with most segments. The segments that it lacks are reported
as unavailable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from merlot.broker.routing.health import ServerStanding
from merlot.cluster.segments.boundary import TimeSplit
from merlot.cluster.segments.parts import partition_groups
from merlot.ids import InstanceId

if TYPE_CHECKING:
    from merlot.broker.routing.routes import RoutedSegment


@dataclass(frozen=True, slots=True)
class _PartitionReplicas:
    segments: Sequence[RoutedSegment]
    standings: Mapping[InstanceId, ServerStanding]

    def holders(self) -> tuple[Set[InstanceId], ...]:
        """Return, for each segment, the servers that may be asked for it."""
        return tuple(frozenset((*segment.replicas, *segment.backups)) for segment in self.segments)

    def common(self) -> tuple[InstanceId, ...]:
        """Return the servers that hold every segment of the partition that anybody holds, preferred ones first; if
        there are none, the server with most of them among the preferred ones, or among all if none is preferred."""
        held = [holders for holders in self.holders() if holders]
        if not held:
            return ()
        everywhere = frozenset.intersection(*map(frozenset, held))
        if everywhere:
            return tuple(sorted(everywhere, key=self._rank))
        counts = {server: sum(server in holders for holders in held) for holders in held for server in holders}
        return (min(counts, key=lambda server: (self._rank(server)[0], -counts[server], server)),)

    def _rank(self, server: InstanceId) -> tuple[bool, InstanceId]:
        return (self.standings.get(server) is not ServerStanding.PREFERRED, server)


def grouped(
    routed: Mapping[str, RoutedSegment], standings: Mapping[InstanceId, ServerStanding]
) -> dict[str, RoutedSegment]:
    """Return `routed` with all segments of a partition on the same servers. Segments without a partition, and those
    that no query sees, stay as they are."""
    regrouped = dict(routed)
    visible = {
        segment.record.name: name for name, segment in routed.items() if segment.time_split is not TimeSplit.HIDDEN
    }
    groups = partition_groups(routed[name].record for name in visible.values())
    for number, label in enumerate(sorted(groups)):
        names = [visible[name] for name in groups[label]]
        members = _PartitionReplicas([routed[name] for name in names], standings)
        servers = members.common()
        preferred = tuple(server for server in servers if standings.get(server) is ServerStanding.PREFERRED) or servers
        others = tuple(server for server in servers if server not in preferred)
        cut = max(segment.time_split for segment in members.segments)
        for name, holders in zip(names, members.holders(), strict=True):
            regrouped[name] = replace(
                routed[name],
                replicas=tuple(server for server in preferred if server in holders),
                backups=tuple(server for server in others if server in holders),
                group=number,
                time_split=cut,  # the same for all, so that one call asks for the whole partition
            )
    return regrouped
