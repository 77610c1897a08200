"""In which order the operands of a conjunction are resolved, and what looking into values costs. Pure.

A predicate that looks into values (LIKE, REGEXP_LIKE, JSON_MATCH, functions of a column) is decided for each distinct
value once, unless other operands leave fewer docs than there are values: then it looks at those docs alone. What is
known at once is resolved first, and first of that what is likely to leave least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from merlot.query.filter.predicates import DocList, SpanMatch
from merlot.segment.index.terms import VALUE_NS
from merlot.tree.nodes import Call, Column, Expr, Literal

FUNCTION_NS: Final = 15.0
"""Of a value that a function is applied to, where no Python does."""
ROW_NS: Final = 50.0
"""More for a doc whose value is looked up first."""
ROWS_START_NS: Final = 60_000.0
"""Of looking at docs: their list, their values and their verdicts are arrays of their own."""
_VALUE_NS: Final = {"like": 10.0, "regexplike": 60.0, "jsonmatch": VALUE_NS / 2, "textmatch": VALUE_NS / 2}
"""Of short texts: of long ones up to ten times that, for which docs are looked at a little too seldom."""
_INDEXED_NS: Final = {"like": 150.0, "regexplike": 75.0}
"""Of such texts as are given an index of what is in them: long ones."""
_PLAIN: Final = frozenset({"equals", "in"})
_RANGES: Final = frozenset({"less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal", "between"})
_KNOWN: Final = frozenset({"not_equals", "not_in", "is_null", "is_not_null"})
_LOOKS_INTO: Final = 3


def in_order(args: Sequence[Expr]) -> Sequence[Expr]:
    """Operands as they are resolved: all as they are written, if none looks into values."""
    ranks = [_rank(arg) for arg in args]
    if _LOOKS_INTO not in ranks:
        return args
    return [arg for _, arg in sorted(zip(ranks, args, strict=True), key=lambda ranked: ranked[0])]


def _rank(expr: Expr) -> int:
    if isinstance(expr, Call) and expr.args and isinstance(expr.args[0], Column):
        if expr.function in _PLAIN:
            return 0
        if expr.function in _RANGES or expr.function in _KNOWN:
            return 1
    if isinstance(expr, Call) and expr.function in ("and", "or", "not"):
        return max(2, *map(_rank, expr.args))
    return 2 if isinstance(expr, Literal | Column) else _LOOKS_INTO


def looks_into_values(call: Call) -> bool:
    """Whether each value costs more to look at than an id to compare."""
    return _rank(call) == _LOOKS_INTO


def values_ns(call: Call, num_values: int) -> float:
    """Of a look into so many values."""
    return num_values * _VALUE_NS.get(call.function, FUNCTION_NS)


def indexed_values_ns(call: Call, num_values: int) -> float:
    """Of a look into so many values that are indexed as well."""
    return num_values * _INDEXED_NS.get(call.function, VALUE_NS)


def rows_ns(call: Call, num_docs: float) -> float:
    """Of a look into the values of so many docs."""
    return ROWS_START_NS + num_docs * (_VALUE_NS.get(call.function, FUNCTION_NS) + ROW_NS)


def docs_worth(call: Call, num_values: int) -> int:
    """How many docs may be looked at in less time than so many values."""
    room_ns = values_ns(call, num_values) - ROWS_START_NS
    return int(room_ns / (_VALUE_NS.get(call.function, FUNCTION_NS) + ROW_NS))


def docs_left(node: object, num_docs: int) -> int:
    """At most, of docs that a node keeps: as many as it is certain to leave before others are looked at."""
    if isinstance(node, DocList) and not node.negate:
        return len(node.docs)
    if isinstance(node, SpanMatch):
        return sum(last - first for first, last in node.spans)
    return num_docs
