"""Tables of the tests of this folder: queries go from SQL to rows without a process in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from merlot.query.answer.partial import Partial
from merlot.query.answer.reduce import reduce
from merlot.query.answer.result import to_pinot_rows
from merlot.query.context import ExecutionContext
from merlot.query.execute import execute
from merlot.query.explain import explain
from merlot.query.plan.binding import bind
from merlot.query.plan.make import plan
from merlot.segment.reader import Segment
from merlot.spec.schema import TableSchema
from merlot.sql.parse import parse


@dataclass
class Table:
    """Segments of one table under one schema."""

    schema: TableSchema
    segments: Sequence[Segment]
    context: ExecutionContext

    def partial(self, sql: str, **options: str) -> Partial:
        return execute(plan(bind(parse(sql), self.schema, options)).leaf, self.segments, self.context)

    def query(self, sql: str, **options: str) -> list[list[Any]]:
        logical = plan(bind(parse(sql), self.schema, options))
        return to_pinot_rows(reduce(logical, [execute(logical.leaf, self.segments, self.context)], self.schema))

    def plans(self, sql: str, **options: str) -> list[str]:
        """Return the lines of EXPLAIN of a leaf."""
        leaf = plan(bind(parse(sql), self.schema, options)).leaf
        return [row["plan"] for row in explain(leaf, self.segments, self.context) if "plan" in row]
