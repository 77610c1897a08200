"""Decide which docs of a segment stay when it is rewritten, and find each of them in the new file by its key.

If a key has at most one valid row in the segment, only that row stays. With a time to live, a key may have several
valid rows, if the older rows had expired when the newer rows came; then all its rows stay, since the key alone could
not tell them apart. So a reader of both files can find a doc of the old file in the new file by its key alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from merlot.upsert.checkpoint import SegmentSnapshot
from merlot.upsert.keys import Keys, joined
from merlot.upsert.valid_docs import Bits, SegmentDocs

Longs = NDArray[np.int64]

FEW: Final = 2
"""Number of valid rows of a key from which on all its rows stay."""


def kept_docs(keys: Keys, valid: Longs) -> Longs:
    """Return the docs that stay of a segment with these keys, ascending."""
    groups, number = _groups(keys)
    stays = np.bincount(groups[valid], minlength=number)[groups] >= FEW
    stays[valid] = True
    return np.flatnonzero(stays)


def new_numbers(old: Keys, valid: Longs, new: Keys) -> Longs | None:
    """Return the number in the new file of each doc of the old file; -1: none. valid: docs of the old file that the new
    file must have. None if one of these is missing or ambiguous, or if the files have docs in different orders."""
    num_old, num_new = len(old.high), len(new.high)
    groups, number = _groups(joined([old, new]))
    of_old, of_new = groups[:num_old], groups[num_old:]
    in_old, in_new, in_valid = (np.bincount(some, minlength=number) for some in (of_old, of_new, of_old[valid]))
    are_all = in_old == in_new
    is_one = (in_new == 1) & (in_valid == 1)
    if (in_valid > 0)[~are_all & ~is_one].any():
        return None
    numbers = np.full(num_old, -1, np.int64)
    single = valid[is_one[of_old[valid]]]
    place_of = np.full(number, -1, np.int64)
    place_of[of_new] = np.arange(num_new)
    numbers[single] = place_of[of_old[single]]
    whole_old, whole_new = np.flatnonzero(are_all[of_old]), np.flatnonzero(are_all[of_new])
    # Stable, so rows of one key pair up in their order.
    by_old = whole_old[np.argsort(of_old[whole_old], kind="stable")]
    by_new = whole_new[np.argsort(of_new[whole_new], kind="stable")]
    numbers[by_old] = by_new
    return numbers if bool(np.all(np.diff(numbers[numbers >= 0]) > 0)) else None


def renumbered(snapshot: SegmentSnapshot, docs: Longs) -> SegmentSnapshot | None:
    """Renumber the valid docs for a file that holds only these docs; None if a valid doc is missing."""
    valid = snapshot.docs()
    moved = []
    for bits in (valid.live, valid.tombstones):
        old = bits.docs()
        places = np.searchsorted(docs, old)
        if len(old) and (places[-1] >= len(docs) or not np.array_equal(docs[places], old)):
            return None
        moved.append(Bits().changed(places, to=True))
    return SegmentSnapshot.of(SegmentDocs(*moved), len(docs))


def _groups(keys: Keys) -> tuple[NDArray[np.int64], int]:
    """Return a number for each row, equal for equal keys, and how many numbers there are."""
    order = np.lexsort((keys.low, keys.high))
    high, low = keys.high[order], keys.low[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(is_first) - 1
    return groups, int(np.count_nonzero(is_first))
