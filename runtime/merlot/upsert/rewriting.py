"""Which docs of a segment stay when it is rewritten, and which doc of the new file each of them is, by their keys.

Of a key with one valid row in the segment, or none, that row stays. With a time to live a key has more where the older
ones had expired: then all its rows stay, since one of several could not be told from the others by its key. So a doc
of the old file is found in the new one by its key alone, by whoever has both.
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
"""Valid rows of one key from which on all its rows stay."""


def kept_docs(keys: Keys, valid: Longs) -> Longs:
    """The docs that stay, of a segment with these keys, ascending."""
    groups, number = _groups(keys)
    stays = np.bincount(groups[valid], minlength=number)[groups] >= FEW
    stays[valid] = True
    return np.flatnonzero(stays)


def new_numbers(old: Keys, valid: Longs, new: Keys) -> Longs | None:
    """The doc in the new file of each doc of the old one, -1: none. `valid`: docs of the old file that must be there.
    None if one of them is not, or might be another."""
    num_old, num_new = len(old.high), len(new.high)
    groups, number = _groups(joined([old, new]))
    of_old, of_new = groups[:num_old], groups[num_old:]
    in_old, in_new, in_valid = (np.bincount(some, minlength=number) for some in (of_old, of_new, of_old[valid]))
    are_all = in_old == in_new
    is_one = (in_new == 1) & (in_valid == 1)
    if (in_valid > 0)[~are_all & ~is_one].any():
        return None
    found = np.full(num_old, -1, np.int64)
    single = valid[is_one[of_old[valid]]]
    place_of = np.full(number, -1, np.int64)
    place_of[of_new] = np.arange(num_new)
    found[single] = place_of[of_old[single]]
    whole_old, whole_new = np.flatnonzero(are_all[of_old]), np.flatnonzero(are_all[of_new])
    # Stable, so rows of one key pair up in their order.
    by_old = whole_old[np.argsort(of_old[whole_old], kind="stable")]
    by_new = whole_new[np.argsort(of_new[whole_new], kind="stable")]
    found[by_old] = by_new
    return found if bool(np.all(np.diff(found[found >= 0]) > 0)) else None


def renumbered(snapshot: SegmentSnapshot, kept: Longs) -> SegmentSnapshot | None:
    """The same valid docs, numbered as in the file that has the kept ones; None if it lacks one."""
    docs = snapshot.docs()
    moved = []
    for bits in (docs.live, docs.tombstones):
        old = bits.docs()
        places = np.searchsorted(kept, old)
        if len(old) and (places[-1] >= len(kept) or not np.array_equal(kept[places], old)):
            return None
        moved.append(Bits().changed(places, to=True))
    return SegmentSnapshot.of(SegmentDocs(*moved), len(kept))


def _groups(keys: Keys) -> tuple[NDArray[np.int64], int]:
    """A number for each row, the same for the same key, and how many there are."""
    order = np.lexsort((keys.low, keys.high))
    high, low = keys.high[order], keys.low[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(is_first) - 1
    return groups, int(np.count_nonzero(is_first))
