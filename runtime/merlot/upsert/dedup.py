"""Mode DEDUP: find the rows of a batch that are the first of their keys; the others are dropped.

Only rows that stay raise the largest value seen, so a replay of the stored rows arrives at the same state. A row also
stays if the row before it has outlived its time to live, by the rule of `expiry`.
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
    """Verdicts on the rows of a batch, (N,) each, and the watermark after it."""

    is_kept: Flags
    late: Flags
    mark: Watermark


def first_rows(
    rules: Rules, index: KeyIndex, mark: Watermark, keys: Keys, values: Longs, sent_ms: Longs | None
) -> Firsts:
    """Find the rows whose keys are not in the index, or dead there; the index stays unchanged."""
    numbers, firsts = _numbered(keys)
    present = index.find(Keys(keys.high[firsts], keys.low[firsts]))
    is_kept, late = np.zeros(len(values), np.bool_), np.zeros(len(values), np.bool_)
    to_live = -1 if rules.time_to_live is None else int(rules.time_to_live)
    largest = kernels.keep_first(
        numbers,
        values,
        limits(rules, sent_ms, len(values)),
        present.is_there,
        present.values,
        mark.largest,
        to_live,
        mark.frozen.alive_from,
        rules.skips_late,
        is_kept,
        late,
    )
    return Firsts(is_kept, late, replace(mark, largest=int(largest)))


def _numbered(keys: Keys) -> tuple[Longs, Longs]:
    """Number the distinct keys of the rows; return each row's number and the first row of each key."""
    order = np.lexsort((keys.low, keys.high))
    high, low = keys.high[order], keys.low[order]
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return numbers, order[is_new]
