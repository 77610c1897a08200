"""How far a level of a merge is, for people and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merlot.spec.tasks import MergeLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelOutlook:
    """How far a level is."""

    level: MergeLevel
    watermark_ms: int | None = None
    """None: there is no segment to begin with, or every bucket is looked at (processAll)."""
    delay: int = 0
    """Buckets between the first one to do and the last one that could be done by now; in mode processAll those that are
    to be done."""
    buckets_done: int = 0
    buckets_to_do: int = 0
    num_segments: int = 0
    """Segments that are the result of this level."""
    num_bytes: int = 0
    late_segments: int = 0
    """Segments below the level behind its watermark: only a coarser level or a backfill merges them."""
    late_docs: int = 0
    too_wide: int = 0
    """Segments that reach into too many buckets to be taken apart."""


def joined_outlook(parts: Sequence[LevelOutlook]) -> LevelOutlook:
    """Of the parts of a table together: as far as the part that is farthest behind."""
    watermarks = [one.watermark_ms for one in parts if one.watermark_ms is not None]
    return LevelOutlook(
        level=parts[0].level,
        watermark_ms=min(watermarks, default=None),
        delay=max(one.delay for one in parts),
        buckets_done=sum(one.buckets_done for one in parts),
        buckets_to_do=sum(one.buckets_to_do for one in parts),
        num_segments=sum(one.num_segments for one in parts),
        num_bytes=sum(one.num_bytes for one in parts),
        late_segments=sum(one.late_segments for one in parts),
        late_docs=sum(one.late_docs for one in parts),
        too_wide=sum(one.too_wide for one in parts),
    )
