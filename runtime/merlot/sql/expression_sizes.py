"""Limit the size of an expression whose operands are repeated: `COALESCE(a, b)` has `a` twice, in a test and as result.

An operand that is repeated is one object, but hashing, comparing and encoding walk it each time. Nested forms double
with each level. Pure; of one binder.
"""

from __future__ import annotations

from typing import Final

from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Aggregate, Column, Expr, Literal

MAX_NODES: Final = 100_000
"""Most columns and calls of an expression, repeated ones included: several times those of the longest AND."""


class ExprSizes:
    """Numbers of columns and calls of the expressions that a binder made."""

    def __init__(self) -> None:
        self._sizes: dict[int, tuple[Expr, int]] = {}
        """Sizes by `id`, with the expression, so that no other expression gets its id."""

    def check(self, expr: Expr, times: int = 1) -> None:
        """Raise SqlValidationError if an expression is too large to stand in a query `times` times."""
        if self._size(expr) * times > MAX_NODES:
            problem = "expression repeats its operands too often, nest fewer CASE, COALESCE, NULLIF or IS DISTINCT FROM"
            raise SqlValidationError(f"{problem} limit={MAX_NODES}")

    def _size(self, expr: Expr) -> int:
        if isinstance(expr, Literal | Column):
            return 1 if isinstance(expr, Column) else 0
        sized = self._sizes.get(id(expr))
        if sized is not None:
            return sized[1]
        size = 1 + sum(self._size(arg) for arg in expr.args if not isinstance(arg, Literal))
        if isinstance(expr, Aggregate) and expr.filter is not None:
            size += self._size(expr.filter)
        self._sizes[id(expr)] = expr, size
        return size
