"""Which replica answers for which segment: a pure function from shared state to an immutable snapshot.

The rule, per segment of the table's view, with `wanted` the record's `name@crc` and *holders* the servers that report
exactly that key and may be asked (`health.Standing`):

1. The wanted version has holders: it is routed. Record and route switch together, in one snapshot.
2. It has none, but the version routed until now (a refresh is under way) does: that one stays, with its old record.
3. It has none, and the segment was *in service*: it stays in the table with nobody to answer for it, and every answer
   carries exception 305. In service means that the previous snapshot routed it, or that any server's report names it,
   as loaded or as served once before a restart, the reports of dead servers included (they outlive their servers, so a
   broker that just started knows as much).
4. It was never in service: it is *new* and not part of the table yet, so counts grow by whole segments once a replica
   is up. A record older than `NEW_SEGMENT_MS` is no longer new (Pinot's InstanceSelector has the same five minutes): a
   segment that no server manages to load must be heard of. Nor is one new that is as far ahead of this broker's clock,
   nor one whose rows may have been answered as the end of its partition: they would be gone, and of an upsert table
   what they replace would be as well. A broker that just started takes no version for new that replaced something
   (it has a refresh time): what it replaced was answered, and may be on no server any more.
5. Segments that left the view together with the arrival of others were replaced by them: they stay until all of these
   have a replica, then all switch at once (`replacement`). Otherwise a segment whose record is gone leaves at once.
   Nothing stays for segments that `merlot recover` has brought back: they are missed until they are loaded.
6. Segments of a stream's partition that are consumed, or were until lately, are asked for as one, from the first of
   them on (`lines`): they are never exchanged, the place where the older ones end moves on.
7. Of a replacement in the lineage, all inputs are part of the table, or all outputs: these once each has a replica
   (`switching`).
8. Of a hybrid table, queries see of each segment what its part answers for (`boundary`): the boundary moves in the
   snapshot that routes what is before it.
9. A table of strict replica groups has all of a partition asked of one server (`groups`).
10. Of an upsert table of batches, each partition has an edition (`cluster.segments.editions`), a record beside those of
   its segments. It changes with them, so the partition stays as it is routed until some server answers for the next,
   or for one on the way there (`behind`).
11. Of segments of an upsert table that a minion has merged, all are part of the table, or the one with their rows: once
   that has a replica (`cluster.consuming.merges`).

So an answer without exception holds every row of every segment in service, and `total_docs` counts the same segments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, lcm

from merlot.broker.routing import boundary, lines, switching
from merlot.broker.routing.exchanges import Exchange, arriving, joined
from merlot.broker.routing.groups import grouped
from merlot.broker.routing.health import Standing
from merlot.broker.routing.lines import CONSUMING_SUFFIX, Tail
from merlot.cluster.consuming.merged import taken
from merlot.cluster.consuming.names import StreamSegmentName
from merlot.cluster.records import RECOVERED, LineageMark, LineageState, SegmentRecord, StreamSegmentRecord
from merlot.cluster.segments.boundary import BoundaryRule, Cut, cut
from merlot.cluster.segments.editions import editions_of, is_edition
from merlot.cluster.segments.view import TableView
from merlot.ids import InstanceId, TableName
from merlot.spec.indexing import PartitioningSpec

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
    cut: Cut = Cut.ALL
    """Which of its rows queries see."""
    group: int | None = None
    """Number of the partition that is asked of one server as a whole; None: it is asked for by itself."""

    @property
    def is_known(self) -> bool:
        """Whether the record is that of the version that is routed, and of rows that no others come to. A broker that
        started amid a refresh routes an old version whose record is gone."""
        return self.key == self.record.key_text and not self.record.is_open


@dataclass(frozen=True, slots=True, eq=False)
class ServerRoute:
    """What one call asks one server. Compared by identity, so that an encoder may remember its bytes."""

    instance: InstanceId
    segments: tuple[str, ...]
    cut: Cut = Cut.ALL
    """Which of their rows it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingInputs:
    """Everything a snapshot is made from. `reports` has every server that ever reported, dead ones included."""

    view: TableView
    reports: Mapping[InstanceId, Set[str]]
    standings: Mapping[InstanceId, Standing]
    now_ms: int
    served: Set[str] = frozenset()
    """Keys that servers answered for once, and do not now."""
    is_whole: bool = False
    """Whether a push replaces the table as a whole (REFRESH), so that its new versions go together."""
    is_strict: bool = False
    """Whether all of a partition is asked of one server."""
    rule: BoundaryRule | None = None
    """Of a hybrid table."""
    partitioning: PartitioningSpec | None = None
    """Of an upsert table of batches."""


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
    """Without those of `tails`, which servers tell."""
    records: Mapping[str, SegmentRecord] = field(repr=False)
    """What the table consists of, as far as the lineage is followed; routes may be a step behind."""
    pending: frozenset[str] = frozenset()
    """Names of `records` that are not part of the table yet."""
    exchanges: tuple[Exchange, ...] = ()
    """Names that wait for each other."""
    completed: frozenset[str] = frozenset()
    """Entries of the lineage whose outputs are routed, not their inputs."""
    tails: tuple[Tail, ...] = ()
    """Ends of a stream's partitions, each routed as one segment."""
    time_boundary_ms: int | None = None
    """Of a hybrid table: batches answer for what is before it, the stream for the rest. None: both for all."""
    stale_at_ms: int | None = None
    """When waiting for something will have taken too long."""
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
    facts = _Facts.of(inputs, previous)
    table = _table(inputs, previous, facts)
    before = previous.segments if previous is not None else {}
    frozen = _kept(table, before)
    routed = {name: facts.route(before[name].key, before[name].record) for name in frozen & before.keys()}
    routed |= {tail.record.name: facts.route(tail.record.key_text, tail.record) for tail in table.tails}
    for name, record in table.records.items():
        if name in table.in_tails:
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


def _kept(table: _Table, before: Mapping[str, RoutedSegment]) -> Set[str]:
    """Names whose routes an exchange keeps as they were. Not what was asked for by where it begins: the cut has moved
    since, and what comes behind it is asked for by itself. Nor what is behind a cut now."""
    cuts = {tail.record.partition: tail.record.sequence for tail in table.tails}

    def is_moved(segment: RoutedSegment) -> bool:
        record = segment.record
        is_behind = isinstance(record, StreamSegmentRecord) and record.sequence >= cuts.get(record.partition, inf)
        return is_behind or _is_consumed(segment)

    return {name for name in table.frozen if name not in before or not is_moved(before[name])}


def _editions_before(
    inputs: RoutingInputs, routed: Mapping[str, RoutedSegment], facts: _Facts
) -> dict[str, RoutedSegment]:
    """Of a broker that started amid a push: editions without those segments that nobody has loaded yet."""
    if inputs.partitioning is None:
        return {}
    loaded = (one.record for one in routed.values() if one.replicas and not is_edition(one.key))
    editions = editions_of(loaded, inputs.partitioning)
    waiting = {name: one for name, one in editions.items() if name not in routed or not routed[name].replicas}
    return {name: facts.route(one.key, one.record) for name, one in waiting.items() if one.key in facts.holders}


def _boundary_ms(
    inputs: RoutingInputs, previous: RoutingSnapshot | None, table: _Table, routed: Mapping[str, RoutedSegment]
) -> int | None:
    """A broker that starts takes the root's: servers had loaded what is before it when it moved there."""
    if inputs.rule is None:
        return None
    boundary_ms = inputs.view.root.time_boundary_ms
    if previous is not None:
        waiting = table.pending(routed) | table.frozen
        is_ready = boundary.is_ready(table.records, waiting, boundary_ms)
        boundary_ms = boundary.followed(boundary_ms, previous.time_boundary_ms, is_ready=is_ready)
    if boundary_ms is None:
        return None
    return inputs.rule.lowered(boundary_ms, (one.record for one in routed.values()), inputs.now_ms)


def _cut(segment: RoutedSegment, boundary_ms: int) -> RoutedSegment:
    return replace(segment, cut=cut(segment.record, boundary_ms, is_known=segment.is_known))


@dataclass(frozen=True, kw_only=True)
class _Table:
    """What a snapshot takes for the table."""

    records: Mapping[str, SegmentRecord]
    completed: frozenset[str]
    exchanges: tuple[Exchange, ...]
    late: Set[str]
    """Names of exchanges that took too long: routed as they should be, with or without replicas."""
    tails: tuple[Tail, ...]
    deadline_ms: int | None

    @cached_property
    def in_tails(self) -> frozenset[str]:
        return _names_of(self.tails)

    @cached_property
    def frozen(self) -> frozenset[str]:
        return frozenset().union(*(exchange.names for exchange in self.exchanges)) - self.in_tails

    def pending(self, routed: Mapping[str, RoutedSegment]) -> frozenset[str]:
        """Names that are not part of the table yet."""
        return frozenset(self.records.keys() - routed.keys() - self.in_tails)


def _names_of(tails: Iterable[Tail]) -> frozenset[str]:
    return frozenset().union(*(tail.names for tail in tails))


def _table(inputs: RoutingInputs, previous: RoutingSnapshot | None, facts: _Facts) -> _Table:
    """First what was published or removed, then what the lineage switches."""
    view, now_ms = inputs.view, inputs.now_ms
    if previous is None:
        completed = switching.first(view, facts.has_replica)
        exchanges: tuple[Exchange, ...] = ()
    else:
        completed = switching.still(view, previous.completed)
        now = _present(inputs, switching.seen(view, completed), facts)
        back = _back(previous, now)
        under_way = [one for one in previous.exchanges if one.names.isdisjoint(back)]
        exchanges = joined(under_way, frozenset() if back else _arriving(previous, now), now_ms)
    records = _present(inputs, switching.seen(view, completed), facts)
    waiting = tuple(
        one for one in exchanges if not all(facts.has_replica(records[n]) for n in one.names & records.keys())
    )
    kept = tuple(one for one in waiting if one.ends_ms > now_ms)
    late = frozenset().union(
        *(one.names for one in waiting if one not in kept and not _may_differ(one, inputs, previous))
    )
    frozen = frozenset().union(*(one.names for one in kept))
    switched = switching.follow(view, completed, frozen, facts.has_replica, now_ms)
    if switched.taken != completed:
        records = _present(inputs, switching.seen(view, switched.taken), facts)
    return _Table(
        records=records,
        completed=switched.taken,
        exchanges=kept,
        late=late,
        tails=_tails(inputs, records, facts),
        deadline_ms=switched.deadline_ms,
    )


def _present(inputs: RoutingInputs, records: Mapping[str, SegmentRecord], facts: _Facts) -> Mapping[str, SegmentRecord]:
    """What may be asked for: without what only keeps a place, and with the editions that segments belong to. Of an
    upsert table without segments that were merged into another one, as soon as anybody answers for that."""
    found = lines.present(records)
    if inputs.is_strict and (merged := taken(found.values())):
        gone = {name for name, into in merged.items() if facts.has_replica(into)}
        found = {name: record for name, record in found.items() if name not in gone}
    if inputs.partitioning is None:
        return found
    editions = editions_of(found.values(), inputs.partitioning)
    return {**found, **{name: edition.record for name, edition in editions.items()}}


def _tails(inputs: RoutingInputs, records: Mapping[str, SegmentRecord], facts: _Facts) -> tuple[Tail, ...]:
    """Where one server answers for all of a partition, the cut is as new as some server allows by itself; elsewhere, as
    the preferred servers allow together: one that leaves must not be needed because of what it alone has sealed."""
    ranked = sorted(inputs.reports.keys() & inputs.standings.keys(), key=lambda one: (inputs.standings[one].value, one))
    if inputs.is_strict:
        servers: list[Set[str]] = [inputs.reports[one] for one in ranked]
    elif Standing.BACKUP in inputs.standings.values():
        preferred = [inputs.reports[one] for one in ranked if inputs.standings[one] is Standing.PREFERRED]
        servers = [frozenset().union(*preferred)]
    else:
        servers = []
    return lines.tails(records, facts.consuming, facts.holders, servers)


def _arriving(previous: RoutingSnapshot, now: Mapping[str, SegmentRecord]) -> frozenset[str]:
    """Names to exchange; not those of a stream whose rows the cut of their line moves: open ones, and those that were
    opened and sealed since. Nor those that were rewritten in place: each has its rows by itself."""
    before = previous.records
    moving = lines.open_names(before) | lines.open_names(now) | _names_of(previous.tails)
    moving |= {
        name
        for name, record in now.items()
        if isinstance(record, StreamSegmentRecord) and (name not in before or before[name].crc != record.crc)
    }
    if moving:
        before, now = ({name: one for name, one in side.items() if name not in moving} for side in (before, now))
    return arriving(before, now)


def _back(previous: RoutingSnapshot, now: Mapping[str, SegmentRecord]) -> frozenset[str]:
    """Names that a recovery has brought back: what was routed before it is no state that the table had lately."""
    before = previous.records
    return frozenset(
        name
        for name, record in now.items()
        if RECOVERED in record.custom_map and (name not in before or before[name].crc != record.crc)
    )


def _may_differ(exchange: Exchange, inputs: RoutingInputs, previous: RoutingSnapshot | None) -> bool:
    """Whether names whose new version nobody can load may keep their old one: each is a part of the table by itself."""
    before = previous.segments.keys() if previous is not None else frozenset()
    return not inputs.is_whole and exchange.names <= before and exchange.names <= inputs.view.visible.keys()


def _snapshot(
    inputs: RoutingInputs, table: _Table, routed: Mapping[str, RoutedSegment], boundary_ms: int | None
) -> RoutingSnapshot:
    seen = [segment for segment in routed.values() if segment.cut is not Cut.HIDDEN]
    unavailable = tuple(segment.key for segment in seen if not segment.replicas)
    pending = table.pending(routed)
    deadlines = [_ends_being_new(table.records[name]) for name in pending - table.frozen]
    deadlines += [exchange.ends_ms for exchange in table.exchanges]
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
        exchanges=table.exchanges,
        completed=table.completed,
        tails=table.tails,
        time_boundary_ms=boundary_ms,
        stale_at_ms=min(deadlines, default=None),
        by_key={segment.key: segment for segment in routed.values()},
    )


def reroute(
    snapshot: RoutingSnapshot, keys: Iterable[str], silent: Set[InstanceId], lacking: Set[tuple[InstanceId, str]]
) -> Rerouted:
    """Other replicas for `keys`: not a silent server, nor one that said it lacks the key, or another of its partition
    where that is asked of one server; in few calls."""
    groups: Mapping[Cut, dict[InstanceId, list[str]]] = {kind: defaultdict(list) for kind in Cut}
    asked: dict[InstanceId, None] = {}
    lost: list[str] = []
    for together in _together(snapshot, keys):
        segment = snapshot.by_key[together[0]]
        holders = (*segment.replicas, *segment.backups)
        candidates = [
            one for one in holders if one not in silent and not any((one, key) in lacking for key in together)
        ]
        if not candidates:
            lost += together
            continue
        chosen = next((one for one in candidates if one in asked), candidates[0])
        asked[chosen] = None
        groups[segment.cut][chosen] += together
    return Rerouted(_routes(groups), tuple(lost))


def _together(snapshot: RoutingSnapshot, keys: Iterable[str]) -> Iterable[list[str]]:
    """Keys that one server has to be asked for."""
    found: dict[str | int, list[str]] = defaultdict(list)
    for key in keys:
        group = snapshot.by_key[key].group
        found[key if group is None else group].append(key)
    return found.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    holders: Mapping[str, tuple[InstanceId, ...]]
    backups: Mapping[str, tuple[InstanceId, ...]]
    """Of keys that have preferred holders too."""
    consuming: frozenset[str]
    """Names that may be asked for as they were while they were consumed."""
    reported: Set[str]
    """Keys in the reports of servers that may not be asked, and those that were answered for once."""
    versions: Mapping[str, Sequence[str]]
    """For a broker that just started: keys that may be asked for, by name, where a name has one that is not wanted."""
    are_new_trusted: bool
    """Whether segments may pass for new: not if this broker just started amid a replacement, as reports tell."""
    lineage: Mapping[str, LineageMark]
    is_whole: bool
    num_stamped: Mapping[int, int]
    """For a broker that just started: how many segments were published together."""
    asked_from: Mapping[int, int]
    """By partition, the first segment that was asked for as it was consumed: with it was what follows."""
    now_ms: int
    is_first: bool
    """True if this broker just started."""

    @classmethod
    def of(cls, inputs: RoutingInputs, previous: RoutingSnapshot | None) -> _Facts:
        is_first = previous is None
        preferred = _holders(inputs, Standing.PREFERRED)
        backups = _holders(inputs, Standing.BACKUP)
        holders = {**backups, **preferred}
        reported = set(inputs.served)
        reported.update(*(keys for one, keys in inputs.reports.items() if one not in inputs.standings))
        segments = inputs.view.segments
        versions: dict[str, list[str]] = defaultdict(list)
        for key in holders.keys() - {record.key_text for record in segments.values()} if is_first else ():
            if not key.endswith(CONSUMING_SUFFIX) and not is_edition(key):
                versions[key.rpartition("@")[0]].append(key)
        spare = {key: servers for key, servers in backups.items() if key in preferred}
        return cls(
            holders=holders,
            backups=spare,
            consuming=lines.consuming_names(holders),
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
        """Whether it took the place of others: then it was waited for, and is missed if it cannot answer."""
        input_of = self.lineage.get(record.replaced_by)
        is_back = input_of is not None and input_of.state is LineageState.REVERTED
        return is_back or record.replaces in self.lineage

    def is_continued(self, record: SegmentRecord) -> bool:
        """Whether its rows may have been answered as the end of a line: then they are missed if they cannot be."""
        if not isinstance(record, StreamSegmentRecord):
            return False
        first = self.asked_from.get(record.partition)
        return first is not None and record.sequence >= first

    def has_replica(self, record: SegmentRecord) -> bool:
        """Whether somebody may be asked for this version."""
        return record.key_text in self.holders

    def route(self, key: str, record: SegmentRecord) -> RoutedSegment:
        """This version and its holders, if it has any."""
        return RoutedSegment(key, record, self.holders.get(key, ()), self.backups.get(key, ()))


def _asked_from(previous: RoutingSnapshot | None, reported: Set[str]) -> Mapping[int, int]:
    """By partition, the first segment that was asked for as `name@0`: by this broker, or of servers that are dead."""
    names = set(lines.consuming_names(reported))
    if previous is not None:
        names |= lines.open_names({name: one.record for name, one in previous.segments.items()})
    found: dict[int, int] = {}
    for parsed in filter(None, map(StreamSegmentName.parse, names)):
        found[parsed.partition] = min(parsed.sequence, found.get(parsed.partition, parsed.sequence))
    return found


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
    key = record.key_text
    if key in facts.holders:
        return facts.route(key, record)
    is_recovered = RECOVERED in record.custom_map
    if before is not None and before.key != key and not _is_consumed(before) and not is_recovered:
        return facts.route(before.key, before.record)
    if before is not None or key in facts.reported or facts.is_continued(record):
        return RoutedSegment(key, record, ())
    # A file of a segment that has none by its record is told of early: it is routed when the record says so. Another
    # edition is of other segments.
    is_apart = record.is_open or is_edition(record.name) or is_recovered
    older = () if is_apart else facts.versions.get(record.name, ())
    if len(older) == 1 and not facts.is_whole and facts.are_new_trusted and facts.num_stamped[_stamp(record)] == 1:
        # This broker started in the middle of a refresh: the version that is served goes on being served. Not if others
        # were published with it: rows may have moved between them.
        return facts.route(older[0], record)
    has_replaced = facts.is_first and record.refresh_time_ms > 0
    is_new = not (older or has_replaced or facts.is_switched(record) or is_recovered) and facts.are_new_trusted
    return None if is_new and _is_young(record, facts.now_ms) else RoutedSegment(key, record, ())


def _is_consumed(segment: RoutedSegment) -> bool:
    """Whether it stands for everything from where it begins on."""
    return segment.key.endswith(CONSUMING_SUFFIX)


def _is_young(record: SegmentRecord, now_ms: int) -> bool:
    """Say whether this version was published a moment ago. If it seems to come from the future, a clock is wrong, and
    nobody knows how old it is."""
    return abs(now_ms - _stamp(record)) < NEW_SEGMENT_MS


def _ends_being_new(record: SegmentRecord) -> int:
    return _stamp(record) + NEW_SEGMENT_MS


def _stamp(record: SegmentRecord) -> int:
    """When this version was published: the same for all that were published together."""
    published_ms = max(record.push_time_ms, record.refresh_time_ms, 0)
    return published_ms or (max(record.creation_time_ms, 0) if record.is_open else 0)


def _turns(segments: Sequence[RoutedSegment]) -> tuple[tuple[ServerRoute, ...], ...]:
    num_turns = min(MAX_TURNS, lcm(*{len(segment.replicas) for segment in segments}))
    return tuple(_turn(segments, turn) for turn in range(num_turns))


def _turn(segments: Sequence[RoutedSegment], turn: int) -> tuple[ServerRoute, ...]:
    groups: Mapping[Cut, dict[InstanceId, list[str]]] = {kind: defaultdict(list) for kind in Cut}
    for position, segment in enumerate(segments, start=turn):
        place = position if segment.group is None else turn + segment.group
        groups[segment.cut][segment.replicas[place % len(segment.replicas)]].append(segment.key)
    return _routes(groups)


def _routes(groups: Mapping[Cut, Mapping[InstanceId, Sequence[str]]]) -> tuple[ServerRoute, ...]:
    """One for each server and what it is asked for of its segments' rows."""
    calls = sorted((instance, cut, keys) for cut, servers in groups.items() for instance, keys in servers.items())
    return tuple(ServerRoute(instance, tuple(keys), cut) for instance, cut, keys in calls)


def _absent(
    unavailable: Sequence[str], routed: Mapping[str, RoutedSegment], inputs: RoutingInputs
) -> tuple[InstanceId, ...]:
    lost = set(unavailable)
    names = [name for name, segment in routed.items() if segment.key in lost]
    assigned = {one for name in names for one in inputs.view.assignment.get(name, ())}
    reporting = {one for one, keys in inputs.reports.items() if not lost.isdisjoint(keys)}
    return tuple(sorted(assigned | reporting))
