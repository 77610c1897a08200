"""Progress of a level of a merge, for users and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merlot.spec.tasks import MergeLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelOutlook:
    """Progress of a level."""

    level: MergeLevel
    watermark_ms: int | None = None
    """None if there is no segment to begin with, or every bucket is looked at (processAll)."""
    delay: int = 0
    """Number of buckets between the first to do and the last that could be done by now; in mode processAll, of buckets
    to do."""
    buckets_done: int = 0
    buckets_to_do: int = 0
    num_segments: int = 0
    """Number of segments that this level made."""
    num_bytes: int = 0
    late_segments: int = 0
    """Number of segments below the level and behind its watermark. Only a coarser level or a backfill merges them."""
    late_docs: int = 0
    too_wide: int = 0
    """Number of segments that reach into too many buckets to be merged."""


def joined_outlook(parts: Sequence[LevelOutlook]) -> LevelOutlook:
    """Join the outlooks of a table's parts. The watermark is the earliest of theirs, the delay the greatest."""
    watermarks = [part.watermark_ms for part in parts if part.watermark_ms is not None]
    return LevelOutlook(
        level=parts[0].level,
        watermark_ms=min(watermarks, default=None),
        delay=max(part.delay for part in parts),
        buckets_done=sum(part.buckets_done for part in parts),
        buckets_to_do=sum(part.buckets_to_do for part in parts),
        num_segments=sum(part.num_segments for part in parts),
        num_bytes=sum(part.num_bytes for part in parts),
        late_segments=sum(part.late_segments for part in parts),
        late_docs=sum(part.late_docs for part in parts),
        too_wide=sum(part.too_wide for part in parts),
    )
