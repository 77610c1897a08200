"""EXPLAIN PLAN FOR: what a query would do, as rows of operators, without asking a server."""

from __future__ import annotations

from merlot.broker.planning.planner import PlannedQuery
from merlot.broker.response import ResultRows
from merlot.broker.routing.pruning import Selection
from merlot.broker.tables import ServedTable
from merlot.query.plan.nodes import LeafKind, Reduce

_NAMES = {LeafKind.SELECTION: "SELECT", LeafKind.AGGREGATION: "AGGREGATE", LeafKind.GROUP_BY: "GROUP_BY"}


def explain(plan: PlannedQuery, tree: Reduce, table: ServedTable, selection: Selection) -> ResultRows:
    """One operator a row, each below the one before; Pinot's columns."""
    leaf, finish = tree.leaf, tree.finish
    num_segments = sum(len(route.segments) for route in selection.routes)
    operators = [f"BROKER_REDUCE(limit:{finish.limit})"]
    if table.pruning is not None and not plan.skips_pruning:
        shares = table.pruning.explain(leaf.filter, null_handling=leaf.work.null_handling)
        operators += [f"BROKER_PRUNE(pruner:{name},segmentsRemoved:{count})" for name, count in shares]
    operators.append(f"SCATTER(servers:{len(selection.routes)},segments:{num_segments})")
    operators.append(f"COMBINE_{_NAMES[leaf.work.kind]}")
    operators.append(f"{_NAMES[leaf.work.kind]}({', '.join(output.label for output in finish.outputs)})")
    rows = [[operator, number, number - 1] for number, operator in enumerate(operators, start=1)]
    return ResultRows(["Operator", "Operator_Id", "Parent_Id"], ["STRING", "INT", "INT"], rows)
