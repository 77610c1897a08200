"""Parts of a query's conditions that read one relation alone, and may be pushed to its leaf."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from merlot.tree.nodes import Call, Expr
from merlot.tree.relations import Join, JoinKind, Relation, columns_in, source_id
from merlot.tree.types import BOOLEAN

_LEFT_STAYS = frozenset({JoinKind.INNER, JoinKind.CROSS, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI})
"""Joins after which a row of the left side is unchanged, or gone."""
_RIGHT_STAYS = frozenset({JoinKind.INNER, JoinKind.CROSS, JoinKind.RIGHT})
_ON_CUTS_LEFT = frozenset({JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI})
"""Joins whose condition drops rows of the left side that do not meet it."""
_ON_CUTS_RIGHT = frozenset({JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI})


def conjuncts(condition: Expr | None) -> list[Expr]:
    """Return the parts of a condition, all of which must hold."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.function == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    return [condition]


def all_of(parts: Sequence[Expr]) -> Expr | None:
    """Return the condition that all of these hold; None if there are none."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Call("and", tuple(parts), BOOLEAN)


def reachable(relation: Relation | None) -> frozenset[str]:
    """Return the relations of a FROM to which a filter over all of it may be pushed."""
    if not isinstance(relation, Join):
        return frozenset() if relation is None else frozenset({relation.id})
    ids: frozenset[str] = frozenset()
    if relation.kind in _LEFT_STAYS:
        ids |= reachable(relation.left)
    if relation.kind in _RIGHT_STAYS:
        ids |= reachable(relation.right)
    return ids


def reachable_by_condition(join: Join) -> frozenset[str]:
    """Return the relations to which parts of a join's own condition may be pushed."""
    ids: frozenset[str] = frozenset()
    if join.kind in _ON_CUTS_LEFT:
        ids |= reachable(join.left)
    if join.kind in _ON_CUTS_RIGHT:
        ids |= reachable(join.right)
    return ids


def inner_conditions(relation: Relation | None) -> list[Expr]:
    """Return the conditions that every row of a FROM has met: those of its inner joins."""
    if not isinstance(relation, Join) or relation.kind is not JoinKind.INNER:
        return []
    return [*inner_conditions(relation.left), *inner_conditions(relation.right), *conjuncts(relation.condition)]


def only_source(expr: Expr) -> str | None:
    """Return the only relation that an expression reads; None for several, for none, and for slots."""
    owners = {source_id(column) for column in columns_in(expr)}
    return owners.pop() or None if len(owners) == 1 else None


def implied(part: Expr, scans: frozenset[str]) -> Iterator[tuple[str, Expr]]:
    """Yield the conditions on each relation that follow from an OR whichever side holds: `a.x = 1 AND b.y = 2 OR a.x =
    3` implies `a.x IN (1, 3)`."""
    if not (isinstance(part, Call) and part.function == "or"):
        return
    sides = [conjuncts(arg) for arg in part.args]
    for scan in sorted(scans):
        own = [[conjunct for conjunct in side if only_source(conjunct) == scan] for side in sides]
        if all(own):
            yield scan, Call("or", tuple(whole for side in own if (whole := all_of(side)) is not None), BOOLEAN)
