"""Simplification of filters that keeps their meaning: a tuple of functions from an expression to an expression.

NOT is pushed through AND and OR to the predicates, which is sound in three-valued logic too; it is not pushed *into* a
predicate, because on a multi-value column NOT(p) is the complement of the docs that p keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as copy_with

from merlot.tree.nodes import FALSE, TRUE, BoundQuery, Call, Expr, Literal
from merlot.tree.types import BOOLEAN, STRING, SqlType
from merlot.values.types import TypeName


def rewrite(query: BoundQuery) -> BoundQuery:
    """Apply all rules to WHERE."""
    return copy_with(query, where=rewritten(query.where))


def rewritten(where: Expr | None) -> Expr | None:
    """Return a filter that keeps the same rows; None if it keeps all."""
    for rule in RULES:
        if where is not None:
            where = rule(where)
    return None if where == TRUE else where


def push_not_down(expr: Expr) -> Expr:
    """Apply De Morgan's laws, so that NOT stands only on predicates."""
    if not isinstance(expr, Call):
        return expr
    if expr.function in ("and", "or"):
        return Call(expr.function, tuple(push_not_down(arg) for arg in expr.args), BOOLEAN)
    if expr.function != "not":
        return expr
    inner = expr.args[0]
    if isinstance(inner, Literal):
        return inner if inner.value is None else (FALSE if inner.value else TRUE)
    if isinstance(inner, Call) and inner.function == "not":
        return push_not_down(inner.args[0])
    if isinstance(inner, Call) and inner.function in ("and", "or"):
        opposite = "or" if inner.function == "and" else "and"
        return Call(opposite, tuple(push_not_down(Call("not", (arg,), BOOLEAN)) for arg in inner.args), BOOLEAN)
    return expr


def flatten(expr: Expr) -> Expr:
    """Flatten (a AND (b AND c)) into one AND of three. Constants decide the result or are dropped."""
    if not (isinstance(expr, Call) and expr.function in ("and", "or")):
        return FALSE if isinstance(expr, Literal) and expr.value is None else expr
    neutral, absorbing = (TRUE, FALSE) if expr.function == "and" else (FALSE, TRUE)
    operands: dict[Expr, None] = {}
    for arg in map(flatten, expr.args):
        if arg == absorbing:
            return absorbing
        if isinstance(arg, Call) and arg.function == expr.function:
            operands.update(dict.fromkeys(arg.args))
        elif arg != neutral:
            operands[arg] = None
    if len(operands) <= 1:
        return next(iter(operands), neutral)
    return Call(expr.function, tuple(operands), BOOLEAN)


def merge_equalities(expr: Expr) -> Expr:
    """Merge a = 1 OR a = 2 OR a IN (3, 4) into a IN (1, 2, 3, 4)."""
    if not (isinstance(expr, Call) and expr.function in ("and", "or")):
        return expr
    args = tuple(merge_equalities(arg) for arg in expr.args)
    if expr.function == "and":
        return Call("and", args, BOOLEAN)
    wanted: dict[Expr, dict[Expr, None]] = {}
    rest: list[Expr] = []
    for arg in args:
        if isinstance(arg, Call) and arg.function in ("equals", "in") and _are_literals(arg.args[1:]):
            wanted.setdefault(arg.args[0], {}).update(dict.fromkeys(arg.args[1:]))
        else:
            rest.append(arg)
    for operand, values in wanted.items():
        rest.append(Call("equals" if len(values) == 1 else "in", (operand, *values), BOOLEAN))
    return rest[0] if len(rest) == 1 else Call("or", tuple(rest), BOOLEAN)


def merge_bounds(expr: Expr) -> Expr:
    """Merge a >= 1 AND a < 9 into a BETWEEN 1 AND 8, for whole numbers, and for texts if both bounds are inclusive: the
    column is read once, and an index may know the range. A list is left alone: each bound may be met by another of its
    values."""
    if not (isinstance(expr, Call) and expr.function in ("and", "or")):
        return expr
    args = tuple(merge_bounds(arg) for arg in expr.args)
    if expr.function == "or":
        return flatten(Call("or", args, BOOLEAN))
    bounds: dict[Expr, list[Call]] = {}
    for arg in args:
        if isinstance(arg, Call) and _is_bound(arg):
            bounds.setdefault(arg.args[0], []).append(arg)
    pairs = {subject: _between(subject, some) for subject, some in bounds.items()}
    merged = (pairs.get(arg.args[0]) if isinstance(arg, Call) and _is_bound(arg) else None for arg in args)
    operands = dict.fromkeys(arg if pair is None else pair for arg, pair in zip(args, merged, strict=True))
    return flatten(Call("and", tuple(operands), BOOLEAN))


def _is_bound(call: Call) -> bool:
    if call.function not in _LOWER and call.function not in _UPPER:
        return False
    subject, bound = call.args
    if not isinstance(bound, Literal):
        return False
    if isinstance(bound.value, str):
        return subject.type == STRING and call.function in _INCLUSIVE
    return isinstance(bound.value, int) and subject.type in _WHOLE


def _between(subject: Expr, bounds: list[Call]) -> Expr | None:
    """Return the range between one lower and one upper bound; None if there is not exactly one of each."""
    lower = [call for call in bounds if call.function in _LOWER]
    upper = [call for call in bounds if call.function in _UPPER]
    if len(lower) != 1 or len(upper) != 1:
        return None
    low, high = _moved(lower[0], _LOWER), _moved(upper[0], _UPPER)
    return FALSE if low.value > high.value else Call("between", (subject, low, high), BOOLEAN)  # type: ignore[operator]


def _moved(call: Call, deltas: Mapping[str, int]) -> Literal:
    bound = call.args[1]
    assert isinstance(bound, Literal)
    if isinstance(bound.value, str):
        return bound
    assert isinstance(bound.value, int)
    return Literal(bound.value + deltas[call.function], bound.type)


def _are_literals(args: tuple[Expr, ...]) -> bool:
    return all(isinstance(arg, Literal) for arg in args)


_LOWER = {"greater_than": 1, "greater_than_or_equal": 0}
_UPPER = {"less_than": -1, "less_than_or_equal": 0}
"""Distance by which a bound is moved to become inclusive."""
_INCLUSIVE = frozenset({"greater_than_or_equal", "less_than_or_equal"})
_WHOLE = frozenset({SqlType(TypeName.INT), SqlType(TypeName.LONG), SqlType(TypeName.TIMESTAMP)})
RULES = (push_not_down, flatten, merge_equalities, merge_bounds)
