"""Pruning of segments that a LIMIT makes superfluous: others are certain to hold enough rows, or enough rows that come
first.

Pinot's name for this is SelectionQuerySegmentPruner. A segment counts with all its docs, and only if every row of it
passes the filter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from merlot.query.plan.nodes import LeafKind, LeafWork
from merlot.query.pruning.ranges import ColumnRanges
from merlot.query.pruning.statistics import SegmentStatistics
from merlot.query.pruning.verdicts import ALL, NONE, Verdicts
from merlot.tree.nodes import Column


def order_column(work: LeafWork) -> str | None:
    """Return the column that is the first order key of a selection; None for other queries, or if that key is an
    expression."""
    if work.kind is not LeafKind.SELECTION or not work.order_by:
        return None
    first = work.columns[work.slots.index(work.order_by[0].expr)]
    return first.name if isinstance(first, Column) else None


def needed(work: LeafWork, verdicts: Verdicts, statistics: SegmentStatistics) -> NDArray[np.bool_]:
    """Return a mask of the segments that are still needed. No segment with the verdict NONE is."""
    matching: NDArray[np.bool_] = verdicts != NONE
    if work.kind is not LeafKind.SELECTION or statistics.num_docs is None:
        return matching
    sure_docs = np.where(verdicts == ALL, statistics.num_docs, 0)
    if work.rows_needed > int(sure_docs.sum()):
        return matching
    if not work.order_by:
        # The first segments suffice that are certain to pass and together hold enough rows.
        reached = np.cumsum(sure_docs)
        first: NDArray[np.bool_] = (verdicts == ALL) & (reached - sure_docs < work.rows_needed)
        return first
    name = order_column(work)
    ranges = None if name is None else statistics.ranges.get(name)
    if ranges is None or name is None or _may_hold_nulls(work, name, statistics):
        return matching
    return matching & _may_come_first(ranges, sure_docs, work.rows_needed, ascending=work.order_by[0].ascending)


def _may_hold_nulls(work: LeafWork, name: str, statistics: SegmentStatistics) -> bool:
    """Return whether nulls may matter: with null handling they are ordered on their own, outside the bounds of stored
    values."""
    counts = statistics.null_counts.get(name)
    return work.null_handling and (counts is None or bool(counts.any()))


def _may_come_first(
    ranges: ColumnRanges, sure_docs: NDArray[np.int64], num_rows: int, *, ascending: bool
) -> NDArray[np.bool_]:
    """Return the segments that may hold a row up to the value within which enough rows are certain; ties with it may
    come first."""
    best, worst = (ranges.low, ranges.high) if ascending else (-ranges.high, -ranges.low)
    is_sure = (sure_docs > 0) & (ranges.low >= 0)
    order = np.argsort(worst[is_sure], kind="stable")
    reached = np.cumsum(sure_docs[is_sure][order])
    position = int(np.searchsorted(reached, num_rows))
    if position >= len(reached):
        return np.ones(len(best), np.bool_)
    limit = worst[is_sure][order][position]
    may: NDArray[np.bool_] = best <= limit
    return may
