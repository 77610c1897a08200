"""Decide whether the last step of a query runs on the event loop or in a thread, and stop threads of queries that are
given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar

from merlot.clock import Clock
from merlot.query.answer.partial import Partial
from merlot.query.context import CancelToken
from merlot.query.plan.expressions import walk
from merlot.query.plan.nodes import Finish, Reduce
from merlot.tree.nodes import Call
from merlot.values.types import TypeName
from merlot.vectors.vector import TEXT

P = ParamSpec("P")
R = TypeVar("R")
MIN_COLUMNS: Final = 10
"""Fewest columns that a row counts for: a narrow row costs as much as this many values."""
VALUE_BYTES: Final = 8
"""Bytes of a value of fixed width: partial answers of the event loop may have as many bytes for each of its values."""
LEAST_REDUCE_S: Final = 1.0
"""Least time of the last step of a query whose servers took all of its time."""
_LONG: Final = TEXT | {TypeName.BIG_DECIMAL}
"""Types whose values may be of any length."""


def is_quick(tree: Reduce, partials: Sequence[Partial], inline_values: int) -> bool:
    """Return True if the partial answers are so small, and the functions of them so simple, that the event loop may
    reduce them."""
    finish = tree.finish
    num_values = sum([partial.num_rows for partial in partials]) * max(len(finish.outputs), MIN_COLUMNS)
    if num_values > inline_values or finish.memo.cached(_computes_texts, finish):
        return False
    return sum([partial.nbytes for partial in partials]) <= VALUE_BYTES * inline_values


def _computes_texts(finish: Finish) -> bool:
    """Return True if a function reads or makes values of any length."""
    exprs = [output.expr for output in finish.outputs] + [key.expr for key in finish.order_by]
    if finish.having is not None:
        exprs.append(finish.having)
    return any(isinstance(node, Call) and _has_texts(node) for expr in exprs for node in walk(expr))


def _has_texts(call: Call) -> bool:
    types = [call.type, *(arg.type for arg in call.args)]
    return any(type_.base in _LONG or type_.is_array for type_ in types)


def last_step(deadline: float, clock: Clock | None = None) -> CancelToken:
    """Return the signal that ends the last step of a query. `deadline` is in the event loop's time."""
    return CancelToken.after(max(LEAST_REDUCE_S, deadline - asyncio.get_running_loop().time()), clock)


async def in_thread(cancel: CancelToken, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what `work` returns in a thread. `cancel` is cancelled if the caller is, so that the thread stops too."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except asyncio.CancelledError:
        cancel.cancel()
        raise
