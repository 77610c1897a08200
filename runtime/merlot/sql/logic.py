"""AND, OR and NOT over bound predicates, flattened and with constants folded away.

Valid in three-valued logic too: only FALSE ends an AND and only TRUE ends an OR; NULL stays.
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
    """AND of predicates, nested ones flattened, repeated ones once."""
    return _combine("and", args, neutral=TRUE, absorbing=FALSE)


def disjunction(args: Iterable[Expr]) -> Expr:
    """OR of predicates, nested ones flattened, repeated ones once."""
    return _combine("or", args, neutral=FALSE, absorbing=TRUE)


def _merge_memberships(args: Iterable[Expr], single: str, several: str) -> list[Expr]:
    """`a = 1 OR a IN (2, 3)` as one IN, and likewise `<>` and NOT IN under AND; true of any and all matching too."""
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
    made = [
        Call(single if len(values) == 1 else several, (subject, *values), BOOLEAN)
        for subject, values in subjects.items()
    ]
    memberships = iter(made)
    return [next(memberships) if isinstance(one, dict) else one for one in merged]


def negation(arg: Expr) -> Expr:
    """NOT of a predicate."""
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
    """The expression as a predicate: a boolean value `flag` becomes `flag = true`; raises SqlValidationError."""
    if isinstance(expr, Literal) and expr.value is None:
        return Literal(None, BOOLEAN)
    if expr.type != BOOLEAN:
        raise SqlValidationError(f"{place} needs a condition, not a value of type {expr.type}")
    if isinstance(expr, Literal) or (isinstance(expr, Call) and expr.function in _PREDICATES):
        return expr
    return Call("equals", (expr, TRUE), BOOLEAN)


def without_null_verdict(expr: Expr) -> Expr:
    """A filter that keeps the same rows, its NULL verdicts made FALSE (a row is kept only where TRUE)."""
    if isinstance(expr, Literal) and expr.value is None:
        return FALSE
    if not (isinstance(expr, Call) and expr.function in ("and", "or")):
        return expr
    args = [without_null_verdict(arg) for arg in expr.args]
    if all(map(operator.is_, args, expr.args)):  # thousands of conditions are not combined again for nothing
        return expr
    return conjunction(args) if expr.function == "and" else disjunction(args)


def _combine(function: str, args: Iterable[Expr], *, neutral: Expr, absorbing: Expr) -> Expr:
    args = tuple(args)
    kept: dict[Expr, None] = {}
    for arg in args:
        if arg == absorbing:
            return absorbing
        if isinstance(arg, Call) and arg.function == function:
            kept.update(dict.fromkeys(arg.args))
        elif len(args) == 1:  # a long list is not hashed for nothing
            return arg
        elif arg != neutral:
            kept[arg] = None
    single, several = ("equals", "in") if function == "or" else ("not_equals", "not_in")
    merged = _merge_memberships(kept, single, several) if len(kept) > 1 else list(kept)
    if not merged:
        return neutral
    return merged[0] if len(merged) == 1 else Call(function, tuple(merged), BOOLEAN)
