"""Kinds of joins, and what each asks of its condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from merlot.tree.errors import SqlParseError, SqlValidationError, UnsupportedSqlError
from merlot.tree.nodes import Call, Expr, Literal
from merlot.tree.relations import JoinKind, columns_in, source_id
from merlot.tree.types import BOOLEAN

_KINDS: Final[Mapping[tuple[str, str], JoinKind]] = {
    ("", ""): JoinKind.INNER,
    ("", "INNER"): JoinKind.INNER,
    ("", "CROSS"): JoinKind.CROSS,
    ("", "SEMI"): JoinKind.SEMI,
    ("LEFT", "SEMI"): JoinKind.SEMI,
    ("", "ANTI"): JoinKind.ANTI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
}
_ASOF: Final = {"": JoinKind.ASOF, "LEFT": JoinKind.LEFT_ASOF}
_ORDERED: Final = frozenset({"less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal"})


def join_kind(join: exp.Join) -> JoinKind:
    """The kind that the words name; raises UnsupportedSqlError."""
    for name, value in join.args.items():
        if value and name not in ("this", "on", "using", "side", "kind", "method", "match_condition"):
            raise UnsupportedSqlError(f"JOIN {name.strip('_').upper()}")
    method, side, word = join.method.upper(), join.side.upper(), join.kind.upper()
    is_asof = method == "ASOF"
    if is_asof != bool(join.args.get("match_condition")):
        raise SqlParseError("ASOF JOIN needs MATCH_CONDITION, and no other join has one")
    if is_asof and side in _ASOF and not word:
        return _ASOF[side]
    if method not in ("", "NATURAL") or is_asof:
        raise UnsupportedSqlError(" ".join(filter(None, (side, word, method, "JOIN"))))
    if side in ("LEFT", "RIGHT", "FULL") and word in ("", "OUTER"):
        return JoinKind[side]
    kind = _KINDS.get((side, word))
    if kind is None:
        raise UnsupportedSqlError(" ".join(filter(None, (side, word, "JOIN"))))
    return kind


def asof_condition(match: Expr, on: Expr | None, right: str) -> Expr:
    """What ASOF JOIN asks of a row and the nearest one of relation `right`; raises SqlValidationError."""
    if on is None:
        raise SqlValidationError("ASOF JOIN needs ON")
    if not (isinstance(match, Call) and match.function in _ORDERED and _is_between_sides(match, right)):
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
    return any(one == {right} and other and right not in other for one, other in (owners, owners[::-1]))
