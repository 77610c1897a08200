"""Explanation of what a server would do with a leaf. The code that runs leaves prepares targets as for running, and
stops there.

Segments that are treated alike form a group. A group is a row: its operators as JSON, each with its depth, and the
numbers of its segments and docs; or, for segments that are left out, the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa

from merlot.query.context import ExecutionContext
from merlot.query.execute import prepare
from merlot.query.filter.predicates import Predicate, TreeMatch, ValueMatch
from merlot.query.filter.resolve import All, And, Node, Nothing, Or, Resolver
from merlot.query.filter.run import in_order, narrow
from merlot.query.plan.nodes import Leaf, LeafKind, LeafWork
from merlot.query.plan.text import text_of
from merlot.query.read.columns import Columns
from merlot.query.shortcuts import scalar_aggregates
from merlot.query.targets import LeafTarget
from merlot.segment.reader import Segment
from merlot.spec.indexing import IndexingSpec
from merlot.tree.nodes import Call, Column, Expr
from merlot.tree.types import BOOLEAN

SCHEMA: Final = pa.schema(
    [
        ("pruner", pa.string()),
        ("plan", pa.string()),
        ("joined", pa.bool_()),
        ("segments", pa.int64()),
        ("docs", pa.int64()),
    ]
)
MATCH_ALL: Final = "FILTER_MATCH_ENTIRE_SEGMENT"
Origins = dict[int, tuple[Node, Expr]]
"""The predicate of each node, by the node's id. The node is kept with it, so that no other node gets its id."""
Row = dict[str, Any]
"""Columns of `SCHEMA`. Missing columns are null."""
Operators = list[tuple[int, str]]
"""Operators with their depths. An operator belongs to the last operator before it that is less deep."""

_PREDICATES: Final = {
    "equals": "EQ",
    "not_equals": "NOT_EQ",
    "in": "IN",
    "not_in": "NOT_IN",
    "like": "LIKE",
    "jsonmatch": "JSON_MATCH",
    "textmatch": "TEXT_MATCH",
    "is_null": "IS_NULL",
    "is_not_null": "IS_NOT_NULL",
    **dict.fromkeys(("less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal", "between"), "RANGE"),
}


def explain(leaf: Leaf, segments: Sequence[Segment], context: ExecutionContext) -> list[Row]:
    """Return the groups as rows of `SCHEMA`. Raises the errors of `execute`, TooMuchWorkError included."""
    origins: Origins = {}
    targets = prepare(leaf, segments, context, functools.partial(_Noting, origins))
    groups: dict[tuple[str, bool], list[int]] = {}
    for target in targets.alive:
        plan = orjson.dumps(_operators(target.leaf(leaf).work, target, origins)).decode()
        counts = groups.setdefault((plan, target.source.is_coalesced), [0, 0])
        counts[0] += target.num_segments
        counts[1] += _num_docs(target)
    rows = [
        {"plan": plan, "joined": is_coalesced, "segments": num_segments, "docs": num_docs}
        for (plan, is_coalesced), (num_segments, num_docs) in groups.items()
    ]
    num_targets = sum(target.num_segments for target in targets.every)
    num_alive = sum(target.num_segments for target in targets.alive)
    return [*rows, *left_out(empty=len(segments) - num_targets, filter=num_targets - num_alive)]


def left_out(**numbers: int) -> list[Row]:
    """Return rows for segments that are not read, given their numbers by reason."""
    return [{"pruner": name, "segments": number} for name, number in numbers.items() if number]


class _Noting(Resolver):
    """Resolver that notes which predicate each node came from."""

    def __init__(
        self, origins: Origins, columns: Columns, *, null_handling: bool, indexing: IndexingSpec | None
    ) -> None:
        super().__init__(columns, null_handling=null_handling, indexing=indexing)
        self._origins = origins

    def _predicate(self, call: Call, negate: bool) -> Node:
        return self._noted(super()._predicate(call, negate), call, negate=negate)

    def _nulls(self, column: Column, *, wanted: bool) -> Node:
        call = Call("is_null" if wanted else "is_not_null", (column,), BOOLEAN)
        return self._noted(super()._nulls(column, wanted=wanted), call, negate=False)

    def _noted(self, node: Node, call: Call, *, negate: bool) -> Node:
        for part in node.children if isinstance(node, And) else (node,):
            self._origins[id(part)] = part, Call("not", (call,), BOOLEAN) if negate else call
        return node


def _num_docs(target: LeafTarget) -> int:
    """Return the number of docs of a target, or of the star-tree documents that are read instead."""
    node = target.node
    chosen = node.children[0] if isinstance(node, And) else node
    return len(chosen.docs) if isinstance(chosen, TreeMatch) else target.columns.num_docs


def _operators(work: LeafWork, target: LeafTarget, origins: Origins) -> Operators:
    node = target.node
    args = [arg for aggregate in work.aggregates for arg in aggregate.args]
    exprs = dict.fromkeys([*work.keys, *work.columns, *args])
    chain = [_top(work, node, of_states=target.columns.stored_states is not None)]
    if any(isinstance(expr, Call) for expr in exprs):
        chain.append(f"TRANSFORM({', '.join(map(text_of, exprs))})")
    if work.columns_after_filter:
        chain.append(f"PROJECT({', '.join(sorted(work.columns_after_filter))})")
    chain.append("DOC_ID_SET")
    return [*enumerate(chain), *_filter(node, len(chain), origins)]


def _top(work: LeafWork, node: Node, *, of_states: bool) -> str:
    """Return the operator that reads the docs which pass the filter."""
    if work.kind is LeafKind.SELECTION:
        return f"{'SELECT_ORDERBY' if work.order_by else 'SELECT'}(selectList:{', '.join(map(text_of, work.columns))})"
    aggregations = f"aggregations:{', '.join(map(text_of, work.aggregates))}"
    keys = ", ".join(map(text_of, work.keys))
    if work.kind is LeafKind.GROUP_BY:
        return f"GROUP_BY(groupKeys:{keys}, {aggregations})" if work.aggregates else f"DISTINCT(keyColumns:{keys})"
    if not work.columns_after_filter:
        return f"{'AGGREGATE_NO_SCAN' if isinstance(node, All) else 'FAST_FILTERED_COUNT'}({aggregations})"
    return f"AGGREGATE({aggregations}{', oneRow:true' if scalar_aggregates.takes(work, of_states=of_states) else ''})"


def _filter(node: Node, depth: int, origins: Origins) -> Iterator[tuple[int, str]]:
    """Yield a filter's operators in the order in which they run."""
    match node:
        case All():
            yield depth, MATCH_ALL
        case Nothing():
            yield depth, "FILTER_EMPTY"
        case And():
            yield depth, "FILTER_AND"
            for child in _as_run(node):
                yield from _filter(child, depth + 1, origins)
        case Or():
            yield depth, "FILTER_OR"
            for child in node.children:
                yield from _filter(child, depth + 1, origins)
        case _:
            yield depth, _predicate(node, origins)


def _as_run(node: And) -> list[Node]:
    """Return the children in the order in which they run: spans first, which narrow what the others read."""
    _, others = narrow(node, 0, 1)
    rest = set(map(id, others))
    return [*(child for child in node.children if id(child) not in rest), *in_order(others)]


def _predicate(node: Predicate, origins: Origins) -> str:
    access = node.access
    facts = [f"indexLookUp:{access.looks_up}"] if access.looks_up else []
    origin = origins.get(id(node))
    call = origin[1] if origin is not None else node.expr if isinstance(node, ValueMatch) else None
    if call is not None:
        inner = call.args[0] if isinstance(call, Call) and call.function == "not" else call
        name = _PREDICATES.get(inner.function, "EXPRESSION") if isinstance(inner, Call) else "EXPRESSION"
        facts += [f"operator:{'NOT ' if inner is not call else ''}{name}", f"predicate:{text_of(call)}"]
    return f"{access.operator}({','.join(facts)})"
