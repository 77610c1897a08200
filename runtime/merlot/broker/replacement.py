"""Segments that others replace: kept until all of their successors can answer, then exchanged in one snapshot.

A publish may remove names and add others in one stroke (a merge, a REFRESH push). The removed ones leave the view at
once, the new ones still have to be loaded; routing the view as it is would lose rows for seconds, and routing both
would count rows twice. A table has one replacement at a time; what happens meanwhile joins it.
"""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_MS = 5 * 60 * 1000
"""After this the exchange takes place, with exception 305 for what still has no replica."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """`leaving` are routed although their records are gone, `awaited` are not routed although some could be."""

    leaving: frozenset[str]
    awaited: frozenset[str]
    ends_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One step of the view: names that it has first now, and known names that it has no longer."""

    fresh: frozenset[str]
    removed: frozenset[str]
    now_ms: int

    def continue_from(self, before: Replacement | None) -> Replacement | None:
        """The replacement under way after this step, if any."""
        leaving = before.leaving if before is not None else frozenset()
        awaited = before.awaited if before is not None else frozenset()
        newly_removed = self.removed - leaving
        if newly_removed and self.fresh:
            leaving |= newly_removed
            awaited |= self.fresh
        leaving, awaited = leaving - self.fresh, awaited - self.removed
        if not leaving or not awaited:
            return None
        return Replacement(leaving, awaited, before.ends_ms if before is not None else self.now_ms + LONGEST_MS)
