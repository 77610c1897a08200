"""Which of a snapshot's segments a query needs: statistics from their records, and routes to what is left.

Built in a thread whenever routes change, reusing the statistics if the records are the same; used on the event loop.
Per query it costs array operations over all segments and Python only for those that are left. What a record does not
tell, or tells in a way that cannot be read, prunes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot import telemetry
from merlot.broker.routing import own_pruners
from merlot.broker.routing.own_pruners import Keep, OwnPruner
from merlot.broker.routing.routes import RoutedSegment, RoutingSnapshot, ServerRoute
from merlot.cluster.records import UNREADABLE, PartitionRecord, SegmentRecord
from merlot.cluster.segments.boundary import BEFORE_ALL, BoundaryRule, Cut
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
    """What one query asks of whom; `unavailable` are keys that it needs and nobody holds."""

    routes: tuple[ServerRoute, ...]
    unavailable: tuple[str, ...]
    num_pruned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TablePruning:
    """Everything by position: the order of `snapshot.segments`."""

    snapshot: RoutingSnapshot
    spec: TableSpec
    records: Sequence[SegmentRecord | None] = field(repr=False)
    """None: the record is of another version than the one that is routed."""
    stages: tuple[tuple[str, SegmentStatistics], ...]
    """Statistics that each pruner may use together with those before it; the last has all."""
    own: tuple[OwnPruner, ...] = ()
    unreadable: str | None = None
    """Why segments are never pruned whose records say what this version cannot read; None if there are none."""
    keys: NDArray[np.object_] = field(repr=False)
    turns: tuple[NDArray[np.int16], ...] = field(repr=False)
    """Number of the server in `servers`, by turn and segment; -1 if nobody holds it."""
    servers: tuple[InstanceId, ...]
    cuts: NDArray[np.int8] = field(repr=False)
    """Which rows of each segment queries see (`Cut`)."""
    seen: Keep | None = field(repr=False)
    """Segments of which queries see any; None: all, as of every table that is neither hybrid nor has editions."""
    num_seen: int
    editions: Mapping[int, int] = field(default_factory=dict)
    """Of an upsert table of batches: the position of each partition's edition, by the number of its group."""
    groups: Sequence[int | None] = ()
    """Of such a table: numbers of groups, by position."""

    @property
    def statistics(self) -> SegmentStatistics:
        """All that is known."""
        return self.stages[-1][1]

    def problems(self) -> tuple[str, ...]:
        """What keeps segments from being pruned that should be, a line each. Grows with what queries meet."""
        functions = {one for known in self.statistics.partitions.values() for one in known.holders}
        found = [self.unreadable, *(one.problem for one in self.own), *sorted({one.problem or "" for one in functions})]
        return tuple(filter(None, found))

    def is_prepared(self, where: Expr | None) -> bool:
        """Whether `select` has nothing to compute that may hold up an event loop; else `prepare` does it."""
        return self.statistics.knows(monotone.functions_of(where))

    def prepare(self, where: Expr | None) -> None:
        """Compute bounds of the functions that the filter has; any thread."""
        for function in monotone.functions_of(where):
            self.statistics.ranges_of(function)

    def select(self, where: Expr | None, request_number: int, *, null_handling: bool) -> Selection:
        """Routes for the segments that may hold rows that pass the filter."""
        kept = self._kept(where, self.statistics, self.own, null_handling=null_handling)
        num_segments = self.num_seen
        positions = np.flatnonzero(kept)
        if len(positions) == num_segments:
            return Selection(self.snapshot.select(request_number), self.snapshot.unavailable)
        num_pruned = num_segments - len(positions)
        if self.editions:
            positions = self._with_editions(positions)
        turn = self.turns[request_number % len(self.turns)]
        return self._routes(positions, turn[positions], num_pruned)

    def _with_editions(self, positions: NDArray[np.intp]) -> NDArray[np.intp]:
        """And what the segments are editions of, for servers to know which docs of them are valid."""
        groups = {self.groups[position] for position in positions.tolist()}
        named = [self.editions[group] for group in groups if group is not None and group in self.editions]
        return np.concatenate([positions, np.array(named, np.intp)])

    def explain(self, where: Expr | None, *, null_handling: bool) -> list[tuple[str, int]]:
        """How many segments each pruner leaves out that those before it kept."""
        counts: list[tuple[str, int]] = [
            (name, int(np.count_nonzero(self._kept(where, statistics, (), null_handling=null_handling))))
            for name, statistics in self.stages
        ]
        for position, pruner in enumerate(self.own, start=1):
            kept = self._kept(where, self.statistics, self.own[:position], null_handling=null_handling)
            counts.append((pruner.name, int(np.count_nonzero(kept))))
        before = [self.num_seen, *(count for _, count in counts)]
        return [(name, earlier - count) for (name, count), earlier in zip(counts, before, strict=False)]

    def _kept(
        self,
        where: Expr | None,
        statistics: SegmentStatistics,
        own: Iterable[OwnPruner],
        *,
        null_handling: bool,
    ) -> Keep:
        kept: Keep = evaluate(where, statistics, null_handling=null_handling) != NONE
        if self.seen is not None:
            kept &= self.seen
        if where is not None:
            for pruner in own:
                kept &= pruner.keep(where)
        return kept

    def _routes(self, positions: NDArray[np.intp], servers: NDArray[np.int16], num_pruned: int) -> Selection:
        keys = self.keys[positions]
        calls = (servers + 1).astype(np.int32) * len(Cut) + self.cuts[positions]
        routes = []
        for call in np.flatnonzero(np.bincount(calls, minlength=1)).tolist():
            number, cut = divmod(call, len(Cut))
            if number:
                chosen = keys[calls == call].tolist()
                routes.append(ServerRoute(self.servers[number - 1], tuple(chosen), Cut(cut)))
        unavailable = tuple(keys[servers < 0].tolist()) if self.snapshot.unavailable else ()
        return Selection(tuple(routes), unavailable, num_pruned)


def build(snapshot: RoutingSnapshot, spec: TableSpec, previous: TablePruning | None) -> TablePruning | None:
    """The pruning of a snapshot; None if the table names no pruner, or one that this version lacks."""
    names = spec.routing.segment_pruners
    unknown = unknown_pruners(spec)
    telemetry.BROKER_UNKNOWN_PRUNERS.labels(snapshot.table).set(len(unknown))
    if unknown:
        _LOG.warning("pruning is off, a pruner is unknown table=%s names=%s", snapshot.table, ",".join(unknown))
    if not names or unknown:
        return None
    segments = list(snapshot.segments.values())
    records = [_known_record(segment) for segment in segments]
    cuts = np.array([segment.cut for segment in segments], np.int8)
    editions = {one.group: place for place, one in enumerate(segments) if is_edition(one.key) and one.group is not None}
    seen = cuts != Cut.HIDDEN
    seen[[place for place, one in enumerate(segments) if is_edition(one.key)]] = False
    num_seen = int(np.count_nonzero(seen))
    is_alike = previous is not None and previous.spec == spec and _are_same(previous.records, records)
    if previous is not None and is_alike and _are_cut_alike(previous, snapshot, cuts):
        records, stages, own, unreadable = list(previous.records), previous.stages, previous.own, previous.unreadable
    else:
        builder = _Builder(snapshot, spec, records, [segment.cut for segment in segments])
        stages, unreadable = builder.stages(), builder.unreadable()
        own = own_pruners.prepare_all(snapshot.table, spec, records)
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
        groups=[one.group for one in segments] if editions else (),
    )


def _known_record(segment: RoutedSegment) -> SegmentRecord | None:
    return segment.record if segment.is_known and not is_edition(segment.key) else None


def unknown_pruners(spec: TableSpec) -> list[str]:
    """Names of pruners that the table lists and this installation lacks: any of them turns pruning off."""
    return [name for name in spec.routing.segment_pruners if not pruners.is_known(name)]


def select(snapshot: RoutingSnapshot, request_number: int) -> Selection:
    """Everything, for tables without pruning."""
    return Selection(snapshot.select(request_number), snapshot.unavailable)


def _are_same(before: Sequence[SegmentRecord | None], after: Sequence[SegmentRecord | None]) -> bool:
    return len(before) == len(after) and all(old is new for old, new in zip(before, after, strict=True))


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


class _Builder:
    """Statistics from records. Values that no footer would write are counted, and their segments never pruned."""

    def __init__(
        self,
        snapshot: RoutingSnapshot,
        spec: TableSpec,
        records: Sequence[SegmentRecord | None],
        cuts: Sequence[Cut],
    ) -> None:
        self._table = snapshot.table
        self._spec = spec
        self._records = records
        self._cuts = cuts
        rule, boundary_ms = BoundaryRule.of(spec), snapshot.time_boundary_ms
        self._boundary: int | None = None
        """In the time column's unit."""
        if rule is not None and boundary_ms is not None and boundary_ms != BEFORE_ALL:
            self._boundary = rule.value(boundary_ms)
        self._unreadable: set[int] = set()
        self._first_cause = "bounds, partitions or filters are no JSON of their kind"

    def stages(self) -> tuple[tuple[str, SegmentStatistics], ...]:
        """One entry for each built-in pruner of the table; one without a name if it has none of them."""
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
        """How many segments' records cannot be read in part, and the first cause."""
        count = len(self._unreadable)
        return f"pruning information cannot be read segments={count} first: {self._first_cause}" if count else None

    def _facts(self, name: str, facts: dict[str, Any]) -> dict[str, Any]:
        match name:
            case "empty":
                is_empty = np.array([one is not None and one.total_docs == 0 for one in self._records], np.bool_)
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
        """Columns whose ranges are known; of a hybrid table, the time column's are."""
        found = self._names(lambda record: record.ranges)
        rule = BoundaryRule.of(self._spec)
        time = None if rule is None or self._boundary is None else self._spec.table_schema.field(rule.column)
        return found if time is None or time in found else [*found, time]

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
        bounds: list[KnownBounds | None] = []
        for position, record in enumerate(self._records):
            pair = None if record is None else record.ranges.get(field.name)
            known = None if record is None or pair is None else self._bounds(position, record, field, pair)
            bounds.append(self._cut(position, known) if field.name == self._spec.time_column else known)
        return ColumnRanges.of(bounds)

    def _cut(self, position: int, known: Bounds | None) -> KnownBounds | None:
        """Times of the rows that queries see. Of what nothing is known of, the boundary alone: what a stream still
        brings needs not be asked for times before it."""
        cut = self._cuts[position]
        if self._boundary is None or cut in (Cut.ALL, Cut.HIDDEN):
            return known
        first, last = self._boundary, self._boundary - 1
        if cut is Cut.FROM:
            return (first, None) if known is None else (max(known[0], first), max(known[1], first))
        return (None, last) if known is None else (min(known[0], last), min(known[1], last))

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
        known: list[SegmentPartitions | None] = []
        for position, record in enumerate(self._records):
            entry = None if record is None else record.partitions.get(field.name)
            known.append(None if record is None or entry is None else self._partitions(position, record, field, entry))
        return ColumnPartitions.of(field.type, known)

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
        known: list[SegmentBloom | None] = []
        for position, record in enumerate(self._records):
            text = None if record is None else record.blooms.get(field.name)
            known.append(None if record is None or text is None else self._bloom(position, record, field, text))
        return ColumnBlooms.of(known)

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
        """The type that a column's values have in the segment; None if the record does not tell."""
        found = record.column_types.get(field.name)
        if found is not None:
            return found[0]
        if record.columns:
            self._give_up(position, record, CorruptionError(f"type of the column is not known column={field.name}"))
        return None

    def _give_up(self, position: int, record: SegmentRecord, error: Exception) -> None:
        if not self._unreadable:
            self._first_cause = f"segment={record.name} {error}"
            _LOG.warning("segment is not pruned table=%s segment=%s cause=%s", self._table, record.name, error)
        self._unreadable.add(position)
