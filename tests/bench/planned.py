"""Texts to plans as a broker makes them, without its memory of whole texts: no text is known, however often it comes.

A shape of query that came before is filled with its constants (`sql.shapes`); any other text is parsed, bound, planned.
"""

from __future__ import annotations

from functools import lru_cache

from merlot.broker.planning.planner import INLINE_SQL_CHARS, Planner
from merlot.broker.routing.routes import RoutingInputs, build
from merlot.broker.tables import ServedTable
from merlot.clock import SystemClock
from merlot.cluster.records import RootRecord
from merlot.cluster.segments.view import TableView
from merlot.ids import TableName
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.query.plan.nodes import Reduce
from merlot.spec.schema import TableSchema
from merlot.spec.table import TableSpec
from merlot.sql.parse import parse


class TextPlans:
    """Plans over one table, whatever texts call it."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._spec = TableSpec(schema=schema)
        self._planner = Planner(self._table, SystemClock(), max_plans=0)

    @lru_cache(maxsize=8)  # noqa: B019 (lives as long as the benchmark)
    def _table(self, name: str) -> ServedTable:
        known_as = TableName(name if name.endswith("_OFFLINE") else f"{name}_OFFLINE")
        view = TableView(known_as, RootRecord(), 1, {})
        snapshot = build(RoutingInputs(view=view, reports={}, standings={}, now_ms=0))
        return ServedTable(known_as, 1, self._spec, snapshot)

    def plan(self, sql: str) -> Reduce:
        """The plan of a query of one stage."""
        if len(sql) > INLINE_SQL_CHARS:
            # A broker has a thread do it, which an event loop waits for.
            return plan(bind(parse(sql), self._schema, {}))
        planning = self._planner.plan(sql, "")
        try:
            planning.send(None)
        except StopIteration as planned:
            tree = planned.value.tree
            assert isinstance(tree, Reduce)
            return tree
        raise AssertionError("planned on the event loop, a short text makes nobody wait")
