"""Replacement of columns by expressions that keeps what binding guarantees of calls. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from merlot.errors import InvalidInputError
from merlot.functions.registry import BY_NAME, names_that
from merlot.query.plan.binding import fold
from merlot.query.plan.validity import RULES
from merlot.query.stages.null_bits import NULL_TESTS
from merlot.sql.predicates import FLIPPED
from merlot.tree.nodes import TRUE, Aggregate, Call, Column, Expr, Literal
from merlot.tree.types import BOOLEAN

MAX_NODES = 1_000
"""Most nodes of all expressions that a rule makes at once: `a + a` of `a + a` of … doubles with each subquery."""
MAX_LEVELS = 100
"""Most levels of an expression in which a rule replaces a column by a call: as many as a text may have. Servers take
some more, for the conversions that binding adds."""
_BROKEN = (InvalidInputError, LookupError, TypeError, ValueError, ArithmeticError)
"""Errors that a rule of calls raises for arguments it was not written for."""
_PREDICATES = names_that("is_predicate")
OF_FIRST: Final = frozenset({"in", "not_in", "between"})
"""Tests that are NULL if their first operand is. NULL among the others may leave them true or false."""


class UnsoundError(Exception):
    """Raised for an expression that binding would not make."""


class Replacing:
    """Replacement of columns by expressions, by their names. Raises UnsoundError."""

    def __init__(self, columns: Mapping[str, Expr], keys: Iterable[Expr] = ()) -> None:
        """keys: keys of the groups that the replaced expressions are over; NOT of such a key stays a NOT."""
        self._columns = columns
        self._keys = frozenset(keys)
        self._are_columns = all(isinstance(expr, Column) for expr in columns.values())
        self._sizes = {name: size_of(expr) for name, expr in columns.items()}
        self._depths = {name: _depth_of(expr) for name, expr in columns.items()}
        self._num_nodes = 0
        self._level = 0
        """Calls around the expression that is being replaced."""

    def __call__(self, expr: Expr) -> Expr:
        """Return the expression with its columns replaced."""
        if isinstance(expr, Column):
            self._num_nodes += self._sizes.get(expr.name, 1) - 1
            depth = self._depths.get(expr.name, 0)
            if self._num_nodes > MAX_NODES or (depth and self._level + depth > MAX_LEVELS):
                raise UnsoundError
            return self._columns.get(expr.name, expr)
        if isinstance(expr, Literal):
            return expr
        self._level += 1
        args = tuple(map(self, expr.args))
        condition = expr.filter if isinstance(expr, Aggregate) else None
        replaced = None if condition is None else self(condition)
        self._level -= 1
        if all(a is b for a, b in zip(args, expr.args, strict=True)) and replaced is condition:
            return expr
        if isinstance(expr, Aggregate):
            return replace(expr, args=args, filter=replaced)
        call = replace(expr, args=args)
        if self._are_columns:
            return call
        made = _simplified(call, self._keys)
        _check(made)
        return made


def size_of(expr: Expr) -> int:
    """Count the nodes of an expression."""
    if isinstance(expr, Call | Aggregate):
        return 1 + sum(map(size_of, expr.args))
    return 1


def _depth_of(expr: Expr) -> int:
    """Count the levels of calls of an expression."""
    if isinstance(expr, Call | Aggregate):
        return 1 + max(map(_depth_of, expr.args), default=0)
    return 0


def is_strict(expr: Expr) -> bool:
    """Return whether an expression is NULL where all of its columns are, as in a row that an outer join makes up."""
    if isinstance(expr, Column):
        return True
    if not isinstance(expr, Call):
        return False
    if expr.function in OF_FIRST:
        return is_strict(expr.args[0])
    function = BY_NAME.get(expr.function)
    if function is None or function.lazy is not None or function.sees_nulls:
        return False
    return any(map(is_strict, expr.args))


def is_null_bit(expr: Expr) -> bool:
    """Return whether an expression is `coalesce(bit, TRUE)`, as `null_bits.null_test` writes it: in a row that a join
    makes up, the bit is NULL."""
    return isinstance(expr, Call) and expr.function == "coalesce" and expr.args[1:] == (TRUE,)


def _simplified(call: Call, keys: frozenset[Expr]) -> Expr:
    name, args = call.function, call.args
    if is_null_bit(call) and (is_null_bit(args[0]) or _is_null_test(args[0])):
        return args[0]
    if name == "not" and isinstance(args[0], Call) and _is_null_test(args[0]) and args[0] not in keys:
        opposite = "is_not_null" if args[0].function == "is_null" else "is_null"
        return replace(args[0], function=opposite)
    if name in NULL_TESTS and isinstance(args[0], Literal):
        return Literal((args[0].value is None) == (name == "is_null"), BOOLEAN)
    if name in ("equals", "not_equals") and args[1] == TRUE and _is_predicate(args[0]):
        return args[0] if name == "equals" else _simplified(Call("not", args[:1], BOOLEAN), keys)
    if is_null_bit(call) and isinstance(args[0], Literal):
        return TRUE if args[0].value is None else args[0]
    if name in BY_NAME and BY_NAME[name].rewrite is None and all(isinstance(arg, Literal) for arg in args):
        return fold(call)
    if name in FLIPPED and isinstance(args[0], Literal) and not args[1].type.is_array:
        return Call(FLIPPED[name], (args[1], args[0]), BOOLEAN)
    return call


def _is_null_test(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.function in NULL_TESTS


def _is_predicate(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.function in _PREDICATES


def _check(expr: Expr) -> None:
    """Raise UnsoundError for a call that servers would refuse."""
    if not isinstance(expr, Call) or (expr.function not in RULES and expr.function not in BY_NAME):
        return
    try:
        if expr.function in RULES:
            RULES[expr.function](expr)
        else:
            BY_NAME[expr.function].check(expr)
    except _BROKEN as error:
        raise UnsoundError from error
