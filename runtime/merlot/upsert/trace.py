"""Undo log of a partition's last rows, from which its valid docs as of a slightly earlier row can be restored.

When replicas agree on a segment's end, they may have consumed rows behind it already. The effects of these rows are
then undone, so that on every replica the bits as of the end are a function of the stream. Rows are remembered for as
long as that takes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.upsert import DELETED, MAX_SEGMENT
from merlot.upsert.valid_docs import Bits, SegmentDocs, ValidDocsView

Longs = NDArray[np.int64]

REMEMBERED_ROWS: Final = 1 << 19
"""Number of rows that are remembered, 16 bytes each: more than are consumed while replicas agree on an end."""


@dataclass(frozen=True, slots=True)
class Traced:
    """Rows of a batch: docs of a segment from `first_doc` on."""

    segment: int
    first_doc: int
    replaced: Longs
    """Place (`kernels.upsert`) of the row that each row replaced; 0: none. `move_tail` renumbers places."""
    before: Longs
    """Largest comparison value of the partition before each row."""

    def __len__(self) -> int:
        return len(self.replaced)

    def tail(self, doc: int) -> Traced:
        """Return the rows from a doc on."""
        start = min(max(doc - self.first_doc, 0), len(self))
        return replace(
            self, first_doc=self.first_doc + start, replaced=self.replaced[start:], before=self.before[start:]
        )


class Trace:
    """Last rows of a partition. Used by one thread."""

    def __init__(self, remembered_rows: int = REMEMBERED_ROWS) -> None:
        self._remembered_rows = remembered_rows
        self._batches: deque[Traced] = deque()
        self._num_rows = 0

    def add(self, batch: Traced) -> None:
        """Remember a batch. Forget the oldest batches as long as `remembered_rows` rows are left."""
        if not len(batch):
            return
        self._batches.append(batch)
        self._num_rows += len(batch)
        while self._num_rows - len(self._batches[0]) >= self._remembered_rows:
            self._num_rows -= len(self._batches.popleft())

    def clear(self) -> None:
        """Forget everything."""
        self._batches.clear()
        self._num_rows = 0

    def move_tail(self, segment: int, first_doc: int, target: int) -> None:
        """Renumber docs of a segment from `first_doc` on as docs of another segment from 0 on."""
        batches, self._batches = self._batches, deque()
        for old in batches:
            batch = replace(old, replaced=_moved(old.replaced, segment, first_doc, target))
            if batch.segment != segment:
                self._batches.append(batch)
                continue
            tail = batch.tail(first_doc)
            num_left = len(batch) - len(tail)
            if num_left:
                self._batches.append(replace(batch, replaced=batch.replaced[:num_left], before=batch.before[:num_left]))
            if len(tail):
                self._batches.append(replace(tail, segment=target, first_doc=tail.first_doc - first_doc))

    def since(self, segment: int, doc: int, stop: int) -> list[Traced] | None:
        """Return the rows of a segment from a doc up to `stop`; None if not all of them are remembered."""
        batches = [tail for batch in self._batches if batch.segment == segment and len(tail := batch.tail(doc))]
        return batches if sum(map(len, batches)) == stop - doc else None


def undone(view: ValidDocsView, segment: int, num_docs: int, tail: list[Traced]) -> ValidDocsView:
    """Return the valid docs as they were before the rows of `tail`, when `segment` had `num_docs` docs."""
    segments = dict(view.segments)
    current = segments.get(segment, SegmentDocs())
    segments[segment] = SegmentDocs(_truncated(current.live, num_docs), _truncated(current.tombstones, num_docs))
    places = np.concatenate([batch.replaced for batch in tail])
    places = places[places != 0]
    numbers, docs, deleted = places >> 32 & MAX_SEGMENT, places & 0xFFFFFFFF, places & DELETED != 0
    is_restored = ~((numbers == segment) & (docs >= num_docs))
    for number in np.unique(numbers[is_restored]).tolist():
        if number in segments:
            in_segment = is_restored & (numbers == number)
            old = segments[number]
            segments[number] = SegmentDocs(
                old.live.changed(docs[in_segment & ~deleted], to=True),
                old.tombstones.changed(docs[in_segment & deleted], to=True),
            )
    return ValidDocsView(segments)


def _truncated(bits: Bits, num_docs: int) -> Bits:
    docs = bits.docs()
    return bits.changed(docs[docs >= num_docs], to=False)


def _moved(places: Longs, segment: int, first_doc: int, target: int) -> Longs:
    is_moved = (places != 0) & (places >> 32 & MAX_SEGMENT == segment) & (places & 0xFFFFFFFF >= first_doc)
    if not is_moved.any():
        return places
    flags = places & ~(MAX_SEGMENT << 32 | 0xFFFFFFFF)
    return np.where(is_moved, flags | target << 32 | (places & 0xFFFFFFFF) - first_doc, places)
