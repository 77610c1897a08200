"""Mode DEDUP: which rows of a batch are the first of their keys. The others are nowhere afterwards.

So only rows that are kept raise the largest value seen, and whoever replays the rows that are stored comes to the same
state. A row is kept as well if the one before it is past its time to live, by the rule of `expiry`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from merlot.kernels import upsert as kernels
from merlot.upsert.expiry import Watermark, limits
from merlot.upsert.index import KeyIndex
from merlot.upsert.keys import Keys
from merlot.upsert.rules import Rules

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Firsts:
    """What became of the rows of a batch, (N,) each, and how far the partition has come."""

    kept: Flags
    late: Flags
    mark: Watermark


def first_rows(
    rules: Rules, index: KeyIndex, mark: Watermark, keys: Keys, values: Longs, sent_ms: Longs | None
) -> Firsts:
    """The rows whose keys are not in the index, or dead there; the index stays as it is."""
    numbers, firsts = _numbered(keys)
    known = index.find(Keys(keys.high[firsts], keys.low[firsts]))
    kept, late = np.zeros(len(values), np.bool_), np.zeros(len(values), np.bool_)
    to_live = -1 if rules.time_to_live is None else int(rules.time_to_live)
    largest = kernels.keep_first(
        numbers,
        values,
        limits(rules, sent_ms, len(values)),
        known.is_there,
        known.values,
        mark.largest,
        to_live,
        mark.frozen.alive_from,
        rules.skips_late,
        kept,
        late,
    )
    return Firsts(kept, late, replace(mark, largest=int(largest)))


def _numbered(keys: Keys) -> tuple[Longs, Longs]:
    """A number for each different key of the rows, and the first row of each."""
    order = np.lexsort((keys.low, keys.high))
    high, low = keys.high[order], keys.low[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return numbers, order[is_new]
