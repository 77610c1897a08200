"""Statistics of all segments of a table, as arrays with one entry per segment, in the same order for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from merlot.query.pruning import monotone
from merlot.query.pruning.blooms import ColumnBlooms
from merlot.query.pruning.partitions import ColumnPartitions
from merlot.query.pruning.ranges import ColumnRanges
from merlot.tree.nodes import Column, Expr

MAX_MAPPED: Final = 16
"""Maximum number of functions of columns whose bounds are cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStatistics:
    """Statistics of segments by position. For a column that is missing from a mapping, nothing is known."""

    num_segments: int
    is_empty: NDArray[np.bool_] | None = None
    """Segments that are known to have no docs; None if there are none."""
    ranges: Mapping[str, ColumnRanges] = field(default_factory=dict)
    partitions: Mapping[str, ColumnPartitions] = field(default_factory=dict)
    blooms: Mapping[str, ColumnBlooms] = field(default_factory=dict)
    null_counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Number of docs whose value is null, by column; -1 if unknown."""
    num_docs: NDArray[np.int64] | None = None
    """Number of docs of each segment, present if `null_counts` are."""
    _mapped: dict[Expr, ColumnRanges | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Bounds of functions of columns. Many queries use the same functions, with other constants."""

    def knows(self, functions: Iterable[Expr]) -> bool:
        """Return whether `ranges_of` is already computed for all of these functions."""
        return all(function in self._mapped for function in functions)

    def ranges_of(self, expr: Expr) -> ColumnRanges | None:
        """Return bounds of a column, or of a function that rises with a column; None if nothing is known. The first
        call for a function takes a microsecond per segment, plus the time to load its kernels."""
        if isinstance(expr, Column):
            return self.ranges.get(expr.name)
        column = monotone.column_of(expr)
        ranges = None if column is None else self.ranges.get(column.name)
        if column is None:
            return None
        if expr not in self._mapped:
            if len(self._mapped) >= MAX_MAPPED:
                self._mapped.clear()
            self._mapped[expr] = None if ranges is None else monotone.bounds_of(ranges, expr, column)
        return self._mapped.get(expr)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without `is_empty` and the cached bounds of functions."""
        sizes = [ranges.nbytes for ranges in self.ranges.values()]
        sizes += [partitions.nbytes for partitions in self.partitions.values()]
        sizes += [blooms.nbytes for blooms in self.blooms.values()]
        sizes += [counts.nbytes for counts in self.null_counts.values()]
        return sum(sizes) + (0 if self.num_docs is None else self.num_docs.nbytes)
