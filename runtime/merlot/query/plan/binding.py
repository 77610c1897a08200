"""Binding with constant folding by the code that computes columns, over one row: `sql` itself knows no engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from merlot.functions.evaluate import evaluate
from merlot.functions.instants import Moment
from merlot.query.slots import SlotSource
from merlot.security.access import WHOLE_TABLE, AccessView
from merlot.spec.schema import TableSchema
from merlot.sql import bind as sql_bind
from merlot.sql.budget import Budget
from merlot.sql.parse import ParsedQuery
from merlot.sql.views import BindContext
from merlot.tree.nodes import BoundQuery, Call, Expr, Literal, Value
from merlot.vectors import account
from merlot.vectors.errors import LimitExceededError, QueryArithmeticError
from merlot.vectors.vector import Vector

FOLD_BYTES: Final = 1 << 20
"""Memory that folding a constant may take."""
FOLD_LETTERS: Final = 4_096
"""Letters and bytes of the arguments of a constant call that is folded while a query is bound: a pattern and a text of
10,000 take a second."""


def bind(
    parsed: ParsedQuery,
    schema: TableSchema | None,
    options: Mapping[str, str] | None = None,
    moment: Moment | None = None,
    budget: Budget | None = None,
    view: AccessView = WHOLE_TABLE,
) -> BoundQuery:
    """Bind a query by `sql.bind.bind`, with constants folded."""
    context = BindContext(folding(budget), moment, budget)
    return sql_bind.bind(parsed, schema, options, context=context, view=view)


def folding(budget: Budget | None) -> Callable[[Call], Expr]:
    """Return `fold` within a budget."""
    return partial(fold, check=None if budget is None else budget.look)


def fold(call: Call, check: Callable[[], None] | None = None) -> Expr:
    """Return the value of a call whose arguments are all constants. Return the call itself if it fails, is a list,
    takes more than `FOLD_BYTES` or has more than `FOLD_LETTERS`: other queries wait while a query is planned, and plans
    are kept.

    `check` raises at the deadline. A call that fails stays a call: it fails the query if a row needs it, as it would
    with a column in it."""
    constants = [arg for arg in call.args if isinstance(arg, Literal)]
    if call.type.is_array or len(constants) < len(call.args) or _letters(constants) > FOLD_LETTERS:
        return call
    try:
        with account.Working(FOLD_BYTES, check):
            return Literal(_value(evaluate(call, _ONE_ROW).spread(1).with_objects()), call.type)
    except (QueryArithmeticError, LimitExceededError):
        return call


def _letters(constants: Sequence[Literal]) -> int:
    return sum(len(constant.value) for constant in constants if isinstance(constant.value, str | bytes))


def _value(vector: Vector) -> Value:
    if vector.nulls is not None and vector.nulls[0]:
        return None
    value: Value = vector.data.tolist()[0] if hasattr(vector.data, "tolist") else vector.data[0].as_py()
    # One NaN: expressions are compared, and no NaN equals another.
    return math.nan if isinstance(value, float) and math.isnan(value) else value


_ONE_ROW = SlotSource({}, 1)
