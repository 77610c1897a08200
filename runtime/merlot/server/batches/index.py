"""Index of one partition's keys, built from the segments of an edition in their order. One thread at a time.

An edition that continues the previous edition costs only its new rows. Any other edition is built anew from all of its
segments: a row that is gone may have replaced others, and the index does not remember which. The old index is freed
first; what it has decided stays in the views, so that a server never holds the keys twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.errors import MerlotError
from merlot.segment import lost_pages
from merlot.segment.reader import Segment
from merlot.segment.taken import taken_column
from merlot.segment.under_schema import column_under
from merlot.server.batches.views import EditionView
from merlot.upsert.partition import PartitionUpserts, Stats
from merlot.upsert.rules import Rules

READ_DOCS: Final = 1 << 20
"""Docs of a segment that are read at a time."""


class StoppedError(MerlotError):
    """Raised when the server ends, or the table does."""


class PartitionIndex:
    """Valid docs of the segments of one partition; `stats` and `num_misplaced` are for any thread."""

    def __init__(
        self, misplaced: Callable[[pa.Table], int], should_stop: Callable[[], bool], *, read_docs: int = READ_DOCS
    ) -> None:
        self._misplaced = misplaced
        self._read_docs = read_docs
        self._should_stop = should_stop
        self._index: PartitionUpserts | None = None
        self._rules: Rules | None = None
        self._added: list[str] = []
        self.num_misplaced = 0
        """Number of rows that belong to another partition, by what the table declares."""

    @property
    def stats(self) -> Stats:
        """Counts of keys and docs."""
        index = self._index
        return Stats() if index is None else index.stats

    def unread(self, keys: tuple[str, ...], rules: Rules) -> tuple[str, ...]:
        """Return the segments that have to be read to come to an edition of `keys`. Not to be called while `bring`
        runs."""
        return keys[len(self._added) :] if self._goes_on(keys, rules) else keys

    def bring(self, key: str, segments: Mapping[str, Segment], keys: tuple[str, ...], rules: Rules) -> EditionView:
        """Bring the index to the edition `key`, whose segments in order are `keys`.

        segments: at least the `unread` segments. Raises MerlotError if they cannot be read: the index is empty then."""
        if not self._goes_on(keys, rules):
            self.forget()
        if self._index is None:
            self._index, self._rules = PartitionUpserts(rules), rules
        try:
            for name in keys[len(self._added) :]:
                self._tell(self._index, segments[name])
                self._added.append(name)
        except BaseException:
            self.forget()
            raise
        return EditionView(key, {name: number for number, name in enumerate(keys)}, self._index.cut)

    def forget(self) -> None:
        """Free all keys."""
        self._index, self._rules, self._added, self.num_misplaced = None, None, [], 0

    def _goes_on(self, keys: tuple[str, ...], rules: Rules) -> bool:
        is_same = self._rules is not None and deciding(self._rules) == deciding(rules)
        return is_same and list(keys[: len(self._added)]) == self._added

    def _tell(self, index: PartitionUpserts, segment: Segment) -> None:
        number = len(self._added)
        for first in range(0, segment.num_docs, self._read_docs):
            if self._should_stop():
                raise StoppedError("index of keys is needed no more")
            docs = np.arange(first, min(first + self._read_docs, segment.num_docs), dtype=np.uint32)
            rows = _rows_at(segment, index.rules, docs)
            index.replay(rows, number, first)
            index.publish()
            self.num_misplaced += self._misplaced(rows)


def deciding(rules: Rules) -> tuple[object, ...]:
    """Return the parts of the rules that decide, beside the rows, which docs are valid."""
    return rules.identity, rules.deletes_by


def _rows_at(segment: Segment, rules: Rules, docs: NDArray[np.uint32]) -> pa.Table:
    with lost_pages.watched("index of keys"):
        return pa.table({field.name: taken_column(column_under(segment, field), docs) for field in rules.fields})
