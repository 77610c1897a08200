"""Mutations that bring a table's stream from its current to its wanted state. Pure.

Replicas end their segments, and open the next ones, without the controller. It handles the rest: partitions that nobody
has begun, the servers of partitions, requests of users, changed settings, and ends that no replica can reach by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from merlot.cluster.consuming import transactions
from merlot.cluster.consuming.handover import is_long, lonely_segments, long_segments
from merlot.cluster.consuming.machine import LOST
from merlot.cluster.consuming.partitions import open_segments
from merlot.cluster.consuming.positions import Positions
from merlot.cluster.consuming.progress import ProgressRecord
from merlot.cluster.consuming.transactions import Begin, End
from merlot.cluster.records import AskedEnd, ConsumingStatus, PositionRecord, StreamSegmentRecord
from merlot.cluster.segments.transaction import Assign, Mutation
from merlot.cluster.segments.view import TableView
from merlot.controller.placement import together
from merlot.controller.placement.assignment import Servers, assign
from merlot.controller.placement.moves import Situation, step
from merlot.ids import InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSituation:
    """Input of a decision beside the view."""

    table: Situation
    """The table's servers and their reports, as for other segments."""
    pinned: str
    """Settings that segments shall have."""
    starts: Mapping[int, int]
    """Partitions of the stream, with the offsets to begin at."""
    is_paused: bool = False
    positions: Positions = field(default_factory=dict)
    """Positions of replicas that want to end their segments, by segment."""
    draining: Set[InstanceId] = frozenset()
    """Servers that are about to stop, for good or to come back."""
    progress: Mapping[InstanceId, ProgressRecord] = field(default_factory=dict)
    """Progress that servers report."""


def decide(view: TableView, situation: StreamSituation) -> Sequence[Mutation]:
    """Return what to change now; empty if nothing is left to do, or the table is suspended.

    These are mutations of one kind, since a record can change only once in a write."""
    if situation.table.spec.suspend:
        return []
    for kind in (_begin, _pause_or_resume, _renew_settings, _hand_over, _place, _shorten):
        mutations = kind(view, situation)
        if mutations:
            return mutations
    return []


def _begin(view: TableView, situation: StreamSituation) -> list[Mutation]:
    """Open a segment for each partition that has none, on the servers that consume the fewest."""
    opened = open_segments(view)
    missing = sorted(situation.starts.keys() - opened.keys())
    servers = situation.table.servers
    if not missing or not servers.live:
        return []
    current = {_partition_key(number): view.servers_of(record.name) for number, record in opened.items()}
    wanted = [_partition_key(number) for number in sorted({*opened, *missing})]
    placed = assign(wanted, current, servers, situation.table.spec.replication, balance=False)
    begins = [
        Begin(partition=number, offset=situation.starts[number], servers=placed[_partition_key(number)])
        for number in missing
    ]
    return transactions.begin(view, begins, situation.pinned, situation.table.now_ms, paused=situation.is_paused)


def _pause_or_resume(view: TableView, situation: StreamSituation) -> list[Mutation]:
    if not situation.is_paused:
        return transactions.resume(view, situation.table.now_ms)
    running = {
        number
        for number, record in open_segments(view).items()
        if record.status != ConsumingStatus.PAUSED and record.asked_end is not AskedEnd.PAUSE
    }
    return transactions.ask_to_end(view, running, AskedEnd.PAUSE, situation.table.now_ms)


def _renew_settings(view: TableView, situation: StreamSituation) -> list[Mutation]:
    """End segments of other settings, so that the new ones take effect in seconds, for all replicas alike."""
    if not situation.pinned:
        return []
    outdated = {
        number
        for number, record in open_segments(view).items()
        if (record.next_pinned or record.pinned) != situation.pinned
    }
    asked = AskedEnd.PAUSE if situation.is_paused else AskedEnd.FORCE
    now_ms = situation.table.now_ms
    return transactions.ask_to_end(view, outdated, asked, now_ms, next_pinned=situation.pinned)


def _hand_over(view: TableView, situation: StreamSituation) -> list[Mutation]:
    """Commit what a server that stops has consumed, so that its successor begins where the file ends."""
    progress = situation.progress.values()
    segments = [segment for server in situation.draining for segment in long_segments(view, server, progress)]
    return _commit_now(view, segments, situation)


def _commit_now(view: TableView, records: Iterable[StreamSegmentRecord], situation: StreamSituation) -> list[Mutation]:
    consuming = (segment for segment in records if segment.status == ConsumingStatus.CONSUMING)
    numbers = {segment.partition for segment in consuming if segment.asked_end is AskedEnd.NO}
    return transactions.ask_to_end(view, numbers, AskedEnd.FORCE, situation.table.now_ms) if numbers else []


def _place(view: TableView, situation: StreamSituation) -> list[Mutation]:
    """Spread the partitions evenly. A server gives a partition up when the new servers consume it.

    If a new server would read for long again, the servers that have the rows commit them first."""
    table = situation.table
    if table.spec.is_strict:
        return _place_together(view, situation)
    # By partition, not by segment: the choice must not change when a segment is committed because of it.
    opened = {_partition_key(number): record for number, record in sorted(open_segments(view).items())}
    current, servers = _staying(view, opened, situation)
    target = assign(list(opened), current, servers, table.spec.replication, balance=table.balance)
    waiting = {name for name, wanted in target.items() if _reads_long(view, opened[name], wanted, situation)}
    commits = _commit_now(view, [opened[name] for name in waiting], situation)
    if commits:
        return commits
    changes: dict[str, tuple[InstanceId, ...]] = {}
    for name in target.keys() - waiting:
        record = opened[name]
        stepped = step(record.key, view.servers_of(record.name), target[name], table)
        if stepped != view.servers_of(record.name):
            changes[record.name] = stepped
    return [Assign(changes)] if changes else []


def _place_together(view: TableView, situation: StreamSituation) -> list[Mutation]:
    """Place open segments of partitions that one server answers for together with their sealed ones."""
    opened = {record.name: record for record in open_segments(view).values()}
    partitions, _ = together.split(view, is_strict=True)
    changes = together.assignment(view, partitions, situation.table)
    moving = {name: servers for name, servers in changes.items() if name in opened}
    waiting = {name for name, wanted in moving.items() if _reads_long(view, opened[name], wanted, situation)}
    commits = _commit_now(view, [opened[name] for name in waiting], situation)
    moved = {name: servers for name, servers in moving.items() if name not in waiting}
    return commits or ([Assign(moved)] if moved else [])


def _staying(
    view: TableView, opened: Mapping[str, StreamSegmentRecord], situation: StreamSituation
) -> tuple[dict[str, tuple[InstanceId, ...]], Servers]:
    """Return the assignment and the servers to decide by while servers are about to stop.

    Partitions that only they consume go to others, if there are any. Partitions that others consume too wait until the
    servers are back."""
    servers = situation.table.servers
    current = {name: view.servers_of(record.name) for name, record in opened.items()}
    staying = servers.live - situation.draining
    if not staying:
        return current, servers
    lonely = {segment.partition for server in situation.draining for segment in lonely_segments(view, server, staying)}
    assignment = {name: () if opened[name].partition in lonely else replicas for name, replicas in current.items()}
    return assignment, replace(servers, live=staying)


def _reads_long(
    view: TableView, record: StreamSegmentRecord, wanted: Iterable[InstanceId], situation: StreamSituation
) -> bool:
    """Return whether a server that joins would read much again that a live server can commit."""
    replicas = view.servers_of(record.name)
    if situation.table.servers.live.isdisjoint(replicas) or set(wanted) <= set(replicas):
        return False
    return record.status == ConsumingStatus.SEALING or is_long(record, situation.progress.values())


def _shorten(view: TableView, situation: StreamSituation) -> list[Mutation]:
    """Give up an agreed end that no replica can reach because the stream has lost rows before it."""
    for record in open_segments(view).values():
        if record.status == ConsumingStatus.SEALING:
            servers = set(view.servers_of(record.name)) - situation.table.servers.gone
            end = _reachable(record, situation.positions.get(record.name, {}), servers, situation.table.now_ms)
            if end is not None:
                return transactions.shorten(view, end)
    return []


def _reachable(
    record: StreamSegmentRecord, positions: Mapping[InstanceId, PositionRecord], servers: Set[InstanceId], now_ms: int
) -> End | None:
    """Return the best end that is left; None while any replica, even a silent one, may still reach the agreed end."""
    stuck = [positions[server] for server in sorted(servers) if server in positions]
    if not stuck or len(stuck) < len(servers) or any(position.reason != LOST for position in stuck):
        return None
    best = max(stuck, key=lambda position: (position.offset, position.instance))
    if best.resume is None:
        return None
    return End(segment=record.name, offset=best.offset, sealer=best.instance, now_ms=now_ms, next_offset=best.resume)


def _partition_key(partition: int) -> str:
    return f"{partition:08d}"
