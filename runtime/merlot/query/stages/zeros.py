"""Signs of zeros: a group of zeros is shown as 0.0. To the engine -0.0 and 0.0 are equal, and it returns either.
Pure.
"""

from __future__ import annotations

from dataclasses import replace

from merlot.query.plan.expressions import replace as rewrite_expr
from merlot.query.stages.rewriting import is_grouped, map_block
from merlot.tree.nodes import Aggregate, Call, Expr, Literal
from merlot.tree.relations import Block, Subquery, is_correlated
from merlot.tree.types import DOUBLE, FLOAT

UNSIGNED_ZERO = "unsigned zero"
"""Function that makes 0.0 of -0.0, in the engine alone."""


def with_one_zero(block: Block) -> Block:
    """Return a SELECT whose keys, of groups or of distinct rows, are 0.0 where they are zero."""
    keys = block.group_by
    if not is_grouped(block) and block.is_distinct:
        keys = tuple(output.expr for output in block.outputs)
    floats = frozenset(key for key in keys if key.type in (FLOAT, DOUBLE) and not isinstance(key, Literal))
    slots = block.slots.values()
    if not floats or any(isinstance(slot, Subquery) and is_correlated(slot.query) for slot in slots):
        return block

    def unsigned(expr: Expr) -> Expr | None:
        if isinstance(expr, Aggregate):
            return expr
        return Call(UNSIGNED_ZERO, (expr,), expr.type) if expr in floats else None

    return replace(map_block(block, lambda expr: rewrite_expr(expr, unsigned)), where=block.where)
