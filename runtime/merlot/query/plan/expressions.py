"""Walks over expression trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal, Value


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct operands, without an aggregate's filter."""
    return expr.args if isinstance(expr, Call | Aggregate) else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the expression and everything below it, each before what is below it. Constant operands are skipped: an IN
    may have a hundred thousand of them. So are filters of aggregates."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(child for child in reversed(children(node)) if not isinstance(child, Literal))


def columns_of(expr: Expr) -> frozenset[str]:
    """Return the names of the columns that an expression reads."""
    # Called some ten times a query: without generators it takes a third of the time.
    names: list[str] = []
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, Column):
            names.append(node.name)
        elif not isinstance(node, Literal):
            pending += [arg for arg in node.args if not isinstance(arg, Literal)]
    return frozenset(names)


def shared_by(exprs: Iterable[Expr]) -> frozenset[Expr]:
    """Return the columns and calls that occur more than once. An operand of such a call counts only if it occurs
    elsewhere too."""
    seen, shared = set[Expr](), set[Expr]()
    pending = list(exprs)
    while pending:
        node = pending.pop()
        if isinstance(node, Literal):
            continue
        if node in seen:
            shared.add(node)
            continue
        seen.add(node)
        pending += children(node)
    return frozenset(shared)


def has_aggregate(expr: Expr) -> bool:
    """Return whether an aggregate is in the expression."""
    return any(isinstance(node, Aggregate) for node in walk(expr))


def replace(expr: Expr, substitute: Callable[[Expr], Expr | None]) -> Expr:
    """Return a copy in which `substitute` replaces nodes, from the top down. If it returns an expression for a node,
    this replaces the node and all below it. Aggregates that it does not replace stay as they are, operands included."""
    replacement = substitute(expr)
    if replacement is not None:
        return replacement
    if isinstance(expr, Call):
        args = tuple(replace(arg, substitute) for arg in expr.args)
        return expr if args == expr.args else Call(expr.function, args, expr.type)
    return expr


def literal_values(args: tuple[Expr, ...]) -> list[Value]:
    """Return the values of arguments that are all literals."""
    return [arg.value for arg in cast("tuple[Literal, ...]", args)]
