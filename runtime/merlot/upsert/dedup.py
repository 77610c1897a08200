"""Tables that keep the first row of each key, and drop the others.

A row is a duplicate if its key is in the index and alive, by the rule of `expiry`; what it replaces is never asked.
Duplicates count for the largest value seen, and are nowhere afterwards: so a partition that is loaded from its stored
rows takes its watermark from the last commit. One thread.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels.upsert import OLDER, PRESENT
from merlot.upsert.expiry import Watermark, advance
from merlot.upsert.index import Entries, KeyIndex
from merlot.upsert.rules import Rules

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


class PartitionDedup:
    """The keys of a partition; of the rules, keys, one comparison column and its time to live count."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._index = KeyIndex(1)
        self._mark = Watermark()

    @property
    def watermark(self) -> Watermark:
        """How far the partition has come."""
        return self._mark

    @property
    def num_keys(self) -> int:
        """Keys in memory."""
        return self._index.num_keys

    @property
    def memory_bytes(self) -> int:
        """Memory that the keys take."""
        return self._index.nbytes

    def add(self, rows: pa.Table, sent_ms: Longs | None = None) -> Flags:
        """Which rows are the first of their keys; the others are to be dropped."""
        values = self._rules.comparison_values(rows)
        self._mark, (alive_from, _) = advance(self._mark, self._rules, values[:, 0].copy(), sent_ms)
        return self._enter(rows, values, alive_from)

    def load(self, rows: pa.Table) -> None:
        """Take rows that were kept before."""
        values = self._rules.comparison_values(rows)
        self._mark, (alive_from, _) = advance(self._mark, self._rules, values[:, 0].copy(), None)
        self._enter(rows, values, alive_from)

    def resume(self, watermark: Watermark) -> None:
        """Go on from a commit's watermark, after the rows up to it were loaded."""
        self._mark = watermark

    def committed(self) -> None:
        """A segment of the partition was committed: let dead keys go."""
        self._index.prune(*self._mark.bounds(self._rules))

    def _enter(self, rows: pa.Table, values: Longs, alive_from: Longs) -> Flags:
        entries = Entries(
            keys=self._rules.keys.of(rows),
            values=values,
            places=np.full(rows.num_rows, PRESENT),
            alive_from=alive_from,
            deleted_from=alive_from,
        )
        self._index.upsert(entries, keeps_first=True)
        first: Flags = entries.verdicts != OLDER
        return first
