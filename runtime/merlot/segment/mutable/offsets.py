"""Offsets in the stream of a segment's rows, stored as runs, because most offsets are consecutive."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from merlot.segment.mutable.growing_arrays import GrowingArray


class RowOffsets:
    """Offsets by row, never descending. One thread writes; 16 bytes a run."""

    def __init__(self) -> None:
        self._docs = GrowingArray(np.int64)
        self._offsets = GrowingArray(np.int64)
        self._num_runs = 0
        self._next = -1
        """Offset that would continue the last run."""

    @property
    def nbytes(self) -> int:
        return 16 * self._num_runs

    def append(self, doc: int, offsets: NDArray[np.int64]) -> None:
        """Add the offsets of rows from a doc on."""
        if not len(offsets):
            return
        before = np.concatenate([[self._next - 1 if self._num_runs else offsets[0] - 2], offsets[:-1]])
        begins = np.flatnonzero(offsets - before != 1)
        self._docs.put(self._num_runs, begins + doc)
        self._offsets.put(self._num_runs, offsets[begins])
        self._num_runs += len(begins)
        self._next = int(offsets[-1]) + 1

    def docs_before(self, offset: int, num_docs: int) -> int:
        """Return the number of rows with a lower offset."""
        docs, offsets = self._docs.view(self._num_runs), self._offsets.view(self._num_runs)
        run = int(np.searchsorted(offsets, offset)) - 1
        if run < 0:
            return 0
        end = int(docs[run + 1]) if run + 1 < self._num_runs else num_docs
        return min(end, int(docs[run]) + offset - int(offsets[run]))

    def of(self, doc: int) -> int:
        """Return the offset of a row."""
        docs = self._docs.view(self._num_runs)
        run = int(np.searchsorted(docs, doc, side="right")) - 1
        return int(self._offsets.view(self._num_runs)[run]) + doc - int(docs[run])

    def since(self, doc: int, num_docs: int) -> NDArray[np.int64]:
        """Return the offsets of the rows from a doc on."""
        wanted = np.arange(doc, num_docs)
        docs = self._docs.view(self._num_runs)
        runs = np.searchsorted(docs, wanted, side="right") - 1
        offsets: NDArray[np.int64] = self._offsets.view(self._num_runs)[runs] + wanted - docs[runs]
        return offsets
