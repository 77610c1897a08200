"""Turn the conditions of funnels into arguments: the clauses of FUNNEL_COUNT, and the steps of funnels over events."""

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
"""Arguments before the steps of a funnel over ordered events."""
_SETTINGS: Final = re.compile(r"(set|bitmap|partitioned|sorted|theta_sketch|nominalentries)(=.*)?")


class Conditions(Protocol):
    """Binds the parts of a clause."""

    @property
    def nulls(self) -> bool: ...
    def bind(self, node: Node) -> Expr: ...
    def condition(self, node: Node) -> Expr: ...
    def call(self, name: str, args: tuple[Expr, ...]) -> Expr: ...


def arguments(binder: Conditions, nodes: Sequence[Node]) -> list[Expr]:
    """Return the arguments of FUNNEL_COUNT: the bits of the steps that a row meets, the number of steps, and the
    expressions to count. Raise SqlValidationError if the clauses do not fit."""
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
    """Return the arguments of a funnel over ordered events from `time, window, n, step, … [, setting, …]`: the row's
    time, the first step that the row meets (from 1 on; 0: none), the window, the number of steps, and the settings,
    joined by semicolons. Raise SqlValidationError if they do not fit."""
    number = nodes[2].text if len(nodes) > 2 and isinstance(nodes[2], Number) else ""
    num_steps = int(number[:9]) if number.isdecimal() else 0
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
    cases = [(binder.condition(node), Literal(number, LONG)) for number, node in enumerate(steps, 1)]
    first = typed_case(cases, Literal(0, LONG), nulls=binder.nulls)
    text = ";".join(settings)
    return [binder.bind(nodes[0]), first, binder.bind(nodes[1]), Literal(num_steps, INT), Literal(text, STRING)]


def _bits(binder: Conditions, steps: Sequence[Expr]) -> Expr:
    """Return a number with a bit for each step that a row meets. A step that is unknown is not met."""
    nothing = Literal(0, LONG)
    bits: Expr = nothing
    for number, step in enumerate(steps):
        bit = typed_case([(step, Literal(1 << number, LONG))], nothing, nulls=binder.nulls)
        bits = bit if number == 0 else binder.call("bitor", (bits, bit))
    return bits


def _check_settings(nodes: Sequence[Node]) -> None:
    """Raise SqlValidationError for an unknown setting. Known settings choose how Pinot counts; here the count
    is always exact."""
    for node in nodes:
        text = "".join(node.value.split()).lower() if isinstance(node, Text) else ""
        if not _SETTINGS.fullmatch(text):
            raise SqlValidationError(f"funnelcount has no setting {node_text(node)}")
