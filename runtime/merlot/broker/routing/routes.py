"""Choose the replica that answers for each segment: a pure function from shared state to an immutable snapshot.

The *wanted* version of a segment is its record's `name@crc`. The *holders* of a version are the servers that report
exactly that key and may be asked (`health.ServerStanding`). For each segment of the table's view:

1. The wanted version has holders: it is routed. Record and route switch together, in one snapshot.
2. It has none, but the version routed until now has (a refresh is under way): that version stays, with its old record.
3. It has none, and the segment was *in service*: it stays in the table although no server answers for it, and every
   answer carries exception 305. In service means that the previous snapshot routed it, or that a server's report names
   it, as loaded or as served once before a restart. Reports outlive their servers and count when the servers are dead,
   so a broker that just started knows as much.
4. It was never in service: it is *new* and not part of the table yet, so counts grow by whole segments once a replica
   is up. Some segments are not new, because they would go missing silently:
   - a record older than `NEW_SEGMENT_MS`, which no server manages to load (Pinot's InstanceSelector has the same five
     minutes), or one that is as far ahead of this broker's clock;
   - a segment whose rows may have been answered as part of a consuming range: they would vanish, and in an upsert
     table the rows that they replace would vanish too;
   - for a broker that just started, a record with a refresh time: what it replaced was answered, and may be gone.

Rules for several segments:

5. Segments that left the view while others arrived were replaced by these: they stay until all of the new ones have a
   replica, then all switch at once (`atomic_swaps`). Otherwise a segment whose record is gone leaves at once. Nothing
   stays for segments that `merlot recover` has brought back: they are missed until they are loaded.
6. The consumed segments at the end of a stream's partition are asked for by one key, which names the first of them
   (`consuming_ranges`). They are never exchanged: the first segment of the range moves on.
7. Of a replacement in the lineage, all inputs are part of the table, or all outputs: the outputs once each has a
   replica (`lineage_switching`).
8. In a hybrid table, queries see those rows of a segment that are on its side of the time boundary (`boundary`). The
   boundary moves in the snapshot that routes all segments of batches before it.
9. In a table with strict replica groups, one server is asked for all of a partition (`replica_groups`).
10. In an upsert table of batches, each partition has an edition (`cluster.segments.editions`), a record beside those of
    its segments that changes with them. So the partition keeps its routes until some server answers for the next
    edition, or for one on the way there (`edition_steps`).
11. If a minion has merged segments of an upsert table, either all of these are part of the table, or the segment with
    their rows, once that has a replica (`cluster.consuming.merges`).

So an answer without exception holds every row of every segment in service, and `total_docs` counts the same segments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, lcm

from merlot.broker.routing import boundary, consuming_ranges, lineage_switching
from merlot.broker.routing.atomic_swaps import AtomicSwap, changing_together, with_swap
from merlot.broker.routing.consuming_ranges import CONSUMING_SUFFIX, ConsumingRange
from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.replica_groups import grouped
from merlot.cluster.consuming.merged import taken
from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.records import RECOVERED, LineageMark, LineageState, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.boundary import BoundaryRule, TimeSplit, time_split
from merlot.cluster.segments.editions import editions_of, is_edition
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId, TableName
from merlot.spec.indexing import PartitioningSpec

NEW_SEGMENT_MS = 5 * 60 * 1000
MAX_TURNS = 12
"""Rotations kept per table: enough to balance 2, 3, 4, 6 and 12 replicas exactly."""


@dataclass(frozen=True, slots=True)
class RoutedSegment:
    """A version of a segment, and the servers that may be asked for it: only preferred ones, if there are any.

    `backups` are the other servers that hold it: they are asked when all replicas turn out to be lost.
    """

    key: str
    record: SegmentRecord
    replicas: tuple[InstanceId, ...]
    backups: tuple[InstanceId, ...] = ()
    time_split: TimeSplit = TimeSplit.ALL
    """Rows of the segment that queries see."""
    group: int | None = None
    """Number of the partition that is asked of one server as a whole; None: the segment is asked for by itself."""

    @property
    def is_known(self) -> bool:
        """True if the record describes the routed version, and no more rows come to it. A broker that started amid a
        refresh routes an old version whose record is gone."""
        return self.key == self.record.key_text and not self.record.is_open


@dataclass(frozen=True, slots=True, eq=False)
class ServerRoute:
    """One call to one server. Compared by identity, so that an encoder may cache its bytes."""

    instance: InstanceId
    segments: tuple[str, ...]
    time_split: TimeSplit = TimeSplit.ALL
    """Rows of the segments that the server is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingInputs:
    """Inputs of a snapshot. `reports` has every server that ever reported, dead ones included."""

    view: TableView
    reports: Mapping[InstanceId, Set[str]]
    standings: Mapping[InstanceId, ServerStanding]
    now_ms: int
    served: Set[str] = frozenset()
    """Keys that servers answered for once, and do not now."""
    is_whole: bool = False
    """True if a push replaces the table as a whole (REFRESH), so that its new versions change together."""
    is_strict: bool = False
    """True if all of a partition is asked of one server."""
    rule: BoundaryRule | None = None
    """Rule for the time boundary of a hybrid table; None for any other."""
    partitioning: PartitioningSpec | None = None
    """Partitioning of an upsert table of batches; None for any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSnapshot:
    """The routes of a table at one moment. Each of the `turns` covers all `segments` with replicas and visible rows."""

    table: TableName
    epoch: int
    segments: Mapping[str, RoutedSegment]
    turns: tuple[tuple[ServerRoute, ...], ...]
    unavailable: tuple[str, ...]
    absent: tuple[InstanceId, ...]
    """Servers that should hold the unavailable segments, by assignment or by report."""
    total_docs: int
    """Docs of the routed segments with visible rows, without `consuming_ranges`: their servers report them."""
    records: Mapping[str, SegmentRecord] = field(repr=False)
    """Segments of the table, as far as this broker follows the lineage; routes may lag behind."""
    pending: frozenset[str] = frozenset()
    """Names of `records` that are not routed yet."""
    swaps: tuple[AtomicSwap, ...] = ()
    """Segments that wait for each other."""
    completed: frozenset[str] = frozenset()
    """Entries of the lineage whose outputs are routed, not their inputs."""
    consuming_ranges: tuple[ConsumingRange, ...] = ()
    """Ends of a stream's partitions, each routed as one segment."""
    time_boundary_ms: int | None = None
    """Time boundary of a hybrid table: batches answer before it, the stream for the rest. None: both answer for all."""
    stale_at_ms: int | None = None
    """Time at which the snapshot must be built again, because a wait ends; None if nothing waits."""
    by_key: Mapping[str, RoutedSegment] = field(repr=False)
    servers: frozenset[InstanceId]
    """Servers that are asked for segments."""

    def select(self, request_number: int) -> tuple[ServerRoute, ...]:
        """Return a replica for each segment. Requests take turns, so that replicas share the load."""
        return self.turns[request_number % len(self.turns)]


@dataclass(frozen=True, slots=True)
class Rerouted:
    """Routes to ask next, and the keys that no other server can answer for."""

    routes: tuple[ServerRoute, ...]
    lost: tuple[str, ...]


def build(inputs: RoutingInputs, previous: RoutingSnapshot | None = None) -> RoutingSnapshot:
    """Build the next snapshot. Takes a few microseconds per segment: call it in a thread."""
    facts = _Facts.of(inputs, previous)
    table = _table_state(inputs, previous, facts)
    before = previous.segments if previous is not None else {}
    frozen = _frozen_names(table, before)
    routed = {name: facts.route(before[name].key, before[name].record) for name in frozen & before.keys()}
    routed |= {
        consuming.record.name: facts.route(consuming.record.key_text, consuming.record)
        for consuming in table.consuming_ranges
    }
    for name, record in table.records.items():
        if name in table.in_ranges:
            continue
        if name in table.late:
            routed[name] = facts.route(record.key_text, record)
        elif name not in frozen:
            segment = _route(record, before.get(name), facts)
            if segment is not None:
                routed[name] = segment
    if previous is None:
        routed |= _editions_before(inputs, routed, facts)
    boundary_ms = _boundary_ms(inputs, previous, table, routed)
    if boundary_ms is not None:
        routed = {name: _cut(segment, boundary_ms) for name, segment in routed.items()}
    if inputs.is_strict:
        routed = grouped(routed, inputs.standings)
    return _snapshot(inputs, table, routed, boundary_ms)


def _frozen_names(table: _TableState, before: Mapping[str, RoutedSegment]) -> Set[str]:
    """Return the segments whose routes a swap keeps as they were. Segments that were asked for as `name@0` are not
    among them: the split has moved since, and later segments are asked for by themselves. Nor are segments that a range
    covers now."""
    cuts = {consuming.record.partition: consuming.record.sequence for consuming in table.consuming_ranges}

    def is_moved(segment: RoutedSegment) -> bool:
        record = segment.record
        is_behind = isinstance(record, StreamSegmentRecord) and record.sequence >= cuts.get(record.partition, inf)
        return is_behind or _is_consumed(segment)

    return {name for name in table.frozen if name not in before or not is_moved(before[name])}


def _editions_before(
    inputs: RoutingInputs, routed: Mapping[str, RoutedSegment], facts: _Facts
) -> dict[str, RoutedSegment]:
    """Return routes for a broker that started amid a push: editions of the loaded segments alone, where the current
    edition has no replica."""
    if inputs.partitioning is None:
        return {}
    loaded = (segment.record for segment in routed.values() if segment.replicas and not is_edition(segment.key))
    editions = editions_of(loaded, inputs.partitioning)
    return {
        name: facts.route(edition.key, edition.record)
        for name, edition in editions.items()
        if edition.key in facts.holders and (name not in routed or not routed[name].replicas)
    }


def _boundary_ms(
    inputs: RoutingInputs, previous: RoutingSnapshot | None, table: _TableState, routed: Mapping[str, RoutedSegment]
) -> int | None:
    """Return the time boundary; None if there is none. A broker that starts uses the root's: servers had loaded the
    segments before it when it moved there."""
    if inputs.rule is None:
        return None
    boundary_ms = inputs.view.root.time_boundary_ms
    if previous is not None:
        waiting = table.pending(routed) | table.frozen
        is_ready = boundary.is_ready(table.records, waiting, boundary_ms)
        boundary_ms = boundary.followed(boundary_ms, previous.time_boundary_ms, is_ready=is_ready)
    if boundary_ms is None:
        return None
    return inputs.rule.lowered(boundary_ms, (segment.record for segment in routed.values()), inputs.now_ms)


def _cut(segment: RoutedSegment, boundary_ms: int) -> RoutedSegment:
    return replace(segment, time_split=time_split(segment.record, boundary_ms, is_known=segment.is_known))


@dataclass(frozen=True, kw_only=True)
class _TableState:
    """The table's segments as the next snapshot takes them."""

    records: Mapping[str, SegmentRecord]
    completed: frozenset[str]
    swaps: tuple[AtomicSwap, ...]
    late: Set[str]
    """Names of swaps that took too long: the new versions are routed, with or without replicas."""
    consuming_ranges: tuple[ConsumingRange, ...]
    deadline_ms: int | None

    @cached_property
    def in_ranges(self) -> frozenset[str]:
        return _names_of(self.consuming_ranges)

    @cached_property
    def frozen(self) -> frozenset[str]:
        return frozenset().union(*(swap.names for swap in self.swaps)) - self.in_ranges

    def pending(self, routed: Mapping[str, RoutedSegment]) -> frozenset[str]:
        """Return the names of `records` that are not routed."""
        return frozenset(self.records.keys() - routed.keys() - self.in_ranges)


def _names_of(ranges: Iterable[ConsumingRange]) -> frozenset[str]:
    return frozenset().union(*(consuming.names for consuming in ranges))


def _table_state(inputs: RoutingInputs, previous: RoutingSnapshot | None, facts: _Facts) -> _TableState:
    """Apply publishes and removals first, then switches of the lineage."""
    view, now_ms = inputs.view, inputs.now_ms
    if previous is None:
        completed = lineage_switching.completed_at_start(view, facts.has_replica)
        swaps: tuple[AtomicSwap, ...] = ()
    else:
        completed = lineage_switching.still_completed(view, previous.completed)
        now = _present(inputs, lineage_switching.visible_with(view, completed), facts)
        recovered = _recovered_names(previous, now)
        under_way = [swap for swap in previous.swaps if swap.names.isdisjoint(recovered)]
        swaps = with_swap(under_way, frozenset() if recovered else _changing_together(previous, now), now_ms)
    records = _present(inputs, lineage_switching.visible_with(view, completed), facts)
    waiting = tuple(
        swap for swap in swaps if not all(facts.has_replica(records[name]) for name in swap.names & records.keys())
    )
    in_time = tuple(swap for swap in waiting if swap.ends_ms > now_ms)
    late = frozenset().union(
        *(swap.names for swap in waiting if swap not in in_time and not _may_differ(swap, inputs, previous))
    )
    frozen = frozenset().union(*(swap.names for swap in in_time))
    switched = lineage_switching.switch_ready(view, completed, frozen, facts.has_replica, now_ms)
    if switched.completed != completed:
        records = _present(inputs, lineage_switching.visible_with(view, switched.completed), facts)
    return _TableState(
        records=records,
        completed=switched.completed,
        swaps=in_time,
        late=late,
        consuming_ranges=_ranges(inputs, records, facts),
        deadline_ms=switched.deadline_ms,
    )


def _present(inputs: RoutingInputs, records: Mapping[str, SegmentRecord], facts: _Facts) -> Mapping[str, SegmentRecord]:
    """Return the segments that may be asked for: without those that only mark a paused partition, and with the editions
    that segments belong to. In an upsert table, a segment that was merged into another goes as soon as that one has a
    replica."""
    present = consuming_ranges.present(records)
    if inputs.is_strict and (merged := taken(present.values())):
        gone = {name for name, into in merged.items() if facts.has_replica(into)}
        present = {name: record for name, record in present.items() if name not in gone}
    if inputs.partitioning is None:
        return present
    editions = editions_of(present.values(), inputs.partitioning)
    return {**present, **{name: edition.record for name, edition in editions.items()}}


def _ranges(inputs: RoutingInputs, records: Mapping[str, SegmentRecord], facts: _Facts) -> tuple[ConsumingRange, ...]:
    """Return the consuming ranges of the partitions. If one server answers for all of a partition, the split is as late
    as some server alone allows. Otherwise it is as late as the preferred servers allow together, so that no server that
    is about to leave is needed for a segment that it alone has sealed."""
    standings, reports = inputs.standings, inputs.reports
    ranked = sorted(reports.keys() & standings.keys(), key=lambda server: (standings[server].value, server))
    if inputs.is_strict:
        servers: list[Set[str]] = [reports[server] for server in ranked]
    elif ServerStanding.BACKUP in standings.values():
        preferred = [reports[server] for server in ranked if standings[server] is ServerStanding.PREFERRED]
        servers = [frozenset().union(*preferred)]
    else:
        servers = []
    return consuming_ranges.find_ranges(records, facts.consuming, facts.holders, servers)


def _changing_together(previous: RoutingSnapshot, now: Mapping[str, SegmentRecord]) -> frozenset[str]:
    """Return the names that have to change together. Left out are segments of a stream whose rows the split moves from
    key to key: open ones, and those opened and sealed since. So are sealed segments that were rewritten in place: each
    keeps its rows to itself."""
    before = previous.records
    moving = (
        consuming_ranges.open_names(before) | consuming_ranges.open_names(now) | _names_of(previous.consuming_ranges)
    )
    moving |= {
        name
        for name, record in now.items()
        if isinstance(record, StreamSegmentRecord) and (name not in before or before[name].crc != record.crc)
    }
    if moving:
        before, now = ({name: record for name, record in side.items() if name not in moving} for side in (before, now))
    return changing_together(before, now)


def _recovered_names(previous: RoutingSnapshot, now: Mapping[str, SegmentRecord]) -> frozenset[str]:
    """Return the names that a recovery has brought back: their former routes show no recent state of the table."""
    before = previous.records
    return frozenset(
        name
        for name, record in now.items()
        if RECOVERED in record.custom_map and (name not in before or before[name].crc != record.crc)
    )


def _may_differ(swap: AtomicSwap, inputs: RoutingInputs, previous: RoutingSnapshot | None) -> bool:
    """Return True if a swap that took too long may leave names on old versions: each is part of the table by itself."""
    before = previous.segments.keys() if previous is not None else frozenset()
    return not inputs.is_whole and swap.names <= before and swap.names <= inputs.view.visible.keys()


def _snapshot(
    inputs: RoutingInputs, table: _TableState, routed: Mapping[str, RoutedSegment], boundary_ms: int | None
) -> RoutingSnapshot:
    seen = [segment for segment in routed.values() if segment.time_split is not TimeSplit.HIDDEN]
    unavailable = tuple(segment.key for segment in seen if not segment.replicas)
    pending = table.pending(routed)
    deadlines = [_stamp(table.records[name]) + NEW_SEGMENT_MS for name in pending - table.frozen]
    deadlines += [swap.ends_ms for swap in table.swaps]
    deadlines += [table.deadline_ms] if table.deadline_ms is not None else []
    return RoutingSnapshot(
        table=inputs.view.table,
        epoch=inputs.view.epoch,
        segments=routed,
        turns=_turns([segment for segment in seen if segment.replicas]),
        unavailable=unavailable,
        absent=_absent(unavailable, routed, inputs) if unavailable else (),
        total_docs=sum(segment.record.total_docs for segment in seen),
        records=table.records,
        pending=pending,
        swaps=table.swaps,
        completed=table.completed,
        consuming_ranges=table.consuming_ranges,
        time_boundary_ms=boundary_ms,
        stale_at_ms=min(deadlines, default=None),
        by_key={segment.key: segment for segment in routed.values()},
        servers=frozenset[InstanceId]().union(*{segment.replicas for segment in routed.values()}),
    )


def reroute(
    snapshot: RoutingSnapshot, keys: Iterable[str], silent: Set[InstanceId], lacking: Set[tuple[InstanceId, str]]
) -> Rerouted:
    """Route `keys` to other replicas, in few calls. A silent server is not asked, nor a server that said it lacks the
    key, or another key of a partition that is asked of one server."""
    groups: Mapping[TimeSplit, dict[InstanceId, list[str]]] = {kind: defaultdict(list) for kind in TimeSplit}
    asked: dict[InstanceId, None] = {}
    lost: list[str] = []
    for together in _together(snapshot, keys):
        segment = snapshot.by_key[together[0]]
        holders = (*segment.replicas, *segment.backups)
        candidates = [
            server
            for server in holders
            if server not in silent and not any((server, key) in lacking for key in together)
        ]
        if not candidates:
            lost += together
            continue
        chosen = next((server for server in candidates if server in asked), candidates[0])
        asked[chosen] = None
        groups[segment.time_split][chosen] += together
    return Rerouted(_routes(groups), tuple(lost))


def _together(snapshot: RoutingSnapshot, keys: Iterable[str]) -> Iterable[list[str]]:
    """Yield the keys in groups, each of which one server has to be asked for."""
    groups: dict[str | int, list[str]] = defaultdict(list)
    for key in keys:
        group = snapshot.by_key[key].group
        groups[key if group is None else group].append(key)
    return groups.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    holders: Mapping[str, tuple[InstanceId, ...]]
    backups: Mapping[str, tuple[InstanceId, ...]]
    """Holders with the standing BACKUP, of keys that have preferred holders too."""
    consuming: frozenset[str]
    """Names of segments that may be asked for as `name@0`."""
    reported: Set[str]
    """Keys in the reports of servers that may not be asked, and keys that servers once answered for."""
    versions: Mapping[str, Sequence[str]]
    """For a broker that just started: keys with holders that are no wanted version, by segment name."""
    are_new_trusted: bool
    """False if this broker just started and reports name segments that the table lacks: then a replacement is under
    way, and no segment passes for new."""
    lineage: Mapping[str, LineageMark]
    is_whole: bool
    num_stamped: Mapping[int, int]
    """For a broker that just started: number of segments by time of publication."""
    asked_from: Mapping[int, int]
    """By partition, sequence of the first segment that was asked for as `name@0`, which covers all later ones."""
    now_ms: int
    is_first: bool  # this broker just started

    @classmethod
    def of(cls, inputs: RoutingInputs, previous: RoutingSnapshot | None) -> _Facts:
        is_first = previous is None
        preferred = _holders(inputs, ServerStanding.PREFERRED)
        backups = _holders(inputs, ServerStanding.BACKUP)
        holders = {**backups, **preferred}
        reported = set(inputs.served)
        reported.update(*(keys for instance, keys in inputs.reports.items() if instance not in inputs.standings))
        segments = inputs.view.segments
        versions: dict[str, list[str]] = defaultdict(list)
        for key in holders.keys() - {record.key_text for record in segments.values()} if is_first else ():
            if not key.endswith(CONSUMING_SUFFIX) and not is_edition(key):
                versions[key.rpartition("@")[0]].append(key)
        spare = {key: servers for key, servers in backups.items() if key in preferred}
        return cls(
            holders=holders,
            backups=spare,
            consuming=consuming_ranges.consuming_names(holders),
            reported=reported,
            versions=versions,
            are_new_trusted=versions.keys() <= segments.keys(),
            lineage=inputs.view.lineage,
            is_whole=inputs.is_whole,
            num_stamped=Counter(map(_stamp, inputs.view.visible.values())) if is_first else {},
            asked_from=_asked_from(previous, reported),
            now_ms=inputs.now_ms,
            is_first=is_first,
        )

    def is_switched(self, record: SegmentRecord) -> bool:
        """Return True if the segment took the place of others: the switch waited for it, so it is missed if it cannot
        answer."""
        input_of = self.lineage.get(record.replaced_by)
        is_back = input_of is not None and input_of.state is LineageState.REVERTED
        return is_back or record.replaces in self.lineage

    def is_continued(self, record: SegmentRecord) -> bool:
        """Return True if the segment's rows may have been answered as part of a consuming range: then they are missed
        if they cannot be."""
        if not isinstance(record, StreamSegmentRecord):
            return False
        first = self.asked_from.get(record.partition)
        return first is not None and record.sequence >= first

    def has_replica(self, record: SegmentRecord) -> bool:
        """Return True if some server may be asked for this version."""
        return record.key_text in self.holders

    def route(self, key: str, record: SegmentRecord) -> RoutedSegment:
        """Route this version to its holders, if it has any."""
        return RoutedSegment(key, record, self.holders.get(key, ()), self.backups.get(key, ()))


def _asked_from(previous: RoutingSnapshot | None, reported: Set[str]) -> Mapping[int, int]:
    """Return, by partition, the sequence number of the first segment that was asked for as `name@0`, by this broker or
    of servers that are dead."""
    names = set(consuming_ranges.consuming_names(reported))
    if previous is not None:
        names |= consuming_ranges.open_names({name: segment.record for name, segment in previous.segments.items()})
    first: dict[int, int] = {}
    for parsed in filter(None, map(StreamSegmentName.parse, names)):
        first[parsed.partition] = min(parsed.sequence, first.get(parsed.partition, parsed.sequence))
    return first


def _holders(inputs: RoutingInputs, standing: ServerStanding) -> dict[str, tuple[InstanceId, ...]]:
    instances_of: dict[str, list[InstanceId]] = defaultdict(list)
    for instance in sorted(inputs.reports):
        if inputs.standings.get(instance) is standing:
            for key in inputs.reports[instance]:
                instances_of[key].append(instance)
    shared: dict[tuple[InstanceId, ...], tuple[InstanceId, ...]] = {}
    tuples = ((key, tuple(instances)) for key, instances in instances_of.items())
    return {key: shared.setdefault(instances, instances) for key, instances in tuples}


def _route(record: SegmentRecord, before: RoutedSegment | None, facts: _Facts) -> RoutedSegment | None:
    key = record.key_text
    if key in facts.holders:
        return facts.route(key, record)
    is_recovered = RECOVERED in record.custom_map
    if before is not None and before.key != key and not _is_consumed(before) and not is_recovered:
        return facts.route(before.key, before.record)
    if before is not None or key in facts.reported or facts.is_continued(record):
        return RoutedSegment(key, record, ())
    # A file of an open segment is reported early; it is routed when the record says so. Another edition has other
    # segments.
    is_apart = record.is_open or is_edition(record.name) or is_recovered
    older = () if is_apart else facts.versions.get(record.name, ())
    if len(older) == 1 and not facts.is_whole and facts.are_new_trusted and facts.num_stamped[_stamp(record)] == 1:
        # This broker started amid a refresh: the old version goes on answering. If other segments were published with
        # the new one, rows may have moved between them, and the old version alone would be wrong.
        return facts.route(older[0], record)
    has_replaced = facts.is_first and record.refresh_time_ms > 0
    is_new = not (older or has_replaced or facts.is_switched(record) or is_recovered) and facts.are_new_trusted
    return None if is_new and _is_young(record, facts.now_ms) else RoutedSegment(key, record, ())


def _is_consumed(segment: RoutedSegment) -> bool:
    """Return True if the key asks for everything from the segment's beginning on."""
    return segment.key.endswith(CONSUMING_SUFFIX)


def _is_young(record: SegmentRecord, now_ms: int) -> bool:
    """Return True if this version was published a moment ago. If it seems to come from the future, a clock is wrong,
    and its age is not known."""
    return abs(now_ms - _stamp(record)) < NEW_SEGMENT_MS


def _stamp(record: SegmentRecord) -> int:
    """Return when this version was published: the same time for all segments that were published together."""
    published_ms = max(record.push_time_ms, record.refresh_time_ms, 0)
    return published_ms or (max(record.creation_time_ms, 0) if record.is_open else 0)


def _turns(segments: Sequence[RoutedSegment]) -> tuple[tuple[ServerRoute, ...], ...]:
    num_turns = min(MAX_TURNS, lcm(*{len(segment.replicas) for segment in segments}))
    return tuple(_turn(segments, turn) for turn in range(num_turns))


def _turn(segments: Sequence[RoutedSegment], turn: int) -> tuple[ServerRoute, ...]:
    groups: Mapping[TimeSplit, dict[InstanceId, list[str]]] = {kind: defaultdict(list) for kind in TimeSplit}
    for position, segment in enumerate(segments, start=turn):
        number = position if segment.group is None else turn + segment.group
        groups[segment.time_split][segment.replicas[number % len(segment.replicas)]].append(segment.key)
    return _routes(groups)


def _routes(groups: Mapping[TimeSplit, Mapping[InstanceId, Sequence[str]]]) -> tuple[ServerRoute, ...]:
    """Return a route for each server and `TimeSplit`."""
    calls = sorted((instance, cut, keys) for cut, servers in groups.items() for instance, keys in servers.items())
    return tuple(ServerRoute(instance, tuple(keys), cut) for instance, cut, keys in calls)


def _absent(
    unavailable: Sequence[str], routed: Mapping[str, RoutedSegment], inputs: RoutingInputs
) -> tuple[InstanceId, ...]:
    lost = set(unavailable)
    names = [name for name, segment in routed.items() if segment.key in lost]
    assigned = {instance for name in names for instance in inputs.view.assignment.get(name, ())}
    reporting = {instance for instance, keys in inputs.reports.items() if not lost.isdisjoint(keys)}
    return tuple(sorted(assigned | reporting))
