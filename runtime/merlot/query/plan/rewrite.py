"""Filters made simpler without changing what they keep: a tuple of functions, expression in, expression out.

NOT is pushed through AND and OR to the predicates, which is sound in three-valued logic too; it is not pushed *into* a
predicate, because on a multi-value column NOT(p) is the complement of the docs that p keeps.
"""

from __future__ import annotations

from dataclasses import replace as copy_with

from merlot.tree.nodes import FALSE, TRUE, BoundQuery, Call, Expr, Literal
from merlot.tree.types import BOOLEAN


def rewrite(query: BoundQuery) -> BoundQuery:
    """Apply all rules to WHERE."""
    return copy_with(query, where=rewritten(query.where))


def rewritten(where: Expr | None) -> Expr | None:
    """A filter that keeps the same rows; None keeps all."""
    for rule in RULES:
        if where is not None:
            where = rule(where)
    return None if where == TRUE else where


def push_not_down(expr: Expr) -> Expr:
    """De Morgan: NOT stands only on predicates."""
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
    """(a AND (b AND c)) is one AND of three; constants decide or leave."""
    if not (isinstance(expr, Call) and expr.function in ("and", "or")):
        return FALSE if isinstance(expr, Literal) and expr.value is None else expr
    neutral, absorbing = (TRUE, FALSE) if expr.function == "and" else (FALSE, TRUE)
    kept: dict[Expr, None] = {}
    for arg in map(flatten, expr.args):
        if arg == absorbing:
            return absorbing
        if isinstance(arg, Call) and arg.function == expr.function:
            kept.update(dict.fromkeys(arg.args))
        elif arg != neutral:
            kept[arg] = None
    if len(kept) <= 1:
        return next(iter(kept), neutral)
    return Call(expr.function, tuple(kept), BOOLEAN)


def merge_equalities(expr: Expr) -> Expr:
    """a = 1 OR a = 2 OR a IN (3, 4) is a IN (1, 2, 3, 4)."""
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


def _are_literals(args: tuple[Expr, ...]) -> bool:
    return all(isinstance(arg, Literal) for arg in args)


RULES = (push_not_down, flatten, merge_equalities)
