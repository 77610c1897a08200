"""Change the routes of several segments at once, when all that replaces them can answer.

A publish may remove names, add others and bring new versions of some in one step (a REFRESH push, a hand-made merge).
If each name were routed as soon as it could be, rows would be missing for seconds, or counted twice. So the names of
such a step form an *atomic swap*: none of them changes its route until every new version among them has a replica.
Swaps that share a name become one; others do not wait for each other. Replacements that have an entry in the
lineage are switched by `lineage_switching` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from merlot.cluster.records import SegmentRecord

LONGEST_MS = 5 * 60 * 1000
"""Longest wait of a swap. After it the new versions are routed, with exception 305 for those without a replica."""


@dataclass(frozen=True, slots=True)
class AtomicSwap:
    """Segments whose routes stay as they are until all of them can change."""

    names: frozenset[str]
    ends_ms: int


def changing_together(before: Mapping[str, SegmentRecord], now: Mapping[str, SegmentRecord]) -> frozenset[str]:
    """Return the names that have to change together between two states of the table; none if each change stands alone.

    Additions alone, removals alone and a single new version stand alone. Any other change may have moved rows between
    segments."""
    if before is now:
        return frozenset()
    changed = {name for name, record in now.items() if name in before and before[name].crc != record.crc}
    removed = before.keys() - now.keys()
    fresh = now.keys() - before.keys()
    names = frozenset(removed | changed | fresh)
    stands_alone = not changed and not (removed and fresh)
    return frozenset() if stands_alone or len(names) == 1 else names


def with_swap(under_way: Iterable[AtomicSwap], names: frozenset[str], now_ms: int) -> tuple[AtomicSwap, ...]:
    """Add a swap of `names` to those under way; swaps that share a name become one."""
    if not names:
        return tuple(under_way)
    apart = []
    ends_ms = now_ms + LONGEST_MS
    for swap in under_way:
        if swap.names.isdisjoint(names):
            apart.append(swap)
        else:
            names |= swap.names
            ends_ms = min(ends_ms, swap.ends_ms)
    return (*apart, AtomicSwap(names, ends_ms))
