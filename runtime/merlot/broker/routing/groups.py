"""Strict replica groups: all that a query asks of a partition, it asks of one server. Pure.

Replicas of a stream's partition are at different offsets, and those of an upsert table take different rows for the
valid ones: parts of two of them do not add up to any state of the partition. So each segment of a partition is routed
to the servers that hold all of it, in one turn to the same one. Where no server does, the one that holds most is asked,
and the rest is unavailable: said, not mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from merlot.broker.routing.health import Standing
from merlot.cluster.segments.boundary import Cut
from merlot.cluster.segments.parts import partition_groups
from merlot.ids import InstanceId

if TYPE_CHECKING:
    from merlot.broker.routing.routes import RoutedSegment


@dataclass(frozen=True, slots=True)
class _Members:
    segments: Sequence[RoutedSegment]
    standings: Mapping[InstanceId, Standing]

    def holders(self) -> tuple[Set[InstanceId], ...]:
        """By segment, whoever may be asked for it."""
        return tuple(frozenset((*one.replicas, *one.backups)) for one in self.segments)

    def common(self) -> tuple[InstanceId, ...]:
        """Servers that have all of the partition that anybody has; else the one with most of it. Preferred first."""
        held = [holders for holders in self.holders() if holders]
        if not held:
            return ()
        everywhere = frozenset.intersection(*map(frozenset, held))
        if everywhere:
            return tuple(sorted(everywhere, key=self._rank))
        counts = {one: sum(one in holders for holders in held) for holders in held for one in holders}
        return (min(counts, key=lambda one: (self._rank(one)[0], -counts[one], one)),)

    def _rank(self, server: InstanceId) -> tuple[bool, InstanceId]:
        return (self.standings.get(server) is not Standing.PREFERRED, server)


def grouped(routed: Mapping[str, RoutedSegment], standings: Mapping[InstanceId, Standing]) -> dict[str, RoutedSegment]:
    """The segments as they are asked for; those without a partition, and those that nobody sees, are as they were."""
    found = dict(routed)
    seen = {one.record.name: name for name, one in routed.items() if one.cut is not Cut.HIDDEN}
    groups = partition_groups(routed[name].record for name in seen.values())
    for number, label in enumerate(sorted(groups)):
        names = [seen[name] for name in groups[label]]
        members = _Members([routed[name] for name in names], standings)
        servers = members.common()
        preferred = tuple(one for one in servers if standings.get(one) is Standing.PREFERRED) or servers
        others = tuple(one for one in servers if one not in preferred)
        cut = max(segment.cut for segment in members.segments)
        for name, holders in zip(names, members.holders(), strict=True):
            found[name] = replace(
                routed[name],
                replicas=tuple(one for one in preferred if one in holders),
                backups=tuple(one for one in others if one in holders),
                group=number,
                cut=cut,  # one call for all of the partition
            )
    return found
