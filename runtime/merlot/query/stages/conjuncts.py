"""Which parts of a query's conditions concern one relation alone, and may be asked of its leaf."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from merlot.tree.nodes import Call, Expr
from merlot.tree.relations import Join, JoinKind, Relation, columns_in, source_id
from merlot.tree.types import BOOLEAN

_LEFT_STAYS = frozenset({JoinKind.INNER, JoinKind.CROSS, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI})
"""Joins after which a row of the left side is as it was, or gone."""
_RIGHT_STAYS = frozenset({JoinKind.INNER, JoinKind.CROSS, JoinKind.RIGHT})
_ON_CUTS_LEFT = frozenset({JoinKind.INNER, JoinKind.RIGHT, JoinKind.SEMI})
"""Joins whose condition drops rows of the left side that do not meet it."""
_ON_CUTS_RIGHT = frozenset({JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI})


def conjuncts(condition: Expr | None) -> list[Expr]:
    """What a condition asks, all of which must hold."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.function == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    return [condition]


def all_of(parts: Sequence[Expr]) -> Expr | None:
    """The condition that all of these hold; None if there are none."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Call("and", tuple(parts), BOOLEAN)


def reachable(relation: Relation | None) -> frozenset[str]:
    """Relations of a FROM that a filter over all of it may be asked of."""
    if not isinstance(relation, Join):
        return frozenset() if relation is None else frozenset({relation.id})
    found: frozenset[str] = frozenset()
    if relation.kind in _LEFT_STAYS:
        found |= reachable(relation.left)
    if relation.kind in _RIGHT_STAYS:
        found |= reachable(relation.right)
    return found


def reachable_by_condition(join: Join) -> frozenset[str]:
    """Relations that parts of a join's own condition may be asked of."""
    found: frozenset[str] = frozenset()
    if join.kind in _ON_CUTS_LEFT:
        found |= reachable(join.left)
    if join.kind in _ON_CUTS_RIGHT:
        found |= reachable(join.right)
    return found


def inner_conditions(relation: Relation | None) -> list[Expr]:
    """List the conditions that every row of a FROM has met: those of its inner joins."""
    if not isinstance(relation, Join) or relation.kind is not JoinKind.INNER:
        return []
    return [*inner_conditions(relation.left), *inner_conditions(relation.right), *conjuncts(relation.condition)]


def only_source(expr: Expr) -> str | None:
    """The one relation that an expression reads; None for several, for none, and for slots."""
    owners = {source_id(column) for column in columns_in(expr)}
    return next(iter(owners)) if len(owners) == 1 else None


def implied(part: Expr, scans: frozenset[str]) -> Iterator[tuple[str, Expr]]:
    """What an OR asks of each relation whichever side holds: `a.x = 1 AND b.y = 2 OR a.x = 3` asks `a.x IN (1, 3)`."""
    if not (isinstance(part, Call) and part.function == "or"):
        return
    sides = [conjuncts(arg) for arg in part.args]
    for scan in sorted(scans):
        own = [[one for one in side if only_source(one) == scan] for side in sides]
        if all(own):
            yield scan, Call("or", tuple(whole for side in own if (whole := all_of(side)) is not None), BOOLEAN)
