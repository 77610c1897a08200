"""Segments that change together: kept as they are until all that replaces them can answer, then exchanged at once.

A publish may remove names, add others and bring new versions of some in one stroke (a REFRESH push, a hand-made
merge). Routing each name as soon as it can be would lose rows for seconds, or count them twice. So the names of such a
stroke form an *exchange*: none of them changes its route until every new version among them has a replica. Exchanges
that share a name are one; others do not wait for each other. Replacements that have an entry in the lineage need none
of this: see `switching`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from merlot.cluster.records import SegmentRecord

LONGEST_MS = 5 * 60 * 1000
"""After this an exchange takes place, with exception 305 for what still has no replica."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Names whose routes stay as they are for now."""

    names: frozenset[str]
    ends_ms: int


def arriving(before: Mapping[str, SegmentRecord], now: Mapping[str, SegmentRecord]) -> frozenset[str]:
    """Names that a step of the table exchanges; none if each of its changes stands alone.

    Mere additions do, mere removals, and one new version by itself. Everything else may have moved rows between them.
    """
    if before is now:
        return frozenset()
    changed = {name for name, record in now.items() if name in before and before[name].crc != record.crc}
    removed = before.keys() - now.keys()
    fresh = now.keys() - before.keys()
    names = frozenset(removed | changed | fresh)
    stands_alone = not changed and not (removed and fresh)
    return frozenset() if stands_alone or len(names) == 1 else names


def joined(under_way: Iterable[Exchange], names: frozenset[str], now_ms: int) -> tuple[Exchange, ...]:
    """The exchanges under way once these names have to change together too."""
    if not names:
        return tuple(under_way)
    apart = []
    ends_ms = now_ms + LONGEST_MS
    for one in under_way:
        if one.names.isdisjoint(names):
            apart.append(one)
        else:
            names |= one.names
            ends_ms = min(ends_ms, one.ends_ms)
    return (*apart, Exchange(names, ends_ms))
