"""The clauses of FUNNEL_COUNT, made arguments: STEPS(…), CORRELATE_BY(…), SETTINGS(…)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from sqlglot import exp

from merlot.aggregates.distinct import MAX_ARGUMENTS
from merlot.aggregates.funnels import MAX_STEPS
from merlot.functions.conditional import typed_case
from merlot.tree.errors import SqlValidationError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import INT, LONG

_CLAUSES: Final = ("steps", "correlateby", "settings")
_SETTINGS: Final = re.compile(r"(set|bitmap|partitioned|sorted|theta_sketch|nominalentries)(=.*)?")


class Conditions(Protocol):
    """Binds the parts of a clause."""

    @property
    def nulls(self) -> bool: ...
    def bind(self, node: exp.Expr) -> Expr: ...
    def condition(self, node: exp.Expr) -> Expr: ...
    def call(self, name: str, args: tuple[Expr, ...]) -> Expr: ...


def arguments(binder: Conditions, nodes: Sequence[exp.Expr]) -> list[Expr]:
    """What holds of a row, a bit a step, how many steps there are, and what is counted; raises SqlValidationError."""
    clauses: dict[str, list[exp.Expr]] = {}
    for node in nodes:
        key = canonical_key(node.name) if isinstance(node, exp.Anonymous) else ""
        if key not in _CLAUSES or key in clauses:
            raise SqlValidationError("funnelcount takes STEPS(…), CORRELATE_BY(…) and SETTINGS(…), each once")
        clauses[key] = node.expressions
    for key, most in (("steps", MAX_STEPS), ("correlateby", MAX_ARGUMENTS)):
        if not 1 <= len(clauses.get(key, ())) <= most:
            raise SqlValidationError(f"funnelcount needs 1 to {most} expressions in {key.upper()}")
    _check_settings(clauses.get("settings", ()))
    steps = [binder.condition(node) for node in clauses["steps"]]
    return [_bits(binder, steps), Literal(len(steps), INT), *(binder.bind(node) for node in clauses["correlateby"])]


def _bits(binder: Conditions, steps: Sequence[Expr]) -> Expr:
    """A step that is unknown does not hold."""
    nothing = Literal(0, LONG)
    found: Expr = nothing
    for number, step in enumerate(steps):
        bit = typed_case([(step, Literal(1 << number, LONG))], nothing, nulls=binder.nulls)
        found = bit if number == 0 else binder.call("bitor", (found, bit))
    return found


def _check_settings(nodes: Sequence[exp.Expr]) -> None:
    """They say how Pinot counts; here it counts exactly."""
    for node in nodes:
        text = "".join(node.name.split()).lower() if isinstance(node, exp.Literal) else ""
        if not _SETTINGS.fullmatch(text):
            raise SqlValidationError(f"funnelcount has no setting {node.sql()}")
