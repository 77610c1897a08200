"""Join the filter of the rows that an identity sees to a leaf's filter. Pure.

A row filter holds in three-valued logic. A leaf without null handling reads default values instead of nulls, so each of
its predicates is joined to a test that the columns are not null: a default value lets nobody see a row.
"""

from __future__ import annotations

from typing import Final

from merlot.query.plan.expressions import walk
from merlot.query.plan.rewrite import push_not_down
from merlot.sql.boolean_logic import conjunction, disjunction
from merlot.tree.nodes import FALSE, TRUE, Call, Column, Expr, Literal
from merlot.tree.types import BOOLEAN

_NULL_TESTS: Final = frozenset({"is_null", "is_not_null"})
_REPLACING_NULLS: Final = frozenset({*_NULL_TESTS, "coalesce"})
"""Functions whose own column arguments may be null in a row that is seen."""


def of_leaf(row_filter: Expr, *, null_handling: bool) -> Expr:
    """Return a row filter as leaves with or without null handling evaluate it."""
    return row_filter if null_handling else _without_defaults(push_not_down(row_filter))


def joined(row_filter: Expr, where: Expr | None) -> Expr | None:
    """Return the filter of the rows that pass both; None if every row does."""
    both = row_filter if where is None else conjunction([row_filter, where])
    return None if both == TRUE else both


def _without_defaults(expr: Expr) -> Expr:
    """Return a filter that is TRUE only for rows whose verdict does not rest on a default value."""
    if isinstance(expr, Literal):
        return expr if expr.value is not None else FALSE
    if isinstance(expr, Call) and expr.function in ("and", "or"):
        parts = [_without_defaults(arg) for arg in expr.args]
        return conjunction(parts) if expr.function == "and" else disjunction(parts)
    replacing = [node for node in walk(expr) if isinstance(node, Call) and node.function in _REPLACING_NULLS]
    replaced = {arg for node in replacing for arg in node.args}
    columns = dict.fromkeys(node for node in walk(expr) if isinstance(node, Column) and node not in replaced)
    return conjunction([expr, *(Call("is_not_null", (column,), BOOLEAN) for column in columns)])
