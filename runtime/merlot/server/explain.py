"""EXPLAIN on a server: what it would do with its segments if the query came now."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from merlot.query import explain as leaves
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.query.context import ExecutionContext, TooMuchWorkError
from merlot.query.plan.nodes import Leaf
from merlot.server.pruning import PrunedSegments, prune
from merlot.server.tables import Acquired


def explain(
    leaf: Leaf, acquired: Acquired, context: ExecutionContext, light: PrunedSegments | None, *, max_docs: int
) -> Partial:
    """Return groups of segments, as rows of `query.explain.SCHEMA`.

    `light` are the segments with which the event loop would first try the query, reading at most `max_docs` docs; None
    if it would not."""
    pruned, rows = light, None if light is None else _on_the_loop(leaf, light, context, max_docs)
    if pruned is None or rows is None:
        pruned = prune(leaf, acquired.segments, acquired.statistics, context.schema)
        rows = leaves.explain(leaf, pruned.segments, context)
    rows += leaves.left_out(empty=pruned.num_empty, value=pruned.num_by_value, limit=pruned.num_by_limit)
    stats = QueryStats(num_segments_queried=len(acquired.segments))
    return Partial(pa.Table.from_pylist(rows, leaves.SCHEMA), stats)


def _on_the_loop(
    leaf: Leaf, pruned: PrunedSegments, context: ExecutionContext, max_docs: int
) -> list[leaves.Row] | None:
    """Return the groups of segments as the event loop would answer; None if it would leave the query to a thread."""
    hurried = replace(context, pool=None, most_docs=max_docs, coalesce_later=lambda work: None)
    try:
        return leaves.explain(leaf, pruned.segments, hurried)
    except TooMuchWorkError:
        return None
