"""Plan SQL text, and cache plans by text: parsing costs more than the rest of the broker.

Texts that differ only in constants share a template (`sql.shapes`): 30 us instead of 350. A plan is valid for one spec
of its table. After a change of the manifest, or if the table is deleted and created again, the next query is planned
again. It is valid for one view of each of its tables too: see `view_keys`. The planner is used on the event loop. Texts
longer than INLINE_SQL_CHARS may take many milliseconds, so they are planned in `threads`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from merlot.broker.planning import options as query_options
from merlot.broker.planning.options import AnswerWishes
from merlot.broker.planning.staged import BoundStages, PlannedTable, bind_stages, wants_stages
from merlot.broker.planning.threads import PlanningThreads
from merlot.broker.settings import PLAN_CACHE_BYTES
from merlot.broker.tables import ServedTable
from merlot.broker.view_keys import TextKey, ViewKeys, are_seen, seen
from merlot.clock import Clock
from merlot.errors import InvalidInputError, NotFoundError
from merlot.functions.instants import Moment
from merlot.ids import TableName, raw_name
from merlot.query.plan import row_filters
from merlot.query.plan.binding import bind, folding
from merlot.query.plan.make import plan as make_plan
from merlot.query.plan.nodes import Reduce, refilter
from merlot.query.plan.rewrite import rewritten
from merlot.query.pruning import monotone
from merlot.query.stages.leaves import StageLeaf
from merlot.query.stages.rewrites.rules import RewriteResult
from merlot.security.access import WHOLE_TABLE, AccessView
from merlot.security.views import Views
from merlot.spec.table import MAX_TIMEOUT_MS, TableSpec
from merlot.sql.budget import Budget
from merlot.sql.null_counts import WARNING, counts_nulls
from merlot.sql.parse import ParsedStatement, one_stage, parse_statement, show_place
from merlot.sql.query_options import with_nulls
from merlot.sql.shapes import QueryShape, Template, make_template, shape_of
from merlot.sql.views import BindContext, row_filter
from merlot.tree import tree_json
from merlot.tree.errors import SqlError
from merlot.tree.nodes import BoundQuery, Expr

T = TypeVar("T")

INLINE_SQL_CHARS = 512
"""Longest text that is planned on the event loop: a hundred conditions and their template take 15 ms, most texts 0.5
ms."""
MAX_PLANS = 2000
MAX_SHAPES = 2000
"""At least MAX_PLANS: dashboards that repeat more shapes than this in turn would find none of them in the cache."""
SIGHTINGS = 2
"""Number of queries of a shape at which its template is made, which costs as much as planning two more of them."""

FindTable = Callable[[str], ServedTable | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query that is ready to run. A SELECT without FROM has neither `table` nor `tree`."""

    constant: BoundQuery | None = None
    """The query if it is a SELECT without FROM."""
    timeout_ms: int
    table: TableName | None = None
    spec: TableSpec | None = None
    """Spec of the table that the plan was made for."""
    query: bytes = b""
    """The query without its WHERE, encoded: the same for all queries of a shape."""
    where: bytes = b""
    """The plan's filter, encoded."""
    is_explain: bool = False
    tree: Reduce | None = None
    is_momentary: bool = False
    """True if the query has NOW() or AGO(): the plan must not be used again."""
    skips_pruning: bool = False
    """`skipSegmentPruning=true`: ask for every segment, and let servers examine each."""
    prunes_by_functions: bool = False
    """True if the filter has functions whose bounds pruning may have to compute."""
    wishes: AnswerWishes = field(default_factory=AnswerWishes)
    stages: PlannedStages | None = None
    """Plan of a query of several stages, which has no `tree`; None for any other."""
    rewrites: RewriteResult | None = None
    """Rewriting of a statement of several stages into this query of one table; None for other queries. If set,
    aggregates of no values are NULL."""
    views: Mapping[TableName, AccessView] = field(default_factory=dict)
    """Views that the plan was made for, of tables of which the asker does not see everything."""
    row_filter: Expr | None = None
    """The part of the filter that keeps the rows which the asker sees; None if it sees all."""

    @property
    def tables(self) -> Collection[TableName]:
        """Names of the tables that the query reads."""
        if self.stages is not None:
            return self.stages.specs.keys()
        return () if self.table is None else (self.table,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStages:
    """Plans of the leaves, by relation, and the query above them."""

    bound: BoundStages
    leaves: Mapping[str, PlannedQuery]

    @property
    def specs(self) -> Mapping[TableName, TableSpec]:
        """Specs of the tables that the query was planned for."""
        return {table.name: table.spec for table in self.bound.tables.values()}


@dataclass(slots=True)
class PlanCounts:
    """Number of plans since the broker started, by how each was obtained."""

    cached: int = 0
    """Plans that were cached under their text."""
    filled: int = 0
    """Plans from the template of their shape."""
    made: int = 0
    """Plans made from the text."""


@dataclass(slots=True)
class _ShapeEntry:
    """Cache entry of a shape."""

    sightings: int = 0
    template: Template | None = None
    planned: PlannedQuery | None = None
    """Plan from which a template was tried; None if none was tried yet. If this is set and `template` is None, the
    shape can have no template for the plan's spec."""


class Planner:
    """Plans queries, and drops the plans that were used least recently when the cache is full."""

    def __init__(
        self, find_table: FindTable, clock: Clock, *, max_plans: int = MAX_PLANS, max_bytes: int = PLAN_CACHE_BYTES
    ) -> None:
        self._find_table = find_table
        self._clock = clock
        self._max_plans = max_plans
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._plans: OrderedDict[TextKey | None, PlannedQuery] = OrderedDict()
        self._shapes: OrderedDict[TextKey | None, _ShapeEntry] = OrderedDict()
        self._view_keys = ViewKeys()
        self._threads = PlanningThreads()
        self.counts = PlanCounts()

    async def plan(self, sql: str, options: str, views: Views | None = None) -> PlannedQuery:
        """Return the plan for a text and what the asker sees; without `views`, everything. Raise the errors of parsing
        and binding, NotFoundError for an unknown table, AccessDeniedError for one that must not be queried or whose
        view does not fit, and PlanningTimeoutError at the query's deadline. Cancelling ends the planning."""
        key = (sql, options) if views is None else self._view_keys.find(sql, options, views)
        cached = self._plans.get(key)
        if cached is not None and self._is_current(cached) and (views is None or _is_seen(cached, views)):
            self._plans.move_to_end(key)
            self.counts.cached += 1
            return cached
        planned = await self._make_by_shape(sql, options, views)
        if not planned.is_momentary:
            if views is not None:
                key = self._view_keys.note(sql, options, planned.tables, views)
            self._remember(key, planned)
        return planned

    async def run(
        self, sql: str, work: Callable[[Budget], T], *, timeout_s: float = query_options.DEFAULT_TIMEOUT_MS / 1000
    ) -> T:
        """Run other work on a text among the texts that are planned, with a query's deadline. Raise as `plan`."""
        budget = Budget(self._clock.monotonic() + timeout_s, self._clock)
        return await self._threads.run(len(sql), timeout_s, budget, lambda: work(budget))

    def close(self) -> None:
        """Plan no more long texts."""
        self._threads.close()

    def _is_current(self, plan: PlannedQuery) -> bool:
        if plan.stages is not None:
            return all(self._has(name, spec) for name, spec in plan.stages.specs.items())
        return plan.table is None or self._has(plan.table, plan.spec)

    def _has(self, name: TableName, spec: TableSpec | None) -> bool:
        table = self._find_table(name)
        return table is not None and table.spec is spec

    def _remember(self, key: TextKey | None, plan: PlannedQuery) -> None:
        if key is None:
            return
        replaced = self._plans.pop(key, None)
        if replaced is not None:
            self._num_bytes -= _weight(key, replaced)
        self._plans[key] = plan
        self._num_bytes += _weight(key, plan)
        while len(self._plans) > self._max_plans or self._num_bytes > self._max_bytes:
            oldest, dropped = self._plans.popitem(last=False)
            assert oldest is not None
            self._num_bytes -= _weight(oldest, dropped)

    async def _make_by_shape(self, sql: str, options: str, views: Views | None) -> PlannedQuery:
        shape = shape_of(sql)
        key: TextKey | None = None
        if shape is not None:
            key = (shape.key, options) if views is None else self._view_keys.find(shape.key, options, views)
        entry = (None if key is None else self._shapes.get(key)) or _ShapeEntry()
        if entry.planned is not None and not self._is_current(entry.planned):
            entry.template = entry.planned = None
        if entry.planned is not None and views is not None and not _is_seen(entry.planned, views):
            entry = _ShapeEntry()
        if shape is not None and entry.template is not None and entry.planned is not None:
            filled = _fill(entry.template, entry.planned, shape)
            if filled is not None:
                self.counts.filled += 1
                self._remember_shape(key, entry)
                return filled
        self.counts.made += 1
        entry.sightings += 1
        is_template_due = entry.sightings >= SIGHTINGS and entry.planned is None
        made = await self._make_inline_or_in_thread(sql, options, shape if is_template_due else None, views)
        if is_template_due and made.is_shape_tried:
            entry.planned, entry.template = made.planned, made.template
        if shape is not None and views is not None:
            key = self._view_keys.note(shape.key, options, made.planned.tables, views)
        self._remember_shape(key, entry)
        return made.planned

    async def _make_inline_or_in_thread(
        self, sql: str, options: str, shape: QueryShape | None, views: Views | None
    ) -> _PlanResult:
        timeout_s = query_options.planning_timeout_ms(options) / 1000
        deadline = self._clock.monotonic() + timeout_s
        is_short = len(sql) <= INLINE_SQL_CHARS
        budget = Budget(deadline, self._clock)
        if is_short:
            return self._make(sql, options, shape, budget, views)
        return await self._threads.run(
            len(sql), timeout_s, budget, lambda: self._make(sql, options, shape, budget, views)
        )

    def _remember_shape(self, key: TextKey | None, entry: _ShapeEntry) -> None:
        """Keep the entry of a shape, if the text has one. Called only after planning has bounded the options' length:
        nothing is kept of a text that fails."""
        if key is None:
            return
        self._shapes[key] = entry
        self._shapes.move_to_end(key)
        if len(self._shapes) > MAX_SHAPES:
            self._shapes.popitem(last=False)

    def _make(
        self, sql: str, options: str, shape: QueryShape | None, budget: Budget, views: Views | None
    ) -> _PlanResult:
        """Plan a text. If `shape` is given, also try to make its template."""
        parsed = self._parse(sql, budget)
        try:
            return self._plan_parsed(parsed, options, shape, budget, views)
        except SqlError as error:
            show_place(error, sql)
            raise

    def _plan_parsed(
        self, parsed: ParsedStatement, options: str, shape: QueryShape | None, budget: Budget, views: Views | None
    ) -> _PlanResult:
        moment = Moment(self._clock.now_ms())
        request_options = query_options.parse(options)
        if parsed.has_stages or (wants_stages(request_options, parsed) and one_stage(parsed).table is not None):
            stages = bind_stages(parsed, request_options, self._find_table, moment, budget, views)
            return _PlanResult(_plan_stages(stages, moment, budget))
        bound, table, view = self._bind(parsed, request_options, budget, moment, views)
        if table is None:
            timeout_ms = query_options.timeout_ms(dict(bound.options), None)
            return _PlanResult(
                PlannedQuery(
                    constant=bound,
                    timeout_ms=timeout_ms,
                    is_momentary=moment.was_asked,
                    wishes=query_options.wishes(bound),
                )
            )
        budget.look()
        planned = _plan_for(table, bound, moment, view, budget)
        if not bound.null_handling and counts_nulls(parsed):
            wishes = planned.wishes
            planned = replace(planned, wishes=replace(wishes, warnings=(*wishes.warnings, WARNING)))
        budget.look()
        # A template must find no constant of a mask.
        if shape is None or planned.is_momentary or view.masks:
            return _PlanResult(planned, is_shape_tried=shape is not None and not planned.is_momentary)
        template = make_template(
            shape, bound, lambda text: self._bind(self._parse(text, budget), request_options, budget, None, views)[0]
        )
        return _PlanResult(planned, template, is_shape_tried=True)

    def _parse(self, sql: str, budget: Budget) -> ParsedStatement:
        parsed = parse_statement(sql, budget)
        budget.shorten(query_options.own_timeout_ms(dict(parsed.options)) or MAX_TIMEOUT_MS)
        return parsed

    def _bind(
        self,
        statement: ParsedStatement,
        request_options: Mapping[str, str],
        budget: Budget,
        moment: Moment | None,
        views: Views | None,
    ) -> tuple[BoundQuery, ServedTable | None, AccessView]:
        parsed = one_stage(statement)
        if parsed.table is None:
            return bind(parsed, None, request_options, moment, budget), None, WHOLE_TABLE
        table = self._find_table(parsed.table)
        view = seen(views, parsed.table if table is None else table.name)
        if table is None:
            raise NotFoundError(f"table does not exist table={raw_name(parsed.table)}")
        table.check_spelled(parsed.table)
        options = with_nulls(request_options, null_handling=table.spec.null_handling)
        return bind(parsed, table.schema, options, moment, budget, view), table, view


@dataclass(frozen=True, slots=True)
class _PlanResult:
    """A plan, and the template of its shape if one was tried and could be made."""

    planned: PlannedQuery
    template: Template | None = None
    is_shape_tried: bool = False


def _is_seen(plan: PlannedQuery, views: Views) -> bool:
    return are_seen(plan.views, plan.tables, views)


def _weight(key: TextKey, plan: PlannedQuery) -> int:
    sql, options = key[:2]
    own = len(sql) + len(options) + len(plan.query) + len(plan.where)
    if plan.stages is None:
        return own
    leaves = plan.stages.leaves.values()
    return own + len(plan.stages.bound.engine.sql) + sum(len(leaf.query) + len(leaf.where) for leaf in leaves)


def _fill(template: Template, planned: PlannedQuery, shape: QueryShape) -> PlannedQuery | None:
    """Return the plan of another query of the shape. None if its constants do not fit; binding then gives the better
    error."""
    assert planned.tree is not None
    guard = planned.row_filter
    filled = None if template.direct is None or guard is not None else template.direct.fill(shape.constants)
    condition: Expr | None
    if filled is not None:
        condition, encoded = filled
    else:
        try:
            condition = template.fill(shape.constants).where
        except InvalidInputError:
            return None
        condition = rewritten(condition if guard is None else row_filters.joined(guard, condition))
        encoded = tree_json.where_to_json(condition)
    return PlannedQuery(
        timeout_ms=planned.timeout_ms,
        table=planned.table,
        spec=planned.spec,
        query=planned.query,
        where=encoded,
        tree=refilter(planned.tree, condition),
        skips_pruning=planned.skips_pruning,
        prunes_by_functions=planned.prunes_by_functions,
        wishes=planned.wishes,
        views=planned.views,
        row_filter=guard,
    )


def _plan_for(
    table: ServedTable | PlannedTable, bound: BoundQuery, moment: Moment, view: AccessView, budget: Budget
) -> PlannedQuery:
    """Return the plan of a query of one table: every leaf is planned here, and gets its row filter here."""
    options: Mapping[str, str] = dict(bound.options)
    guard = None
    if view.row_filters:
        binding = BindContext(folding(budget), moment, budget)
        predicate = row_filter(view, raw_name(table.name), table.spec.table_schema, binding)
        guard = row_filters.of_leaf(predicate, null_handling=bound.null_handling)
        bound = replace(bound, where=row_filters.joined(guard, bound.where))
    tree = make_plan(bound)
    where = tree.leaf.filter
    return PlannedQuery(
        timeout_ms=query_options.timeout_ms(options, table.spec.limits.timeout_ms),
        table=table.name,
        spec=table.spec,
        query=tree_json.to_json(replace(bound, where=None)),
        where=tree_json.where_to_json(where),
        tree=tree,
        is_explain=bound.explain,
        is_momentary=moment.was_asked,
        skips_pruning=tree.leaf.work.skips_pruning,
        prunes_by_functions=any(monotone.functions_of(where)),
        wishes=query_options.wishes(bound, table.spec.limits),
        views={} if view.is_whole else {table.name: view},
        row_filter=guard,
    )


def _plan_stages(bound: BoundStages, moment: Moment, budget: Budget) -> PlannedQuery:
    statement = bound.statement
    options: Mapping[str, str] = dict(statement.options)
    limits = query_options.least(table.spec.limits for table in bound.tables.values())
    if bound.direct is not None and len(bound.tables) == 1:  # a table that rewrite rules dropped must still exist
        return replace(_plan_leaf(bound, bound.direct, moment, budget), rewrites=bound.rewrites)
    leaves = {id_: _plan_leaf(bound, leaf, moment, budget) for id_, leaf in bound.leaves.items()}
    return PlannedQuery(
        timeout_ms=query_options.timeout_ms(options, limits.timeout_ms),
        is_explain=statement.explain,
        is_momentary=moment.was_asked,
        wishes=query_options.wishes(statement, limits),
        stages=PlannedStages(bound=bound, leaves=leaves),
        views={bound.tables[name].name: view for name, view in bound.views.items()},
    )


def _plan_leaf(bound: BoundStages, leaf: StageLeaf, moment: Moment, budget: Budget) -> PlannedQuery:
    name = leaf.query.table
    return _plan_for(bound.tables[name], leaf.query, moment, bound.views.get(name, WHOLE_TABLE), budget)
