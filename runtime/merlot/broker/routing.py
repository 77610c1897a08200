"""Which replica answers for which segment: a pure function from shared state to an immutable snapshot.

The rule, per segment of the table's view, with `wanted` the record's `name@crc` and *holders* the servers that report
exactly that key and may be asked (`health.Standing`):

1. The wanted version has holders: it is routed. Record and route switch together, in one snapshot.
2. It has none, but the version routed until now (a refresh is under way) does: that one stays, with its old record.
3. It has none, and the segment was *in service*: it stays in the table with nobody to answer for it, and every answer
   carries exception 305. In service means that the previous snapshot routed it, or that any server's report names it,
   the reports of dead servers included (they outlive their servers, so a broker that just started knows as much).
4. It was never in service: it is *new* and not part of the table yet, so counts grow by whole segments once a replica
   is up. A record older than `NEW_SEGMENT_MS` is no longer new (Pinot's InstanceSelector has the same five minutes): a
   segment that no server manages to load must be heard of.
5. Segments that left the view together with the arrival of others were replaced by them: they stay until all of these
   have a replica, then all switch at once (`replacement`). Otherwise a segment whose record is gone leaves at once.

So an answer without exception holds every row of every segment in service, and `total_docs` counts the same segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import lcm

from merlot.broker.health import Standing
from merlot.broker.replacement import Arrival, Replacement
from merlot.cluster.records import SegmentRecord
from merlot.cluster.view import TableView
from merlot.ids import InstanceId, TableName

NEW_SEGMENT_MS = 5 * 60 * 1000
MAX_TURNS = 12
"""Rotations kept per table: enough to balance 2, 3, 4, 6 and 12 replicas exactly."""


@dataclass(frozen=True, slots=True)
class RoutedSegment:
    """One version of a segment and who may be asked for it, preferred servers only if there are any.

    `backups` are the others that hold it: asked when all replicas turn out to be lost.
    """

    key: str
    record: SegmentRecord
    replicas: tuple[InstanceId, ...]
    backups: tuple[InstanceId, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ServerRoute:
    """What one call asks one server. Compared by identity, so that an encoder may remember its bytes."""

    instance: InstanceId
    segments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingInputs:
    """Everything a snapshot is made from. `reports` has every server that ever reported, dead ones included."""

    view: TableView
    reports: Mapping[InstanceId, Set[str]]
    standings: Mapping[InstanceId, Standing]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSnapshot:
    """The routes of a table at one moment. `turns` are equivalent: each covers all `segments` with replicas once."""

    table: TableName
    epoch: int
    segments: Mapping[str, RoutedSegment]
    turns: tuple[tuple[ServerRoute, ...], ...]
    unavailable: tuple[str, ...]
    absent: tuple[InstanceId, ...]
    """Servers that should hold the unavailable segments, by assignment and by report."""
    total_docs: int
    pending: frozenset[str] = frozenset()
    """Names in the view that are not part of the table yet."""
    replacement: Replacement | None = None
    stale_at_ms: int | None = None
    """When waiting for a pending segment will have taken too long."""
    by_key: Mapping[str, RoutedSegment] = field(repr=False)

    def select(self, request_number: int) -> tuple[ServerRoute, ...]:
        """One replica for each segment; requests take turns, so that replicas share the load."""
        return self.turns[request_number % len(self.turns)]


@dataclass(frozen=True, slots=True)
class Rerouted:
    """Where to ask next, and the keys for which there is nobody left."""

    routes: tuple[ServerRoute, ...]
    lost: tuple[str, ...]


def build(inputs: RoutingInputs, previous: RoutingSnapshot | None = None) -> RoutingSnapshot:
    """The next snapshot. Takes a few microseconds per segment: call it in a thread."""
    before = previous.segments if previous is not None else {}
    facts = _Facts.of(inputs, is_first=previous is None)
    segments = inputs.view.segments
    routed = {}
    for name, record in segments.items():
        segment = _route(record, before.get(name), facts)
        if segment is not None:
            routed[name] = segment
    replacement = _replacement(inputs, previous, routed)
    if replacement is not None:
        _hold_back(routed, replacement, before, facts)
    elif previous is not None and previous.replacement is not None:
        late = previous.replacement.awaited & segments.keys() - routed.keys()
        routed |= {name: RoutedSegment(_key(segments[name]), segments[name], ()) for name in late}
    pending = frozenset(segments.keys() - routed.keys())
    return _snapshot(inputs, routed, pending, replacement)


def _snapshot(
    inputs: RoutingInputs,
    routed: Mapping[str, RoutedSegment],
    pending: frozenset[str],
    replacement: Replacement | None,
) -> RoutingSnapshot:
    unavailable = tuple(segment.key for segment in routed.values() if not segment.replicas)
    deadlines = [_ends_being_new(inputs.view.segments[name]) for name in pending]
    if replacement is not None:
        deadlines = [replacement.ends_ms]
    return RoutingSnapshot(
        table=inputs.view.table,
        epoch=inputs.view.epoch,
        segments=routed,
        turns=_turns([segment for segment in routed.values() if segment.replicas]),
        unavailable=unavailable,
        absent=_absent(unavailable, routed, inputs) if unavailable else (),
        total_docs=sum(segment.record.total_docs for segment in routed.values()),
        pending=pending,
        replacement=replacement,
        stale_at_ms=min(deadlines, default=None),
        by_key={segment.key: segment for segment in routed.values()},
    )


def _replacement(
    inputs: RoutingInputs, previous: RoutingSnapshot | None, routed: Mapping[str, RoutedSegment]
) -> Replacement | None:
    """What is being replaced after this step; None if nothing is, or no longer."""
    if previous is None:
        return None
    known = previous.segments.keys() | previous.pending
    arrival = Arrival(
        fresh=frozenset(inputs.view.segments.keys() - known),
        removed=frozenset(known - inputs.view.segments.keys()),
        now_ms=inputs.now_ms,
    )
    replacement = arrival.continue_from(previous.replacement)
    if replacement is None or replacement.ends_ms <= inputs.now_ms:
        return None
    is_ready = all(name in routed and routed[name].replicas for name in replacement.awaited)
    return None if is_ready else replacement


def _hold_back(
    routed: dict[str, RoutedSegment],
    replacement: Replacement,
    before: Mapping[str, RoutedSegment],
    facts: _Facts,
) -> None:
    """Route what is being replaced, and nothing yet of what replaces it."""
    for name in replacement.awaited:
        routed.pop(name, None)
    for name in replacement.leaving & before.keys():
        old = before[name]
        routed[name] = facts.route(old.key, old.record)


def reroute(
    snapshot: RoutingSnapshot, keys: Iterable[str], silent: Set[InstanceId], lacking: Set[tuple[InstanceId, str]]
) -> Rerouted:
    """Other replicas for `keys`: not a silent server, nor one that said it lacks the key; in few calls."""
    groups: dict[InstanceId, list[str]] = defaultdict(list)
    lost = []
    for key in keys:
        segment = snapshot.by_key[key]
        holders = (*segment.replicas, *segment.backups)
        candidates = [one for one in holders if one not in silent and (one, key) not in lacking]
        if candidates:
            groups[next((one for one in candidates if one in groups), candidates[0])].append(key)
        else:
            lost.append(key)
    return Rerouted(_routes(groups), tuple(lost))


@dataclass(frozen=True, slots=True)
class _Facts:
    holders: Mapping[str, tuple[InstanceId, ...]]
    backups: Mapping[str, tuple[InstanceId, ...]]
    """Of keys that have preferred holders too."""
    reported: Set[str]
    """Keys in the reports of servers that may not be asked."""
    versions: Mapping[str, Sequence[str]]
    """Keys that may be asked for, by name, where a name has one that is not wanted."""
    are_new_trusted: bool
    """Whether segments may pass for new: not if this broker just started amid a replacement, as reports tell."""
    now_ms: int

    @classmethod
    def of(cls, inputs: RoutingInputs, *, is_first: bool) -> _Facts:
        preferred = _holders(inputs, Standing.PREFERRED)
        backups = _holders(inputs, Standing.BACKUP)
        holders = {**backups, **preferred}
        reported = set().union(*(keys for one, keys in inputs.reports.items() if one not in inputs.standings))
        segments = inputs.view.segments
        versions: dict[str, list[str]] = defaultdict(list)
        for key in holders.keys() - {_key(record) for record in segments.values()}:
            versions[key.rpartition("@")[0]].append(key)
        are_new_trusted = not is_first or versions.keys() <= segments.keys()
        spare = {key: servers for key, servers in backups.items() if key in preferred}
        return cls(holders, spare, reported, versions, are_new_trusted, inputs.now_ms)

    def route(self, key: str, record: SegmentRecord) -> RoutedSegment:
        """This version and its holders, if it has any."""
        return RoutedSegment(key, record, self.holders.get(key, ()), self.backups.get(key, ()))


def _holders(inputs: RoutingInputs, standing: Standing) -> dict[str, tuple[InstanceId, ...]]:
    found: dict[str, list[InstanceId]] = defaultdict(list)
    for instance in sorted(inputs.reports):
        if inputs.standings.get(instance) is standing:
            for key in inputs.reports[instance]:
                found[key].append(instance)
    shared: dict[tuple[InstanceId, ...], tuple[InstanceId, ...]] = {}
    tuples = ((key, tuple(instances)) for key, instances in found.items())
    return {key: shared.setdefault(instances, instances) for key, instances in tuples}


def _route(record: SegmentRecord, before: RoutedSegment | None, facts: _Facts) -> RoutedSegment | None:
    key = _key(record)
    if key in facts.holders:
        return facts.route(key, record)
    if before is not None and before.key != key:
        return facts.route(before.key, before.record)
    if before is not None or key in facts.reported:
        return RoutedSegment(key, record, ())
    older = facts.versions.get(record.name, ())
    if len(older) == 1:
        # This broker started in the middle of a refresh: the version that is served goes on being served.
        return facts.route(older[0], record)
    is_new = not older and facts.are_new_trusted and facts.now_ms < _ends_being_new(record)
    return None if is_new else RoutedSegment(key, record, ())


def _key(record: SegmentRecord) -> str:
    return f"{record.name}@{record.crc}"


def _ends_being_new(record: SegmentRecord) -> int:
    return max(record.push_time_ms, record.refresh_time_ms, 0) + NEW_SEGMENT_MS


def _turns(segments: Sequence[RoutedSegment]) -> tuple[tuple[ServerRoute, ...], ...]:
    num_turns = min(MAX_TURNS, lcm(*{len(segment.replicas) for segment in segments}))
    return tuple(_turn(segments, turn) for turn in range(num_turns))


def _turn(segments: Sequence[RoutedSegment], turn: int) -> tuple[ServerRoute, ...]:
    groups: dict[InstanceId, list[str]] = defaultdict(list)
    for position, segment in enumerate(segments, start=turn):
        groups[segment.replicas[position % len(segment.replicas)]].append(segment.key)
    return _routes(groups)


def _routes(groups: Mapping[InstanceId, Sequence[str]]) -> tuple[ServerRoute, ...]:
    return tuple(ServerRoute(instance, tuple(keys)) for instance, keys in sorted(groups.items()))


def _absent(
    unavailable: Sequence[str], routed: Mapping[str, RoutedSegment], inputs: RoutingInputs
) -> tuple[InstanceId, ...]:
    lost = set(unavailable)
    names = [name for name, segment in routed.items() if segment.key in lost]
    assigned = {one for name in names for one in inputs.view.assignment.get(name, ())}
    reporting = {one for one, keys in inputs.reports.items() if not lost.isdisjoint(keys)}
    return tuple(sorted(assigned | reporting))
