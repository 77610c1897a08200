"""SQL text to something that can be scattered, remembered by text: parsing costs more than the rest of the broker.

Texts that differ only in constants share a template (`sql.shapes`): 30 us instead of 350. A plan is valid for one
revision of its table; a changed manifest makes the next query plan again. Used on the event loop; very long texts are
planned in a thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from merlot.broker import query_options
from merlot.broker.tables import ServedTable
from merlot.clock import Clock
from merlot.errors import InvalidInputError, NotFoundError
from merlot.ids import TableName, raw_name
from merlot.query import logical
from merlot.query.binding import bind
from merlot.query.logical import LogicalPlan
from merlot.query.pruning import monotone
from merlot.query.rewrite import rewritten
from merlot.sql.errors import UnsupportedSqlError
from merlot.sql.instants import Moment
from merlot.sql.parse import parse
from merlot.sql.shapes import Shape, Template, make_template, shape_of
from merlot.tree import tree_json
from merlot.tree.nodes import BoundQuery, Expr

LONG_SQL_CHARS = 4096
MAX_PLANS = 2000
MAX_CACHED_CHARS = 4_000_000
"""Of all texts together: a tree takes some fifty times its text."""

MAX_SHAPES = 500
SIGHTINGS = 2
"""Queries of one shape before a template is made: that costs two more of them."""

FindTable = Callable[[str], ServedTable | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query ready to run. `table` is None for a SELECT without FROM, which has no logical plan either."""

    constant: BoundQuery | None = None
    """A SELECT without FROM."""
    timeout_ms: int
    table: TableName | None = None
    revision: int = 0
    query: bytes = b""
    """Encoded, without its WHERE: the same for all queries of a shape."""
    where: bytes = b""
    """The plan's filter, encoded."""
    is_explain: bool = False
    logical: LogicalPlan | None = None
    is_momentary: bool = False
    """NOW() or AGO() is in it: it is right for this moment alone."""
    skips_pruning: bool = False
    """`skipSegmentPruning=true`: ask for every segment, and have servers look at each."""
    prunes_by_functions: bool = False
    """Whether its filter has functions whose bounds pruning may have to compute."""


@dataclass(slots=True)
class _KnownShape:
    """What is remembered of a shape: the plan that its template is of, once there is one."""

    sightings: int = 0
    template: Template | None = None
    planned: PlannedQuery | None = None
    """None while no template was tried; with no template, the shape has none at its revision."""


class Planner:
    """Plans queries; keeps the least recently used last."""

    def __init__(
        self, find_table: FindTable, clock: Clock, *, max_plans: int = MAX_PLANS, max_chars: int = MAX_CACHED_CHARS
    ) -> None:
        self._find_table = find_table
        self._clock = clock
        self._max_plans = max_plans
        self._max_chars = max_chars
        self._num_chars = 0
        self._plans: OrderedDict[tuple[str, str], PlannedQuery] = OrderedDict()
        self._shapes: OrderedDict[tuple[str, str], _KnownShape] = OrderedDict()

    async def plan(self, sql: str, options: str) -> PlannedQuery:
        """The plan for this text; raises what parsing and binding raise, NotFoundError for an unknown table."""
        cached = self._plans.get((sql, options))
        if cached is not None and self._is_current(cached):
            self._plans.move_to_end((sql, options))
            return cached
        if len(sql) > LONG_SQL_CHARS:
            planned = await asyncio.to_thread(self._make, sql, options)
        else:
            planned = self._make_by_shape(sql, options)
        if not planned.is_momentary:
            self._remember((sql, options), planned)
        return planned

    def _is_current(self, plan: PlannedQuery) -> bool:
        if plan.table is None:
            return True
        table = self._find_table(plan.table)
        return table is not None and table.revision == plan.revision

    def _remember(self, key: tuple[str, str], plan: PlannedQuery) -> None:
        if key not in self._plans:
            self._num_chars += len(key[0])
        self._plans[key] = plan
        self._plans.move_to_end(key)
        while len(self._plans) > self._max_plans or self._num_chars > self._max_chars:
            (sql, _), _ = self._plans.popitem(last=False)
            self._num_chars -= len(sql)

    def _make_by_shape(self, sql: str, options: str) -> PlannedQuery:
        shape = shape_of(sql)
        if shape is None:
            return self._make(sql, options)
        known = self._known((shape.key, options))
        if known.planned is not None and not self._is_current(known.planned):
            known.template = known.planned = None
        if known.template is not None and known.planned is not None:
            filled = _fill(known.template, known.planned, shape)
            if filled is not None:
                return filled
        planned = self._make(sql, options)
        if planned.is_momentary:
            return planned
        known.sightings += 1
        if known.sightings >= SIGHTINGS and known.planned is None and planned.table is not None:
            bound, _ = self._bind(sql, options)
            known.template = make_template(shape, bound, lambda text: self._bind(text, options)[0])
            known.planned = planned
        return planned

    def _known(self, key: tuple[str, str]) -> _KnownShape:
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = _KnownShape()
            if len(self._shapes) > MAX_SHAPES:
                self._shapes.popitem(last=False)
        else:
            self._shapes.move_to_end(key)
        return known

    def _make(self, sql: str, options: str) -> PlannedQuery:
        moment = Moment(self._clock.now_ms())
        bound, table = self._bind(sql, options, moment)
        if table is not None:
            return _plan_for(table, bound, moment)
        return PlannedQuery(
            constant=bound,
            timeout_ms=query_options.timeout_ms(dict(bound.options), None),
            is_momentary=moment.was_asked,
        )

    def _bind(self, sql: str, options: str, moment: Moment | None = None) -> tuple[BoundQuery, ServedTable | None]:
        parsed = parse(sql)
        if parsed.explain and parsed.table is None:
            raise UnsupportedSqlError("EXPLAIN PLAN FOR without FROM")
        wanted = query_options.parse(options)
        if parsed.table is None:
            return _checked(bind(parsed, None, wanted, moment)), None
        table = self._find_table(parsed.table)
        if table is None:
            raise NotFoundError(f"table does not exist table={raw_name(parsed.table)}")
        return _checked(bind(parsed, table.schema, wanted, moment)), table


def _checked(bound: BoundQuery) -> BoundQuery:
    query_options.check(dict(bound.options))
    return bound


def _fill(template: Template, planned: PlannedQuery, shape: Shape) -> PlannedQuery | None:
    """The plan of another query of the shape; None if its constants do not fit, which binding will say better."""
    assert planned.logical is not None
    filled = None if template.direct is None else template.direct.fill(shape.constants)
    condition: Expr | None
    if filled is not None:
        condition, encoded = filled
    else:
        try:
            condition = rewritten(template.fill(shape.constants).where)
        except InvalidInputError:
            return None
        encoded = tree_json.where_to_json(condition)
    return PlannedQuery(
        timeout_ms=planned.timeout_ms,
        table=planned.table,
        revision=planned.revision,
        query=planned.query,
        where=encoded,
        logical=logical.refilter(planned.logical, condition),
        skips_pruning=planned.skips_pruning,
        prunes_by_functions=planned.prunes_by_functions,
    )


def _plan_for(table: ServedTable, bound: BoundQuery, moment: Moment) -> PlannedQuery:
    options: Mapping[str, str] = dict(bound.options)
    plan = logical.plan(bound)
    return PlannedQuery(
        timeout_ms=query_options.timeout_ms(options, table.spec.limits.timeout_ms),
        table=table.name,
        revision=table.revision,
        query=tree_json.to_json(replace(bound, where=None)),
        where=tree_json.where_to_json(plan.filter),
        logical=plan,
        is_explain=bound.explain,
        is_momentary=moment.was_asked,
        skips_pruning=plan.skips_pruning,
        prunes_by_functions=any(monotone.functions_of(plan.filter)),
    )
