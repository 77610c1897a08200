"""What an expression over constants answers, worked out as queries work it out."""

from __future__ import annotations

from typing import Any

from merlot.functions.evaluate import evaluate
from merlot.functions.instants import Moment
from merlot.query.answer.result import pinot_values
from merlot.query.plan.binding import bind
from merlot.query.slots import SlotSource
from merlot.sql.parse import parse

NOW_MS = 1_750_000_000_000


def value_of(sql: str) -> Any:
    """The JSON value of `SELECT <sql>`."""
    expr = bind(parse(f"SELECT {sql}"), None, {}, Moment(NOW_MS)).select[0].expr
    return pinot_values(expr.type, evaluate(expr, SlotSource({}, 1)).to_arrow(1))[0]
