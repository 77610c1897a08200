"""Checkpoint of a partition at a commit: its valid docs and its offset. Plain data, for any store.

The bits of a checkpoint are the truth about rows before its end offset. They are never derived again, because the keys
that decided them may have expired. Recovery takes them, enters the docs that are still alive into the index, and
continues with the stream from the end offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from merlot.upsert.expiry import Watermark
from merlot.upsert.valid_docs import Bits, SegmentDocs, ValidDocsView


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSnapshot:
    """Valid docs of one segment as portable roaring bitmaps."""

    num_docs: int
    live: bytes
    tombstones: bytes

    @classmethod
    def of(cls, docs: SegmentDocs, num_docs: int) -> SegmentSnapshot:
        """Return the snapshot of a segment in a cut."""
        return cls(num_docs=num_docs, live=docs.live.serialized(), tombstones=docs.tombstones.serialized())

    def docs(self) -> SegmentDocs:
        """Return the valid docs; raise CorruptionError if the bytes are no such bitmaps."""
        return SegmentDocs(*(Bits.deserialized(data, self.num_docs) for data in (self.live, self.tombstones)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheckpoint:
    """State of a partition at an offset of its stream."""

    end_offset: int
    """Offset of the first message that is not included."""
    watermark: Watermark
    segments: Mapping[int, SegmentSnapshot]
    """Snapshots by segment number."""

    def cut(self) -> ValidDocsView:
        """Return the valid docs of all segments; raise CorruptionError."""
        return ValidDocsView({number: snapshot.docs() for number, snapshot in self.segments.items()})
