"""Order in which the operands of a conjunction are resolved, and the costs of predicates that look into values. Pure.

A predicate that looks into values (LIKE, REGEXP_LIKE, JSON_MATCH, functions of a column) is evaluated once for each
distinct value, unless other operands leave fewer docs than there are values: then it is evaluated for those docs alone.
So predicates that are decided at once are resolved first, the most selective of them before the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from merlot.query.filter.predicates import DocList, SpanMatch
from merlot.segment.index.terms import VALUE_NS
from merlot.tree.nodes import Call, Column, Expr, Literal

FUNCTION_NS: Final = 15.0
"""Cost of applying a function to a value, if the function is not Python code."""
ROW_NS: Final = 50.0
"""Additional cost of a doc whose value is looked up first."""
ROWS_START_NS: Final = 60_000.0
"""Fixed cost of evaluating docs: their list, their values and the results are arrays of their own."""
_VALUE_NS: Final = {"like": 10.0, "regexplike": 60.0, "jsonmatch": VALUE_NS / 2, "textmatch": VALUE_NS / 2}
"""Costs for short texts. Long texts cost up to ten times as much, for which docs are evaluated a little too seldom."""
_INDEXED_NS: Final = {"like": 150.0, "regexplike": 75.0}
"""Costs for texts that get an index of their contents: long texts."""
_PLAIN: Final = frozenset({"equals", "in"})
_RANGES: Final = frozenset({"less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal", "between"})
_COMPLEMENTS_AND_NULL_TESTS: Final = frozenset({"not_equals", "not_in", "is_null", "is_not_null"})
_LOOKS_INTO: Final = 3


def in_order(args: Sequence[Expr]) -> Sequence[Expr]:
    """Return the operands in the order in which they are resolved: as written, if none looks into values."""
    ranks = [_rank(arg) for arg in args]
    if _LOOKS_INTO not in ranks:
        return args
    return [arg for _, arg in sorted(zip(ranks, args, strict=True), key=lambda ranked: ranked[0])]


def _rank(expr: Expr) -> int:
    if isinstance(expr, Call) and expr.args and isinstance(expr.args[0], Column):
        if expr.function in _PLAIN:
            return 0
        if expr.function in _RANGES or expr.function in _COMPLEMENTS_AND_NULL_TESTS:
            return 1
    if isinstance(expr, Call) and expr.function in ("and", "or", "not"):
        return max(2, *map(_rank, expr.args))
    return 2 if isinstance(expr, Literal | Column) else _LOOKS_INTO


def looks_into_values(call: Call) -> bool:
    """Return whether a predicate looks into values, which costs more than comparing ids."""
    return _rank(call) == _LOOKS_INTO


def values_ns(call: Call, num_values: int) -> float:
    """Return the cost in ns of evaluating a predicate for `num_values` values."""
    return num_values * _VALUE_NS.get(call.function, FUNCTION_NS)


def indexed_values_ns(call: Call, num_values: int) -> float:
    """Return the cost in ns of evaluating a predicate for `num_values` values that also have an index."""
    return num_values * _INDEXED_NS.get(call.function, VALUE_NS)


def rows_ns(call: Call, num_docs: float) -> float:
    """Return the cost in ns of evaluating a predicate for the values of `num_docs` docs."""
    return ROWS_START_NS + num_docs * (_VALUE_NS.get(call.function, FUNCTION_NS) + ROW_NS)


def docs_worth(call: Call, num_values: int) -> int:
    """Return the number of docs that can be evaluated in the time of `num_values` values."""
    room_ns = values_ns(call, num_values) - ROWS_START_NS
    return int(room_ns / (_VALUE_NS.get(call.function, FUNCTION_NS) + ROW_NS))


def docs_left(node: object, num_docs: int) -> int:
    """Return an upper bound of the docs that a node keeps, as far as it is certain before the filter runs."""
    if isinstance(node, DocList) and not node.negate:
        return len(node.docs)
    if isinstance(node, SpanMatch):
        return sum(last - first for first, last in node.spans)
    return num_docs
