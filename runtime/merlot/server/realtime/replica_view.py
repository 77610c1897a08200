"""View that a partition's replica has of shared state: the partition's segments, and what other servers report.

The event loop writes the segments that it reads of the table's tree, and a thread of its I/O executor what other
servers report. The partition's thread writes what its own writes have made of the tree, and the positions that it reads
after its own. The partition's thread reads everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from merlot.cluster.consuming.partitions import chains, segment_after
from merlot.cluster.consuming.positions import Positions
from merlot.cluster.consuming.steps import Peers, SegmentLookedUp
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId
from merlot.server.realtime.partition_log import CONSUMING_SUFFIX


@dataclass(frozen=True, slots=True)
class SegmentChain:
    """Segments of the partition by sequence, and the servers that consume it."""

    records: Mapping[int, StreamSegmentRecord] = field(default_factory=dict)
    epoch: int = -1
    servers: frozenset[InstanceId] = frozenset()


@dataclass(frozen=True, slots=True)
class PeerState:
    """Positions in the table's segments, live servers, and keys that other servers can be queried for; None if their
    reports have not been read yet."""

    positions: Positions = field(default_factory=dict)
    live: Set[InstanceId] = frozenset()
    held: Set[str] | None = None


class ReplicaView:
    """Newest state that is known here, and whether the replica has seen it."""

    def __init__(self, partition: int) -> None:
        self.read = SegmentChain()
        """Chain as the event loop read it last."""
        self.others = PeerState()
        self.is_let_go = False
        """True if the partition is another server's."""
        self._partition = partition
        self._own = SegmentChain()
        self._seen: tuple[object, ...] = ()

    @property
    def chain(self) -> SegmentChain:
        """Chain as of the newest view: the replica's own writes may be ahead of what the event loop read."""
        read, own = self.read, self._own
        return own if own.epoch > read.epoch else read

    @property
    def is_held_elsewhere(self) -> bool:
        """True if another server can be queried for the partition, as far as known."""
        held = self.others.held
        return held is None or any(record.name + CONSUMING_SUFFIX in held for record in self.chain.records.values())

    def note_written(self, view: TableView) -> None:
        """Take over the view that a write of the replica has made."""
        records = chains(view.stream_segments).get(self._partition, {})
        servers = view.servers_of(records[max(records)].name) if records else ()
        self._own = SegmentChain(records, view.epoch, frozenset(servers))

    def note_positions(self, positions: Positions) -> None:
        """Take over the positions after the replica has published its own."""
        self.others = replace(self.others, positions=positions)

    def has_news(self, segment: str) -> bool:
        """Return True if something has changed since the last call, or the replica works on another segment now."""
        now = (segment, self.is_let_go, self.chain, self.others)
        before, self._seen = self._seen, now
        is_same = len(before) == len(now) and before[:2] == now[:2] and before[2] is now[2] and before[3] is now[3]
        return not is_same

    def seen(self, record: StreamSegmentRecord) -> SegmentLookedUp:
        """Return what is seen of the segment that the replica works on, and the segment behind it."""
        chain = self.chain
        current = chain.records.get(record.sequence)
        return SegmentLookedUp(
            segment=record.name,
            epoch=chain.epoch,
            record=current if current is not None and current.name == record.name else None,
            following=segment_after(chain.records, record.sequence),
            is_assigned=not self.is_let_go,
        )

    def peers(self, record: StreamSegmentRecord) -> Peers:
        """Return what the segment's servers report."""
        assigned, others = self.chain.servers, self.others
        return Peers(record.name, others.positions.get(record.name, {}), assigned, assigned & others.live)
