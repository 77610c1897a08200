"""What is known of every segment of a table, as arrays: one entry by segment, in one order for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from merlot.query.pruning.blooms import ColumnBlooms
from merlot.query.pruning.partitions import ColumnPartitions
from merlot.query.pruning.ranges import ColumnRanges


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

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        sizes = [ranges.nbytes for ranges in self.ranges.values()]
        sizes += [partitions.nbytes for partitions in self.partitions.values()]
        sizes += [blooms.nbytes for blooms in self.blooms.values()]
        sizes += [counts.nbytes for counts in self.null_counts.values()]
        return sum(sizes) + (0 if self.num_docs is None else self.num_docs.nbytes)
