"""Choose the segments of a snapshot that a query needs, by the statistics in their records, and route them.

Built in a thread whenever routes change; statistics are reused if the records are the same. Used on the event loop: a
query costs array operations over all segments, and Python only for those that remain. Statistics that a record lacks,
or that cannot be read, prune nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot import telemetry
from merlot.broker.routing import plugin_pruners
from merlot.broker.routing.distincts import are_same_records
from merlot.broker.routing.plugin_pruners import KeepMask, PluginPruner
from merlot.broker.routing.routes import RoutedSegment, RoutingSnapshot, ServerRoute
from merlot.cluster.records import UNREADABLE, PartitionRecord, SegmentRecord
from merlot.cluster.segments.boundary import BEFORE_ALL, BoundaryRule, TimeSplit
from merlot.cluster.segments.editions import is_edition
from merlot.errors import CorruptionError, InvalidInputError
from merlot.ids import InstanceId
from merlot.query.pruning import monotone
from merlot.query.pruning.blooms import ColumnBlooms, SegmentBloom
from merlot.query.pruning.bounds import bounds_of
from merlot.query.pruning.evaluate import evaluate
from merlot.query.pruning.footers import are_texts_alike
from merlot.query.pruning.partitions import ColumnPartitions, SegmentPartitions, function_of
from merlot.query.pruning.ranges import Bounds, ColumnRanges, KnownBounds
from merlot.query.pruning.statistics import SegmentStatistics
from merlot.query.pruning.verdicts import NONE
from merlot.segment.index import bloom
from merlot.spec import pruners
from merlot.spec.schema import FieldSpec
from merlot.spec.table import TableSpec
from merlot.tree.nodes import Expr
from merlot.values.types import TypeName

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Selection:
    """Calls that one query makes. `unavailable`: keys that it needs and no server holds."""

    routes: tuple[ServerRoute, ...]
    unavailable: tuple[str, ...]
    num_pruned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TablePruning:
    """Statistics and routes of a snapshot's segments, as arrays in the order of `snapshot.segments`."""

    snapshot: RoutingSnapshot
    spec: TableSpec
    records: Sequence[SegmentRecord | None] = field(repr=False)
    """Records by position; None for an edition, an open segment, or a record that describes another version than the
    routed version."""
    stages: tuple[tuple[str, SegmentStatistics], ...]
    """Built-in pruners in order, each with the statistics that it and those before it may use; the last has all."""
    own: tuple[PluginPruner, ...] = ()
    unreadable: str | None = None
    """Reason why segments are never pruned whose records this version cannot read; None if all can be read."""
    keys: NDArray[np.object_] = field(repr=False)
    turns: tuple[NDArray[np.int16], ...] = field(repr=False)
    """Number of the server in `servers`, by turn and segment; -1 if no server holds the segment, or queries see none of
    its rows."""
    servers: tuple[InstanceId, ...]
    cuts: NDArray[np.int8] = field(repr=False)
    """Rows of each segment that queries see (`TimeSplit`)."""
    seen: KeepMask | None = field(repr=False)
    """Segments that have rows which queries see. None: all have; only hybrid tables and tables with editions have
    others."""
    num_seen: int
    editions: Mapping[int, int] = field(default_factory=dict)
    """Position of each partition's edition, by the number of its group; empty unless batches fill an upsert table."""
    groups: Sequence[int | None] = ()
    """Numbers of groups, by position; empty if there are no editions."""

    @property
    def statistics(self) -> SegmentStatistics:
        """Statistics of all built-in pruners."""
        return self.stages[-1][1]

    def problems(self) -> tuple[str, ...]:
        """Return, a line each, the reasons why segments are not pruned that should be. Queries may add reasons."""
        functions = {function for column in self.statistics.partitions.values() for function in column.holders}
        by_function = sorted({function.problem or "" for function in functions})
        return tuple(filter(None, [self.unreadable, *(pruner.problem for pruner in self.own), *by_function]))

    def is_prepared(self, where: Expr | None) -> bool:
        """Return False if `select` would hold up the event loop; call `prepare` first then."""
        return self.statistics.knows(monotone.functions_of(where))

    def prepare(self, where: Expr | None) -> None:
        """Compute the bounds of the functions in the filter; any thread."""
        for function in monotone.functions_of(where):
            self.statistics.ranges_of(function)

    def select(self, where: Expr | None, request_number: int, *, null_handling: bool) -> Selection:
        """Return routes for the segments that may hold rows that pass the filter."""
        mask = self._kept(where, self.statistics, self.own, null_handling=null_handling)
        num_segments = self.num_seen
        positions = np.flatnonzero(mask)
        if len(positions) == num_segments:
            return Selection(self.snapshot.select(request_number), self.snapshot.unavailable)
        num_pruned = num_segments - len(positions)
        if self.editions:
            positions = self._with_editions(positions)
        turn = self.turns[request_number % len(self.turns)]
        return self._routes(positions, turn[positions], num_pruned)

    def _with_editions(self, positions: NDArray[np.intp]) -> NDArray[np.intp]:
        """Add the editions of the segments at `positions`: by them servers know which docs of the segments are
        valid."""
        groups = {self.groups[position] for position in positions.tolist()}
        named = [self.editions[group] for group in groups if group is not None and group in self.editions]
        return np.concatenate([positions, np.array(named, np.intp)])

    def explain(self, where: Expr | None, *, null_handling: bool) -> list[tuple[str, int]]:
        """Return, for each pruner, how many segments it leaves out that the pruners before it kept."""
        counts: list[tuple[str, int]] = [
            (name, int(np.count_nonzero(self._kept(where, statistics, (), null_handling=null_handling))))
            for name, statistics in self.stages
        ]
        for position, pruner in enumerate(self.own, start=1):
            mask = self._kept(where, self.statistics, self.own[:position], null_handling=null_handling)
            counts.append((pruner.name, int(np.count_nonzero(mask))))
        before = [self.num_seen, *(count for _, count in counts)]
        return [(name, earlier - count) for (name, count), earlier in zip(counts, before, strict=False)]

    def _kept(
        self,
        where: Expr | None,
        statistics: SegmentStatistics,
        own: Iterable[PluginPruner],
        *,
        null_handling: bool,
    ) -> KeepMask:
        mask: KeepMask = evaluate(where, statistics, null_handling=null_handling) != NONE
        if self.seen is not None:
            mask &= self.seen
        if where is not None:
            for pruner in own:
                mask &= pruner.keep(where)
        return mask

    def _routes(self, positions: NDArray[np.intp], servers: NDArray[np.int16], num_pruned: int) -> Selection:
        keys = self.keys[positions]
        calls = (servers + 1).astype(np.int32) * len(TimeSplit) + self.cuts[positions]
        routes = []
        for call in np.flatnonzero(np.bincount(calls, minlength=1)).tolist():
            number, cut = divmod(call, len(TimeSplit))
            if number:
                chosen = keys[calls == call].tolist()
                routes.append(ServerRoute(self.servers[number - 1], tuple(chosen), TimeSplit(cut)))
        unavailable = tuple(keys[servers < 0].tolist()) if self.snapshot.unavailable else ()
        return Selection(tuple(routes), unavailable, num_pruned)


def build(snapshot: RoutingSnapshot, spec: TableSpec, previous: TablePruning | None) -> TablePruning | None:
    """Build the pruning of a snapshot; None if the table lists no pruner, or one that this version lacks."""
    names = spec.routing.segment_pruners
    unknown = unknown_pruners(spec)
    telemetry.BROKER_UNKNOWN_PRUNERS.labels(snapshot.table).set(len(unknown))
    if unknown:
        _LOG.warning("pruning is off, a pruner is unknown table=%s names=%s", snapshot.table, ",".join(unknown))
    if not names or unknown:
        return None
    segments = list(snapshot.segments.values())
    records = [_known_record(segment) for segment in segments]
    cuts = np.array([segment.time_split for segment in segments], np.int8)
    positions = [position for position, segment in enumerate(segments) if is_edition(segment.key)]
    groups = [segments[position].group for position in positions]
    editions = {group: position for group, position in zip(groups, positions, strict=True) if group is not None}
    seen = cuts != TimeSplit.HIDDEN
    seen[positions] = False
    num_seen = int(np.count_nonzero(seen))
    is_alike = previous is not None and previous.spec == spec and are_same_records(previous.records, records)
    if previous is not None and is_alike and _are_cut_alike(previous, snapshot, cuts):
        records, stages, own, unreadable = list(previous.records), previous.stages, previous.own, previous.unreadable
    else:
        builder = _StatisticsBuilder(snapshot, spec, records, [segment.time_split for segment in segments])
        stages, unreadable = builder.stages(), builder.unreadable()
        own = plugin_pruners.prepare_all(snapshot.table, spec, records, () if previous is None else previous.own)
    keys = np.empty(len(segments), np.object_)
    keys[:] = [segment.key for segment in segments]
    servers, turns = _turns(snapshot, [segment.key for segment in segments])
    return TablePruning(
        snapshot=snapshot,
        spec=spec,
        records=records,
        stages=stages,
        own=own,
        unreadable=unreadable,
        keys=keys,
        turns=turns,
        servers=servers,
        cuts=cuts,
        seen=None if num_seen == len(segments) else seen,
        num_seen=num_seen,
        editions=editions,
        groups=[segment.group for segment in segments] if editions else (),
    )


def _known_record(segment: RoutedSegment) -> SegmentRecord | None:
    return segment.record if segment.is_known and not is_edition(segment.key) else None


def unknown_pruners(spec: TableSpec) -> list[str]:
    """Return the names of the pruners that the table lists and this installation lacks. Any such name turns pruning
    off."""
    return [name for name in spec.routing.segment_pruners if not pruners.is_known(name)]


def select(snapshot: RoutingSnapshot, request_number: int) -> Selection:
    """Select all segments; for tables without pruning."""
    return Selection(snapshot.select(request_number), snapshot.unavailable)


def _are_cut_alike(previous: TablePruning, snapshot: RoutingSnapshot, cuts: NDArray[np.int8]) -> bool:
    is_same = previous.snapshot.time_boundary_ms == snapshot.time_boundary_ms
    return is_same and np.array_equal(previous.cuts, cuts)


def _turns(
    snapshot: RoutingSnapshot, keys: Sequence[str]
) -> tuple[tuple[InstanceId, ...], tuple[NDArray[np.int16], ...]]:
    servers: dict[InstanceId, int] = {}
    position_of = {key: position for position, key in enumerate(keys)}
    turns = []
    for routes in snapshot.turns:
        turn = np.full(len(keys), -1, np.int16)
        for route in routes:
            number = servers.setdefault(route.instance, len(servers))
            turn[[position_of[key] for key in route.segments]] = number
        turns.append(turn)
    return tuple(servers), tuple(turns)


class _StatisticsBuilder:
    """Makes statistics from records. Values that no footer would contain are counted, and their segments never
    pruned."""

    def __init__(
        self,
        snapshot: RoutingSnapshot,
        spec: TableSpec,
        records: Sequence[SegmentRecord | None],
        cuts: Sequence[TimeSplit],
    ) -> None:
        self._table = snapshot.table
        self._spec = spec
        self._records = records
        self._cuts = cuts
        rule, boundary_ms = BoundaryRule.of(spec), snapshot.time_boundary_ms
        self._boundary: int | None = None
        """Time boundary in the time column's unit; None: queries see all rows."""
        if rule is not None and boundary_ms is not None and boundary_ms != BEFORE_ALL:
            self._boundary = rule.value(boundary_ms)
        self._unreadable: set[int] = set()
        self._first_cause = "bounds, partitions or filters are no JSON of their kind"

    def stages(self) -> tuple[tuple[str, SegmentStatistics], ...]:
        """Return an entry for each built-in pruner of the table; a single entry without a name if it has none."""
        wanted = self._spec.routing.segment_pruners
        facts: dict[str, Any] = {"num_segments": len(self._records)}
        stages = []
        for name in pruners.SEGMENT_PRUNERS:
            if name in wanted:
                facts |= self._facts(name, facts)
                stages.append((name, SegmentStatistics(**facts)))
        telemetry.BROKER_UNREADABLE_PRUNING.labels(self._table).set(len(self._unreadable))
        return tuple(stages) or (("", SegmentStatistics(**facts)),)

    def unreadable(self) -> str | None:
        """Return how many segments have records that cannot be read in part, with the first cause; None if there are
        none."""
        count = len(self._unreadable)
        return f"pruning information cannot be read segments={count} first: {self._first_cause}" if count else None

    def _facts(self, name: str, facts: dict[str, Any]) -> dict[str, Any]:
        match name:
            case "empty":
                is_empty = np.array(
                    [record is not None and record.total_docs == 0 for record in self._records], np.bool_
                )
                return {"is_empty": is_empty} if is_empty.any() else {}
            case "partition":
                names = self._names(lambda record: record.partitions)
                return {"partitions": {field.name: self._column_partitions(field) for field in names}}
            case "bloom":
                names = self._names(lambda record: record.blooms)
                return {"blooms": {field.name: self._column_blooms(field) for field in names}}
        names = [field for field in self._ranged() if self._is_range_of(name, field.name)]
        return {"ranges": facts.get("ranges", {}) | {field.name: self._column_ranges(field) for field in names}}

    def _ranged(self) -> list[FieldSpec]:
        """Return the columns whose ranges are known; for a hybrid table, the time column is among them."""
        columns = self._names(lambda record: record.ranges)
        rule = BoundaryRule.of(self._spec)
        time = None if rule is None or self._boundary is None else self._spec.table_schema.field(rule.column)
        return columns if time is None or time in columns else [*columns, time]

    def _names(self, of: Callable[[SegmentRecord], Iterable[str]]) -> list[FieldSpec]:
        names = dict.fromkeys(name for record in self._records if record is not None for name in of(record))
        if UNREADABLE in names:
            self._unreadable.update(
                position
                for position, record in enumerate(self._records)
                if record is not None and UNREADABLE in of(record)
            )
        fields = (self._spec.table_schema.field(name) for name in names)
        return [field for field in fields if field is not None]

    def _is_range_of(self, pruner: str, column: str) -> bool:
        if pruner == "time":
            return column == self._spec.time_column
        return column != self._spec.time_column or column in self._spec.indexing.sorted_columns

    def _column_ranges(self, field: FieldSpec) -> ColumnRanges:
        column: list[KnownBounds | None] = []
        for position, record in enumerate(self._records):
            pair = None if record is None else record.ranges.get(field.name)
            bounds = None if record is None or pair is None else self._bounds(position, record, field, pair)
            column.append(self._cut(position, bounds) if field.name == self._spec.time_column else bounds)
        return ColumnRanges.of(column)

    def _cut(self, position: int, bounds: Bounds | None) -> KnownBounds | None:
        """Return the range of the times that queries see in a segment. If the record tells none, it is the boundary
        alone: a segment that a stream still fills need not be asked for times before it."""
        cut = self._cuts[position]
        if self._boundary is None or cut in (TimeSplit.ALL, TimeSplit.HIDDEN):
            return bounds
        first, last = self._boundary, self._boundary - 1
        if cut is TimeSplit.FROM:
            return (first, None) if bounds is None else (max(bounds[0], first), max(bounds[1], first))
        return (None, last) if bounds is None else (min(bounds[0], last), min(bounds[1], last))

    def _bounds(self, position: int, record: SegmentRecord, field: FieldSpec, pair: tuple[Any, Any]) -> Bounds | None:
        stored = self._stored(position, record, field)
        if stored is None:
            return None
        try:
            return bounds_of(stored, field.type, *pair)
        except CorruptionError as error:
            self._give_up(position, record, error)
            return None

    def _column_partitions(self, field: FieldSpec) -> ColumnPartitions:
        segments: list[SegmentPartitions | None] = []
        for position, record in enumerate(self._records):
            entry = None if record is None else record.partitions.get(field.name)
            segments.append(
                None if record is None or entry is None else self._partitions(position, record, field, entry)
            )
        return ColumnPartitions.of(field.type, segments)

    def _partitions(
        self, position: int, record: SegmentRecord, field: FieldSpec, entry: PartitionRecord
    ) -> SegmentPartitions | None:
        stored = self._stored(position, record, field)
        if stored is None or not are_texts_alike(stored, field.type):
            return None
        if not entry.partitions and record.total_docs:
            self._give_up(position, record, CorruptionError("rows are of no partition"))
            return None
        try:
            function = function_of(entry.function_name, entry.num_partitions, entry.function_config)
        except InvalidInputError as error:
            self._give_up(position, record, error)
            return None
        return SegmentPartitions(function, frozenset(entry.partitions))

    def _column_blooms(self, field: FieldSpec) -> ColumnBlooms:
        segments: list[SegmentBloom | None] = []
        for position, record in enumerate(self._records):
            text = None if record is None else record.blooms.get(field.name)
            segments.append(None if record is None or text is None else self._bloom(position, record, field, text))
        return ColumnBlooms.of(segments)

    def _bloom(self, position: int, record: SegmentRecord, field: FieldSpec, text: str) -> SegmentBloom | None:
        stored = self._stored(position, record, field)
        if stored is None:
            return None
        try:
            return SegmentBloom(stored, bloom.from_text(text))
        except CorruptionError as error:
            self._give_up(position, record, error)
            return None

    def _stored(self, position: int, record: SegmentRecord, field: FieldSpec) -> TypeName | None:
        """Return the type of a column's values in the segment; None if the record does not tell."""
        column_type = record.column_types.get(field.name)
        if column_type is not None:
            return column_type[0]
        if record.columns:
            self._give_up(position, record, CorruptionError(f"type of the column is not known column={field.name}"))
        return None

    def _give_up(self, position: int, record: SegmentRecord, error: Exception) -> None:
        if not self._unreadable:
            self._first_cause = f"segment={record.name} {error}"
            _LOG.warning("segment is not pruned table=%s segment=%s cause=%s", self._table, record.name, error)
        self._unreadable.add(position)
