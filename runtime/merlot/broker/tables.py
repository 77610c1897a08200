"""Follow one table in the metastore: its manifest and its routes.

`ServedTable` is immutable and swapped by reference; a query takes it once and keeps it to its end. Reads block, so they
run in the watcher's threads; everything else is on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from merlot.broker.metastore_rollbacks import RollbackDetector
from merlot.broker.refresher import Refresher
from merlot.broker.routing import edition_steps, pruning
from merlot.broker.routing.distincts import TableDistincts
from merlot.broker.routing.health import ServerStanding
from merlot.broker.routing.pruning import Selection, TablePruning
from merlot.broker.routing.routes import RoutingInputs, RoutingSnapshot
from merlot.clock import Clock
from merlot.cluster import paths
from merlot.cluster.consuming.merged import is_merged
from merlot.cluster.instances.reports import ReportReader
from merlot.cluster.losses import LostRecord, find_lost
from merlot.cluster.manifests.tables import get_table, spec_of
from merlot.cluster.records import TableRecord
from merlot.cluster.segments import view
from merlot.cluster.segments.boundary import BoundaryRule
from merlot.cluster.segments.editions import partitioning_of
from merlot.cluster.segments.table_types import typed_names
from merlot.cluster.segments.view import TableView
from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError, NotFoundError, UnavailableError
from merlot.ids import InstanceId, RawTableName, TableName, raw_name
from merlot.metastore.protocol import Metastore, Watch
from merlot.spec.schema import TableSchema
from merlot.spec.table import PushType, TableSpec
from merlot.tree.nodes import Expr
from merlot.vectors.errors import LimitExceededError

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


class TableDisabledError(UnavailableError):
    """Raised for a query of a suspended table, until its manifest says otherwise."""

    code: ClassVar[int] = QueryErrorCode.TABLE_IS_DISABLED


class TableLostError(UnavailableError):
    """Raised if the metastore knows fewer segments of the table than its deep store: answers would silently lack
    rows."""

    code: ClassVar[int] = QueryErrorCode.BROKER_SEGMENT_UNAVAILABLE


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A table as queries see it. Its spec is another object after each change of its record: plans that were made for
    another one are stale."""

    name: TableName
    revision: int
    spec: TableSpec
    snapshot: RoutingSnapshot
    pruning: TablePruning | None = None
    """Statistics that choose segments by filter; None: every query asks for every segment."""
    rule: BoundaryRule | None = None
    """Rule for the time boundary of a hybrid table; None for any other table."""
    lost: LostRecord | None = None
    """Record of segments that the metastore has lost; None if it has lost none."""
    distincts: TableDistincts | None = None
    """Numbers of distinct values of the sealed segments, for plans; None if nothing is known."""

    def select(self, where: Expr | None, request_number: int, *, null_handling: bool) -> Selection:
        """Choose the servers to ask, and the segments to ask each for, for a query with the filter `where`."""
        if self.pruning is None:
            return pruning.select(self.snapshot, request_number)
        return self.pruning.select(where, request_number, null_handling=null_handling)

    def problems(self) -> tuple[str, ...]:
        """Return, a line each, the reasons why segments are not pruned that should be."""
        if self.pruning is not None:
            return self.pruning.problems()
        return tuple(f"pruner is unknown name={name}" for name in pruning.unknown_pruners(self.spec))

    def check_spelled(self, name: str) -> None:
        """Raise InvalidInputError if a name in SQL names only one of a hybrid table's two tables, which answer
        together; NotFoundError if the table has no such type."""
        halves = typed_names(self.raw_name, self.spec)
        typed = [half for half in halves if half.lower() == name.lower()]
        if name.lower() == self.raw_name.lower() or typed == halves:
            return
        if not typed:
            raise NotFoundError(f"table does not exist table={name}: it is {' and '.join(halves)}")
        raise InvalidInputError(
            f"one half of a hybrid table cannot be queried alone table={name}: query {self.raw_name}, and name a time"
        )

    def check_enabled(self) -> None:
        """Raise TableDisabledError if the table is suspended, TableLostError if the metastore has lost segments of
        it."""
        if self.lost is not None:
            raise TableLostError(
                f"table cannot be answered table={self.raw_name}: {self.lost.reason}; it waits for one"
                if self.lost in (_UNKNOWN, _BEHIND)
                else f"table is lost table={self.raw_name}: {self.lost.to_text(self.name)}"
            )
        if self.spec.suspend:
            raise TableDisabledError(f"table is disabled table={self.raw_name}: its manifest says spec.suspend")

    def check_rows(self, num_rows: int) -> None:
        """Raise LimitExceededError if an answer of `num_rows` rows is larger than the table allows."""
        limit = self.spec.limits.max_rows
        if limit is not None and num_rows > limit:
            raise LimitExceededError(f"answer has more rows than the table allows rows={num_rows} limit={limit}")

    @property
    def raw_name(self) -> RawTableName:
        """The name in SQL."""
        return raw_name(self.name)

    @property
    def schema(self) -> TableSchema:
        """Columns, for binding and reducing."""
        return self.spec.table_schema


_UNKNOWN = LostRecord(
    num_segments=0, total_docs=0, reason="no controller has compared the metastore with the deep store", since_ms=0
)
"""The record for a new table, whose segments an earlier metastore may have known."""
_BEHIND = LostRecord(
    num_segments=0,
    total_docs=0,
    reason="the metastore is older than it was, and no controller has compared it with the deep store",
    since_ms=0,
)
LOOK_S: Final = 1.0
"""Time between two reads of a table that waits for a controller's verdict."""


@dataclass(frozen=True, slots=True)
class _State:
    record: TableRecord
    spec: TableSpec
    view: TableView
    reports: Mapping[InstanceId, Set[str]]
    served: Set[str]
    lost: LostRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSources:
    """Dependencies that the watches of all tables share. `standings` is called on the event loop."""

    metastore: Metastore
    executor: Executor
    clock: Clock
    standings: Callable[[], Mapping[InstanceId, ServerStanding]]
    retry_s: float
    """Seconds until a table is read again after it could not be."""


class TableWatch:
    """Follows one table. `on_change` is called on the event loop with every new ServedTable, and with None once the
    table is gone."""

    def __init__(self, name: TableName, sources: TableSources, on_change: Callable[[ServedTable | None], None]) -> None:
        self._name = name
        self._sources = sources
        self._on_change = on_change
        self._reader = ReportReader(sources.metastore, name)
        self._refresher = Refresher(f"table {name}", self._refresh, retry_s=sources.retry_s)
        self._watches: list[Watch] = []
        self._is_watched = False
        """True once all watches are set."""
        self._rollbacks = RollbackDetector(sources.clock)
        self._state: _State | None = None
        self._served: ServedTable | None = None
        self._passed: tuple[TableView, ...] = ()
        """Views that are newer than the routes in use, the current one last (`edition_steps`)."""
        self._is_read_due = True
        self.is_settled = False
        """True once the table was read, or cannot be for a reason that waiting does not mend."""
        self._reading = threading.Lock()
        """Held by the thread that uses the reader, so that stopping waits for a read that is under way."""

    async def start(self) -> None:
        """Watch the table's nodes, and read them once. If that fails now, it is tried again later."""
        self._refresher.start()
        await self._refresher.read_once()

    async def stop(self) -> None:
        """Stop following the table."""
        await self._refresher.stop()
        await self._in_thread(self._unwatch)

    def routes_changed(self) -> None:
        """Choose routes again: servers came, went, or changed their standing."""
        self._refresher.poke()

    def _watch(self) -> None:
        """Set the watches that are missing: the metastore may have fallen silent after some of them."""
        if self._is_watched:
            return
        nodes = (paths.table_config(self._name), paths.segments_root(self._name), paths.lost(self._name))
        for path in nodes[len(self._watches) :]:
            self._watches.append(self._sources.metastore.watch(path, self._state_changed))
        self._reader.watch(self._state_changed)
        self._is_watched = True

    def _unwatch(self) -> None:
        with self._reading:
            for watch in self._watches:
                watch.cancel()
            self._reader.close()

    def _state_changed(self) -> None:
        """Note that the table must be read again. Called on a thread of the metastore."""
        self._is_read_due = True
        self._refresher.poke()

    async def _refresh(self) -> None:
        if self._is_read_due:
            self._is_read_due = False
            try:
                self._state = await self._in_thread(self._read)
            except NotFoundError:
                self._rollbacks.forget()
                self._drop()
            except BaseException as error:
                self._is_read_due = True
                self.is_settled = self.is_settled or not isinstance(error, UnavailableError)
                raise
        if self._state is not None:
            await self._route(self._state)
            if self._state.lost is _BEHIND:
                self._is_read_due = True
                self._refresher.poke_in(LOOK_S)
        self.is_settled = True

    def _read(self) -> _State:
        with self._reading:
            self._watch()
            return self._read_alone()

    def _read_alone(self) -> _State:
        metastore = self._sources.metastore
        before = self._state
        record = get_table(metastore, self._name)
        is_same = before is not None and before.record == record
        spec = before.spec if before is not None and is_same else spec_of(record).spec
        # The mark first: a controller removes it only after it has restored the records.
        lost = find_lost(metastore, self._name)
        # Reports before the view: if a record is read without its report, its segment is routed later, at worst.
        reports = self._reader.read()
        loaded = view.load(metastore, self._name, None if before is None else before.view)
        is_new = before is None or before.view is not loaded
        is_moved = before is None and loaded.root.time_boundary_ms is not None
        if is_moved or (is_new and spec.upsert is not None and is_merged(loaded.stream_segments)):
            # Read the reports again: the first read may be older than the view. Segments of batches before the boundary
            # were reported before the boundary moved, also before the first view, and a merged segment before the
            # records of its inputs were removed.
            reports = self._reader.read()
        is_behind = self._rollbacks.is_behind(record.created_ms, loaded.epoch, is_marked=lost is not None)
        if lost is None and record.is_unconfirmed:
            lost = _UNKNOWN
        elif is_behind:
            lost = _BEHIND
        keys = {instance: report.loaded for instance, report in reports.items()}
        served = frozenset[str]().union(*(report.served for report in reports.values()))
        return _State(record, spec, loaded, keys, served, lost)

    async def _route(self, state: _State) -> None:
        now_ms = self._sources.clock.now_ms()
        inputs = RoutingInputs(
            view=state.view,
            reports=state.reports,
            standings=self._sources.standings(),
            served=state.served,
            now_ms=now_ms,
            is_whole=state.spec.push_type is PushType.REFRESH,
            is_strict=state.spec.is_strict,
            rule=BoundaryRule.of(state.spec),
            partitioning=partitioning_of(state.spec),
        )
        served, self._passed = await self._in_thread(
            lambda: _serve(self._name, state, inputs, self._served, self._passed)
        )
        snapshot = served.snapshot
        self._served = served
        self._on_change(self._served)
        if snapshot.stale_at_ms is not None:
            self._refresher.poke_in((snapshot.stale_at_ms - now_ms) / 1000)

    def _drop(self) -> None:
        if self._served is not None:
            _LOG.info("table is gone table=%s", self._name)
        self._state = self._served = None
        self._passed = ()
        self._on_change(None)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._sources.executor, call)


def _serve(
    name: TableName,
    state: _State,
    inputs: RoutingInputs,
    previous: ServedTable | None,
    passed: tuple[TableView, ...],
) -> tuple[ServedTable, tuple[TableView, ...]]:
    followed = edition_steps.follow(
        inputs, None if previous is None else edition_steps.FollowedViews(previous.snapshot, passed)
    )
    pruned = pruning.build(followed.snapshot, state.spec, None if previous is None else previous.pruning)
    distincts = TableDistincts.of_snapshot(followed.snapshot, None if previous is None else previous.distincts)
    served = ServedTable(
        name, state.record.revision, state.spec, followed.snapshot, pruned, inputs.rule, state.lost, distincts
    )
    return served, followed.unrouted_views
