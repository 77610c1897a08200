"""Funnels' conditions, made arguments: the clauses of FUNNEL_COUNT, and the steps of those over events in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from merlot.aggregates.distinct import MAX_ARGUMENTS
from merlot.aggregates.funnels import MAX_STEPS
from merlot.functions.conditional import typed_case
from merlot.sql.node_text import node_text
from merlot.sql.syntax import Call, Node, Number, Text
from merlot.tree.errors import SqlValidationError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import INT, LONG, STRING

_CLAUSES: Final = ("steps", "correlateby", "settings")
_BEFORE_STEPS: Final = 3
"""Arguments of a funnel over events in order."""
_SETTINGS: Final = re.compile(r"(set|bitmap|partitioned|sorted|theta_sketch|nominalentries)(=.*)?")


class Conditions(Protocol):
    """Binds the parts of a clause."""

    @property
    def nulls(self) -> bool: ...
    def bind(self, node: Node) -> Expr: ...
    def condition(self, node: Node) -> Expr: ...
    def call(self, name: str, args: tuple[Expr, ...]) -> Expr: ...


def arguments(binder: Conditions, nodes: Sequence[Node]) -> list[Expr]:
    """What holds of a row, a bit a step, how many steps there are, and what is counted; raises SqlValidationError."""
    clauses: dict[str, Sequence[Node]] = {}
    for node in nodes:
        key = canonical_key(node.name) if isinstance(node, Call) and not node.is_distinct else ""
        if not isinstance(node, Call) or key not in _CLAUSES or key in clauses:
            raise SqlValidationError("funnelcount takes STEPS(…), CORRELATE_BY(…) and SETTINGS(…), each once")
        clauses[key] = node.args
    for key, most in (("steps", MAX_STEPS), ("correlateby", MAX_ARGUMENTS)):
        if not 1 <= len(clauses.get(key, ())) <= most:
            raise SqlValidationError(f"funnelcount needs 1 to {most} expressions in {key.upper()}")
    _check_settings(clauses.get("settings", ()))
    steps = [binder.condition(node) for node in clauses["steps"]]
    return [_bits(binder, steps), Literal(len(steps), INT), *(binder.bind(node) for node in clauses["correlateby"])]


def window_arguments(binder: Conditions, name: str, nodes: Sequence[Node]) -> list[Expr]:
    """The time of a row, the first step that holds of it, from 1 on, or 0, the window, how many steps there are, and
    settings between semicolons, of `time, window, n, step, … [, setting, …]`; raises SqlValidationError."""
    number = nodes[2].text if len(nodes) > 2 and isinstance(nodes[2], Number) else ""
    num_steps = int(number) if number.isdecimal() else 0
    if not 1 <= num_steps <= MAX_STEPS or len(nodes) < _BEFORE_STEPS + num_steps:
        raise SqlValidationError(
            f"{name} takes a time, a window, the number of steps (1 to {MAX_STEPS}) and so many steps"
        )
    steps = nodes[_BEFORE_STEPS : _BEFORE_STEPS + num_steps]
    settings: list[str] = []
    for node in nodes[_BEFORE_STEPS + num_steps :]:
        if not isinstance(node, Text):
            raise SqlValidationError(f"{name} takes settings in quotes after {num_steps} steps got={node_text(node)}")
        settings.append("".join(node.value.split()))
    cases = [(binder.condition(node), Literal(place, LONG)) for place, node in enumerate(steps, 1)]
    first = typed_case(cases, Literal(0, LONG), nulls=binder.nulls)
    text = ";".join(settings)
    return [binder.bind(nodes[0]), first, binder.bind(nodes[1]), Literal(num_steps, INT), Literal(text, STRING)]


def _bits(binder: Conditions, steps: Sequence[Expr]) -> Expr:
    """A step that is unknown does not hold."""
    nothing = Literal(0, LONG)
    found: Expr = nothing
    for number, step in enumerate(steps):
        bit = typed_case([(step, Literal(1 << number, LONG))], nothing, nulls=binder.nulls)
        found = bit if number == 0 else binder.call("bitor", (found, bit))
    return found


def _check_settings(nodes: Sequence[Node]) -> None:
    """They say how Pinot counts; here it counts exactly."""
    for node in nodes:
        text = "".join(node.value.split()).lower() if isinstance(node, Text) else ""
        if not _SETTINGS.fullmatch(text):
            raise SqlValidationError(f"funnelcount has no setting {node_text(node)}")
