"""Combine bound predicates by AND, OR and NOT; flatten them and fold constants away.

This is valid in three-valued logic too: only FALSE decides an AND and only TRUE decides an OR; NULL stays.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Final

from merlot.functions import registry
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import FALSE, TRUE, Call, Expr, Literal
from merlot.tree.types import BOOLEAN

_PREDICATES: Final = registry.names_that("is_predicate")


def conjunction(args: Iterable[Expr]) -> Expr:
    """Combine predicates by AND. Nested ANDs are flattened, and repeated predicates are kept once."""
    return _combine("and", args, neutral=TRUE, absorbing=FALSE)


def disjunction(args: Iterable[Expr]) -> Expr:
    """Combine predicates by OR. Nested ORs are flattened, and repeated predicates are kept once."""
    return _combine("or", args, neutral=FALSE, absorbing=TRUE)


def _merge_memberships(args: Iterable[Expr], single: str, several: str) -> list[Expr]:
    """Merge `a = 1 OR a IN (2, 3)` into one IN, and likewise `<>` and NOT IN under AND. On multi-value columns the
    result is the same too."""
    merged: list[Expr | dict[Expr, None]] = []
    subjects: dict[Expr, dict[Expr, None]] = {}
    for arg in args:
        if not (isinstance(arg, Call) and arg.function in (single, several) and isinstance(arg.args[1], Literal)):
            merged.append(arg)
            continue
        values = subjects.get(arg.args[0])
        if values is None:
            values = subjects[arg.args[0]] = {}
            merged.append(values)
        values.update(dict.fromkeys(arg.args[1:]))
    memberships = iter(
        Call(single if len(values) == 1 else several, (subject, *values), BOOLEAN)
        for subject, values in subjects.items()
    )
    return [next(memberships) if isinstance(part, dict) else part for part in merged]


def negation(arg: Expr) -> Expr:
    """Return NOT of a predicate."""
    if arg == TRUE:
        return FALSE
    if arg == FALSE:
        return TRUE
    if isinstance(arg, Literal):
        return arg
    if isinstance(arg, Call) and arg.function == "not":
        return arg.args[0]
    return Call("not", (arg,), BOOLEAN)


def predicate(expr: Expr, place: str) -> Expr:
    """Return the expression as a predicate: a boolean value `flag` becomes `flag = true`. Raise SqlValidationError for
    other types."""
    if isinstance(expr, Literal) and expr.value is None:
        return Literal(None, BOOLEAN)
    if expr.type != BOOLEAN:
        raise SqlValidationError(f"{place} needs a condition, not a value of type {expr.type}")
    if isinstance(expr, Literal) or (isinstance(expr, Call) and expr.function in _PREDICATES):
        return expr
    return Call("equals", (expr, TRUE), BOOLEAN)


def without_null_verdict(expr: Expr) -> Expr:
    """Replace the filter's NULL verdicts by FALSE. It keeps the same rows, as a row is kept only if the verdict is
    TRUE."""
    if isinstance(expr, Literal) and expr.value is None:
        return FALSE
    if not (isinstance(expr, Call) and expr.function in ("and", "or")):
        return expr
    args = [without_null_verdict(arg) for arg in expr.args]
    if all(map(operator.is_, args, expr.args)):  # spare thousands of unchanged conditions the combining
        return expr
    return conjunction(args) if expr.function == "and" else disjunction(args)


def _combine(function: str, args: Iterable[Expr], *, neutral: Expr, absorbing: Expr) -> Expr:
    args = tuple(args)
    parts: dict[Expr, None] = {}
    for arg in args:
        if arg == absorbing:
            return absorbing
        if isinstance(arg, Call) and arg.function == function:
            parts.update(dict.fromkeys(arg.args))
        elif len(args) == 1:  # spare a long list the hashing
            return arg
        elif arg != neutral:
            parts[arg] = None
    single, several = ("equals", "in") if function == "or" else ("not_equals", "not_in")
    merged = _merge_memberships(parts, single, several) if len(parts) > 1 else list(parts)
    if not merged:
        return neutral
    return merged[0] if len(merged) == 1 else Call(function, tuple(merged), BOOLEAN)
