"""Check of trees that come from outside: they must satisfy what binding guarantees.

A server's port takes bytes from anybody who reaches it. `tree_json` gives each field its type; here functions and
aggregates are looked up and checked against the calls that they bind. Code that runs a tree may then rely on
`tree.nodes.Call`, and finds no length, list or depth that a query's text could not have. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from merlot.errors import InvalidInputError
from merlot.functions.registry import BY_NAME, names_that
from merlot.sql import query_options
from merlot.sql.aggregation import check_typed
from merlot.sql.scope import VIRTUAL_COLUMNS
from merlot.tree import limits
from merlot.tree.errors import InvalidPlanError, SqlValidationError
from merlot.tree.nodes import Aggregate, BoundQuery, Call, Column, Expr, Literal
from merlot.tree.types import SqlType
from merlot.values.types import TypeName

_PREDICATES: Final = names_that("is_predicate")
_TEXTS: Final = frozenset({TypeName.STRING, TypeName.JSON})
_LISTS: Final = frozenset({"in", "not_in"})
"""Functions whose arguments after the first are constants, of which there may be many."""
_BROKEN: Final = (InvalidInputError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""Errors that a rule raises for arguments it was not written for."""


def check(query: BoundQuery) -> None:
    """Raise InvalidPlanError for a query that binding would not have made."""
    try:
        _check_clauses(query)
    except _BROKEN as error:
        raise _broken(error) from error


def check_filter(where: Expr | None) -> None:
    """Raise InvalidPlanError for a WHERE that binding would not have made."""
    try:
        if where is not None:
            _Tree().condition(where)
    except _BROKEN as error:
        raise _broken(error) from error


def check_length(num_bytes: int) -> None:
    """Raise InvalidPlanError for an encoded tree that is too long to be read."""
    if num_bytes > limits.MAX_PLAN_BYTES:
        raise InvalidPlanError(f"plan is too long bytes={num_bytes} limit={limits.MAX_PLAN_BYTES}")


def _broken(error: Exception) -> InvalidPlanError:
    reason = str(error) if isinstance(error, InvalidInputError) else type(error).__name__
    return error if isinstance(error, InvalidPlanError) else InvalidPlanError(f"plan is not a query's: {reason:.500}")


def _check_clauses(query: BoundQuery) -> None:
    for name, number in (("limit", query.limit), ("offset", query.offset)):
        if not 0 <= number <= limits.MAX_ROWS:
            raise InvalidPlanError(f"{name} out of range value={number} limit={limits.MAX_ROWS}")
    query_options.check(query.options)
    if not query.select:
        raise InvalidPlanError("plan selects nothing")
    tree = _Tree()
    for output in query.select:
        tree.value(output.expr, allows_aggregates=True)
    for key in query.group_by:
        tree.value(key)
    for order in query.order_by:
        tree.value(order.expr, allows_aggregates=True)
    if query.where is not None:
        tree.condition(query.where)
    if query.having is not None:
        tree.condition(query.having, allows_aggregates=True)


class _Tree:
    """Expressions of one query, counted together."""

    def __init__(self) -> None:
        self._num_nodes = 0

    def condition(self, expr: Expr, *, allows_aggregates: bool = False) -> None:
        """Raise for an expression that is no predicate, or breaks a rule."""
        _require(_is_predicate(expr), "a condition is a predicate")
        self.value(expr, allows_aggregates=allows_aggregates)

    def value(self, expr: Expr, *, allows_aggregates: bool = False, depth: int = 1) -> None:
        """Raise for an expression that breaks a rule."""
        if isinstance(expr, Literal):
            _require(not expr.type.is_array, "a constant is no list")
            return
        if isinstance(expr, Column):
            if expr.name.startswith("$"):
                _require(VIRTUAL_COLUMNS.get(expr.name) == expr, "a virtual column is one that there is")
            return
        if depth > limits.MAX_DEPTH:
            raise InvalidPlanError(f"expression nested deeper than {limits.MAX_DEPTH} levels")
        if isinstance(expr, Aggregate):
            _require(allows_aggregates, "an aggregate stands in SELECT, HAVING or ORDER BY")
            self._aggregate(expr, depth)
            return
        self._count(len(expr.args))
        for arg in expr.args[:1] if expr.function in _LISTS else expr.args:
            self.value(arg, allows_aggregates=allows_aggregates, depth=depth + 1)
        rule = RULES.get(expr.function)
        if rule is None:
            _require(expr.function in BY_NAME, f"a function is one that there is got={expr.function:.100}")
            BY_NAME[expr.function].check(expr)
        else:
            rule(expr)

    def _aggregate(self, aggregate: Aggregate, depth: int) -> None:
        self._count(len(aggregate.args))
        for arg in aggregate.args:
            self.value(arg, depth=depth + 1)
        check_typed(aggregate)
        if aggregate.filter is not None:
            _require(_is_predicate(aggregate.filter), "a filter is a predicate")
            self.value(aggregate.filter, depth=depth + 1)

    def _count(self, num_nodes: int) -> None:
        """Count nodes before they are walked, and raise if there are too many."""
        self._num_nodes += num_nodes
        if self._num_nodes > limits.MAX_NODES:
            raise InvalidPlanError(f"plan has too many expressions limit={limits.MAX_NODES}")


def _require(is_kept: bool, rule: str) -> None:
    if not is_kept:
        raise SqlValidationError(rule)


def _is_predicate(expr: Expr) -> bool:
    """Return whether an expression is TRUE, FALSE or NULL for a row, as a comparison is and a boolean column is not."""
    if not _is_boolean(expr.type):
        return False
    return isinstance(expr, Literal) or (isinstance(expr, Call) and expr.function in _PREDICATES)


def _is_boolean(of: SqlType) -> bool:
    """Return whether a type is BOOLEAN. Comparing field by field takes a third of the time of comparing types, and each
    filter does it some ten times."""
    return of.base is TypeName.BOOLEAN and not of.is_array


def _is_constant(expr: Expr, base: TypeName) -> bool:
    is_value = isinstance(expr, Literal) and expr.value is not None
    return is_value and expr.type.base is base and not expr.type.is_array


def _comparison(call: Call) -> None:
    left, right = call.args
    _require(_is_boolean(call.type) and not isinstance(left, Literal), "a comparison has its constant on the right")
    if isinstance(right, Literal):
        _require(_is_constant(right, left.type.base), "a constant has the type of what it is compared with")
    else:
        _require(left.type == right.type and not left.type.is_array, "a comparison is of one type")


def _between(call: Call) -> None:
    subject, *bounds = call.args
    base = subject.type.base
    is_range = len(bounds) == 2 and _is_constant(bounds[0], base) and _is_constant(bounds[1], base)
    _require(_is_boolean(call.type) and is_range and not isinstance(subject, Literal), "BETWEEN has two constants")


def _membership(call: Call) -> None:
    subject, *candidates = call.args
    if len(candidates) > limits.MAX_IN_VALUES:
        raise InvalidPlanError(f"too many values in IN got={len(candidates)} limit={limits.MAX_IN_VALUES}")
    base = subject.type.base
    are_constants = len(candidates) > 1 and all(_is_constant(candidate, base) for candidate in candidates)
    _require(
        _is_boolean(call.type) and are_constants and not isinstance(subject, Literal), "IN has constants of one type"
    )


def _like(call: Call) -> None:
    subject, pattern = call.args
    is_like = subject.type.base in _TEXTS and _is_constant(pattern, TypeName.STRING)
    _require(_is_boolean(call.type) and is_like, "LIKE has a text and a constant pattern")


def _connective(call: Call) -> None:
    are_predicates = bool(call.args) and all(_is_predicate(arg) for arg in call.args)
    _require(_is_boolean(call.type) and are_predicates, "AND and OR join predicates")


def _negation(call: Call) -> None:
    (arg,) = call.args
    _require(_is_boolean(call.type) and _is_predicate(arg), "NOT is of a predicate")


def _null_test(call: Call) -> None:
    (arg,) = call.args
    _require(_is_boolean(call.type) and not isinstance(arg, Literal), "IS NULL is of no constant")


def _case(call: Call) -> None:
    tests, results = call.args[:-1:2], (*call.args[1:-1:2], call.args[-1])
    _require(len(call.args) % 2 == 1 and bool(tests), "CASE has branches and a rest")
    _require(all(_is_predicate(test) for test in tests), "CASE tests predicates")
    is_one_type = not call.type.is_array and all(result.type == call.type for result in results)
    _require(is_one_type, "CASE has results of one type")


def _cast(call: Call) -> None:
    (arg,) = call.args
    is_known = call.type.base is not TypeName.UNKNOWN
    _require(is_known and not (arg.type.is_array or call.type.is_array), "CAST is of a value, to a type")
    is_bytes = TypeName.BYTES in (arg.type.base, call.type.base)
    _require(not is_bytes or TypeName.STRING in (arg.type.base, call.type.base), "CAST of bytes is to and from text")


RULES: Final[Mapping[str, Callable[[Call], None]]] = {
    **dict.fromkeys(
        ("equals", "not_equals", "less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal"),
        _comparison,
    ),
    "between": _between,
    "in": _membership,
    "not_in": _membership,
    "like": _like,
    "and": _connective,
    "or": _connective,
    "not": _negation,
    "is_null": _null_test,
    "is_not_null": _null_test,
    "case": _case,
    "cast": _cast,
}
"""Rules of functions that SQL does not write as calls, and that therefore have no parameters."""
