"""EXPLAIN PLAN FOR: a plan as rows of operators, in Pinot's columns. Broker and servers each contribute their part.

Parent_Id names the operator above. Below the operator that combines partial answers, PLAN_START begins a group of
segments with the same plan: it has no position in the tree, and its id is -1, as in Pinot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from merlot.broker.planning.planner import PlannedQuery
from merlot.broker.response import ResultRows
from merlot.broker.routing.pruning import Selection
from merlot.broker.tables import ServedTable
from merlot.cluster.segments.boundary import BEFORE_ALL, TimeSplit
from merlot.errors import UnavailableError
from merlot.query.answer.partial import Partial
from merlot.query.explain import MATCH_ALL, SCHEMA
from merlot.query.plan.expressions import replace
from merlot.query.plan.nodes import Leaf, LeafKind, LeafWork, Reduce
from merlot.query.plan.text import text_of
from merlot.tree.nodes import Column, Expr, OrderKey

_NO_ID = -1
_COLUMNS = ["Operator", "Operator_Id", "Parent_Id"]
_TYPES = ["STRING", "INT", "INT"]
EVALUATED = ResultRows(_COLUMNS, _TYPES, [["BROKER_EVALUATE", 0, _NO_ID]])
"""Plan of a SELECT without FROM: no server is asked."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Rows of the answer, and Pinot's counts of segments whose filter keeps nothing, or everything."""

    rows: ResultRows
    num_empty_filter: int
    num_match_all: int


@dataclass(slots=True)
class _ServerParts:
    """Sums of the servers' parts: number of pruned segments, by pruner; numbers of segments and docs, by plan."""

    pruned: dict[str, int] = field(default_factory=dict)
    groups: dict[tuple[str, bool], list[int]] = field(default_factory=dict)


def explain(
    plan: PlannedQuery, tree: Reduce, table: ServedTable, selection: Selection, partials: Sequence[Partial]
) -> Explained:
    """Return the plan. Raise UnavailableError if a server did not explain."""
    server_parts = _added(partials)
    rows: list[list[str | int]] = []

    def add(operator: str, parent: int) -> int:
        number = 1 + sum(row[1] != _NO_ID for row in rows)
        rows.append([operator, number, parent])
        return number

    last = 0
    for operator in _broker_part(plan, tree, table, selection, server_parts):
        last = add(operator, last)
    groups = sorted(server_parts.groups.items(), key=lambda item: -item[1][0])
    for (encoded, is_joined), (num_segments, num_docs) in groups:
        joined = ",joined:true" if is_joined else ""
        rows.append([f"PLAN_START(numSegmentsForThisPlan:{num_segments},docs:{num_docs}{joined})", _NO_ID, _NO_ID])
        parents = [last]
        for depth, operator in orjson.loads(encoded):
            del parents[depth + 1 :]
            parents.append(add(operator, parents[-1]))
    match_all = sum(counts[0] for (encoded, _), counts in server_parts.groups.items() if f'"{MATCH_ALL}"' in encoded)
    columns = ResultRows(_COLUMNS, _TYPES, rows)
    return Explained(columns, server_parts.pruned.get("filter", 0), match_all)


def _added(partials: Iterable[Partial]) -> _ServerParts:
    server_parts = _ServerParts()
    for partial in partials:
        if not partial.data.schema.equals(SCHEMA):
            raise UnavailableError("a server of another version cannot explain")
        for row in partial.data.to_pylist():
            if row["pruner"] is not None:
                server_parts.pruned[row["pruner"]] = server_parts.pruned.get(row["pruner"], 0) + row["segments"]
                continue
            counts = server_parts.groups.setdefault((row["plan"], row["joined"]), [0, 0])
            counts[0] += row["segments"]
            counts[1] += row["docs"]
    return server_parts


def _broker_part(
    plan: PlannedQuery, tree: Reduce, table: ServedTable, selection: Selection, server_parts: _ServerParts
) -> list[str]:
    """Return the operators above those of segments, each below the one before."""
    leaf = tree.leaf
    operators = [f"BROKER_REDUCE({', '.join(_reduce_facts(tree))})"]
    if table.pruning is not None and not plan.skips_pruning:
        shares = table.pruning.explain(leaf.filter, null_handling=leaf.work.null_handling)
        operators += [f"BROKER_PRUNE(pruner:{name},segmentsRemoved:{count})" for name, count in shares]
    operators += _boundary_part(table)
    num_segments = sum(len(route.segments) for route in selection.routes)
    operators.append(f"SCATTER(servers:{len(selection.routes)},segments:{num_segments})")
    operators += [
        f"SERVER_PRUNE(pruner:{name},segmentsRemoved:{count})" for name, count in sorted(server_parts.pruned.items())
    ]
    return [*operators, _combine(leaf)]


def _boundary_part(table: ServedTable) -> list[str]:
    """Return the operator of a hybrid table's time boundary. It counts the segments that are not asked, because the
    other table answers for their time."""
    boundary_ms = table.snapshot.time_boundary_ms
    if table.rule is None or boundary_ms is None:
        return []
    hidden = sum(segment.time_split is TimeSplit.HIDDEN for segment in table.snapshot.segments.values())
    value = "none" if boundary_ms == BEFORE_ALL else table.rule.value(boundary_ms)
    return [f"TIME_BOUNDARY(column:{table.rule.column},streamFrom:{value},segmentsHidden:{hidden})"]


def _reduce_facts(tree: Reduce) -> list[str]:
    finish, slots = tree.finish, _slots(tree.leaf.work)
    facts = [f"havingFilter:{_text(finish.having, slots)}"] if finish.having is not None else []
    if finish.order_by:
        facts.append(f"sort:[{', '.join(_sort(key, slots) for key in finish.order_by)}]")
    facts.append(f"limit:{finish.limit}")
    return [*facts, f"offset:{finish.offset}"] if finish.offset else facts


def _slots(work: LeafWork) -> dict[str, Expr]:
    """Return the expression of each slot."""
    kinds: dict[str, Sequence[Expr]] = {"k": work.keys, "a": work.aggregates, "c": work.columns}
    return {f"{letter}{number}": expr for letter, exprs in kinds.items() for number, expr in enumerate(exprs)}


def _text(expr: Expr, slots: Mapping[str, Expr]) -> str:
    """Write an expression over slots as one over the table's columns."""
    return text_of(replace(expr, lambda node: slots.get(node.name) if isinstance(node, Column) else None))


def _sort(key: OrderKey, slots: Mapping[str, Expr]) -> str:
    nulls = "" if key.nulls_last == key.ascending else " NULLS LAST" if key.nulls_last else " NULLS FIRST"
    return f"{_text(key.expr, slots)} {'ASC' if key.ascending else 'DESC'}{nulls}"


def _combine(leaf: Leaf) -> str:
    work = leaf.work
    match work.kind:
        case LeafKind.SELECTION:
            return "COMBINE_SELECT_ORDERBY" if work.order_by else "COMBINE_SELECT"
        case LeafKind.AGGREGATION:
            return "COMBINE_AGGREGATE"
        case LeafKind.GROUP_BY:
            return "COMBINE_GROUP_BY" if work.aggregates else "COMBINE_DISTINCT"
