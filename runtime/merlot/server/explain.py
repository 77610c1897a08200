"""EXPLAIN on a server: what it would do with its segments if the query came now."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from merlot.query import explain as leaves
from merlot.query.answer.partial import Partial
from merlot.query.answer.result import QueryStats
from merlot.query.context import ExecutionContext, TooMuchWorkError
from merlot.query.plan.nodes import Leaf
from merlot.server.pruning import Kept, prune
from merlot.server.tables import Acquired


def explain(leaf: Leaf, acquired: Acquired, context: ExecutionContext, light: Kept | None, *, max_docs: int) -> Partial:
    """Groups of segments, as rows of `query.explain.SCHEMA`.

    light: segments with which the event loop would first try the query, looking at so many docs; None if it would
    not."""
    kept, rows = light, None if light is None else _on_the_loop(leaf, light, context, max_docs)
    if kept is None or rows is None:
        kept = prune(leaf, acquired.segments, acquired.statistics, context.schema)
        rows = leaves.explain(leaf, kept.segments, context)
    rows += leaves.left_out(empty=kept.num_empty, value=kept.num_by_value, limit=kept.num_by_limit)
    stats = QueryStats(num_segments_queried=len(acquired.segments))
    return Partial(pa.Table.from_pylist(rows, leaves.SCHEMA), stats)


def _on_the_loop(leaf: Leaf, kept: Kept, context: ExecutionContext, max_docs: int) -> list[leaves.Row] | None:
    """None if the loop would leave the query to a thread."""
    hurried = replace(context, pool=None, most_docs=max_docs, join_later=lambda work: None)
    try:
        return leaves.explain(leaf, kept.segments, hurried)
    except TooMuchWorkError:
        return None
