"""Kinds of joins, and the rules for their conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from merlot.sql.syntax import Join
from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.relations import JoinKind, columns_in, source_id
from merlot.tree.types import BOOLEAN

_KINDS: Final[Mapping[str, JoinKind]] = {
    "": JoinKind.INNER,
    "INNER": JoinKind.INNER,
    "CROSS": JoinKind.CROSS,
    **dict.fromkeys(("SEMI", "LEFT SEMI"), JoinKind.SEMI),
    **dict.fromkeys(("ANTI", "LEFT ANTI"), JoinKind.ANTI),
    **{f"{side}{word}": JoinKind[side] for side in ("LEFT", "RIGHT", "FULL") for word in ("", " OUTER")},
    "ASOF": JoinKind.ASOF,
    **dict.fromkeys(("LEFT ASOF", "ASOF LEFT"), JoinKind.LEFT_ASOF),
}
_INEQUALITIES: Final = frozenset({"less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal"})


def join_kind(join: Join) -> JoinKind:
    """Return the kind that a join's words name. Raise UnsupportedSqlError if there is none, SqlParseError if
    MATCH_CONDITION is missing or does not belong there."""
    words = join.kind.removeprefix("NATURAL").strip()
    kind = _KINDS.get(words)
    is_asof = kind in (JoinKind.ASOF, JoinKind.LEFT_ASOF)
    if kind is None or (is_asof and words != join.kind):
        raise UnsupportedSqlError(f"{join.kind} JOIN")
    if is_asof != (join.match_condition is not None):
        raise SqlParseError("ASOF JOIN needs MATCH_CONDITION, and no other join has one")
    return kind


def asof_condition(match: Expr, on: Expr | None, right: str) -> Expr:
    """Combine ON and MATCH_CONDITION of an ASOF JOIN whose right side is relation `right`. Raise SqlValidationError if
    they are not conditions that such a join may have."""
    if on is None:
        raise SqlValidationError("ASOF JOIN needs ON")
    if not (isinstance(match, Call) and match.function in _INEQUALITIES and _is_between_sides(match, right)):
        raise SqlValidationError("MATCH_CONDITION compares the two sides of a join by <, <=, > or >=")
    parts = on.args if isinstance(on, Call) and on.function == "and" else (on,)
    if isinstance(on, Literal) and on.value is True:
        parts = ()
    for part in parts:
        if not (isinstance(part, Call) and part.function == "equals" and _is_between_sides(part, right)):
            raise SqlValidationError("ON of an ASOF JOIN has equalities of its two sides alone, joined by AND")
    return Call("and", (*parts, match), BOOLEAN) if parts else match


def _is_between_sides(comparison: Call, right: str) -> bool:
    owners = [{source_id(column) for column in columns_in(side)} for side in comparison.args]
    return any(side == {right} and other and right not in other for side, other in (owners, owners[::-1]))
