"""What a partition's replica can see around it: the partition's segments, and what other servers say.

Each fact has one writer: the event loop what it reads of the table's tree, its helper what other servers say, and the
partition's thread what its own writes have made of the tree. The thread reads them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from merlot.cluster.consuming.partitions import chains, segment_after
from merlot.cluster.consuming.positions import Positions
from merlot.cluster.consuming.steps import Peers, Seen
from merlot.cluster.records import StreamSegmentRecord
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId
from merlot.server.realtime.line import CONSUMING_SUFFIX


@dataclass(frozen=True, slots=True)
class Chain:
    """The partition's segments by sequence, and who consumes it."""

    records: Mapping[int, StreamSegmentRecord] = field(default_factory=dict)
    epoch: int = -1
    servers: frozenset[InstanceId] = frozenset()


@dataclass(frozen=True, slots=True)
class Others:
    """Positions in the table's segments, servers that live, and keys that other ones may be asked for."""

    positions: Positions = field(default_factory=dict)
    live: Set[InstanceId] = frozenset()
    held: Set[str] = frozenset()


class Sight:
    """The newest that is known, and whether the replica knows it."""

    def __init__(self, partition: int) -> None:
        self.told = Chain()
        self.others = Others()
        self.is_let_go = False
        """Whether the partition is another server's."""
        self._partition = partition
        self._own = Chain()
        self._seen: tuple[object, ...] = ()

    @property
    def chain(self) -> Chain:
        """As of the newest view: the replica's own writes may be ahead of what was told."""
        told, own = self.told, self._own
        return own if own.epoch > told.epoch else told

    @property
    def is_held_elsewhere(self) -> bool:
        """Whether another server may be asked for the partition."""
        held = self.others.held
        return bool(held) and any(one.name + CONSUMING_SUFFIX in held for one in self.chain.records.values())

    def note_written(self, view: TableView) -> None:
        """Take up the view after a write of the replica."""
        records = chains(view.stream_segments).get(self._partition, {})
        servers = view.servers_of(records[max(records)].name) if records else ()
        self._own = Chain(records, view.epoch, frozenset(servers))

    def note_positions(self, positions: Positions) -> None:
        """Take up the positions after the replica has published its own."""
        self.others = replace(self.others, positions=positions)

    def has_news(self, segment: str) -> bool:
        """Whether something has changed since this was asked last, or the replica works on another segment now."""
        now = (segment, self.is_let_go, self.chain, self.others)
        before, self._seen = self._seen, now
        is_same = len(before) == len(now) and before[:2] == now[:2] and before[2] is now[2] and before[3] is now[3]
        return not is_same

    def seen(self, record: StreamSegmentRecord) -> Seen:
        """The segment that the replica works on, and the one behind it."""
        chain = self.chain
        found = chain.records.get(record.sequence)
        return Seen(
            segment=record.name,
            epoch=chain.epoch,
            record=found if found is not None and found.name == record.name else None,
            following=segment_after(chain.records, record.sequence),
            is_assigned=not self.is_let_go,
        )

    def peers(self, record: StreamSegmentRecord) -> Peers:
        """What the segment's servers say."""
        assigned, others = self.chain.servers, self.others
        return Peers(record.name, others.positions.get(record.name, {}), assigned, assigned & others.live)
