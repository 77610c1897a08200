"""What is known of every segment of a table, as arrays: one entry by segment, in one order for all of them."""

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
"""Functions of columns whose bounds are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStatistics:
    """Segments by position. A column that is missing from a mapping is not known of any."""

    num_segments: int
    is_empty: NDArray[np.bool_] | None = None
    """Segments that are known to have no docs; None if there is none."""
    ranges: Mapping[str, ColumnRanges] = field(default_factory=dict)
    partitions: Mapping[str, ColumnPartitions] = field(default_factory=dict)
    blooms: Mapping[str, ColumnBlooms] = field(default_factory=dict)
    null_counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Docs whose value is null, by column; -1 if unknown."""
    num_docs: NDArray[np.int64] | None = None
    """Docs by segment, where `null_counts` are given."""
    _mapped: dict[Expr, ColumnRanges | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Bounds of functions of columns: many queries ask for the same ones, with other constants."""

    def knows(self, functions: Iterable[Expr]) -> bool:
        """Whether `ranges_of` these functions has nothing to compute."""
        return all(one in self._mapped for one in functions)

    def ranges_of(self, expr: Expr) -> ColumnRanges | None:
        """Bounds of a column, or of a function that rises with one; None if nothing is known. The first call for a
        function takes a microsecond a segment, and what its kernels take to load."""
        if isinstance(expr, Column):
            return self.ranges.get(expr.name)
        column = monotone.column_of(expr)
        ranges = None if column is None else self.ranges.get(column.name)
        if column is None:
            return None
        if expr not in self._mapped:
            if len(self._mapped) >= MAX_MAPPED:
                self._mapped.clear()
            self._mapped[expr] = None if ranges is None else monotone.mapped(ranges, expr, column)
        return self._mapped.get(expr)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        sizes = [ranges.nbytes for ranges in self.ranges.values()]
        sizes += [partitions.nbytes for partitions in self.partitions.values()]
        sizes += [blooms.nbytes for blooms in self.blooms.values()]
        sizes += [counts.nbytes for counts in self.null_counts.values()]
        return sum(sizes) + (0 if self.num_docs is None else self.num_docs.nbytes)
