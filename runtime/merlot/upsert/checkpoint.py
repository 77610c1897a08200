"""What a partition keeps of itself at a commit: its valid docs and how far it has come. Plain data, for any store.

A checkpoint's bits are the truth about rows before its end offset: they are never derived again, because the keys that
decided them may have expired. Recovery takes them, enters the docs that are still alive into the index, and goes on
with the stream from the end offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from merlot.upsert.expiry import Watermark
from merlot.upsert.valid_docs import Bits, Cut, SegmentDocs


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSnapshot:
    """The valid docs of one segment, as portable roaring bitmaps."""

    num_docs: int
    live: bytes
    tombstones: bytes

    @classmethod
    def of(cls, docs: SegmentDocs, num_docs: int) -> SegmentSnapshot:
        """The snapshot of a segment in a cut."""
        return cls(num_docs=num_docs, live=docs.live.serialized(), tombstones=docs.tombstones.serialized())

    def docs(self) -> SegmentDocs:
        """The valid docs; raises CorruptionError if the bytes are not what they should be."""
        return SegmentDocs(*(Bits.deserialized(data, self.num_docs) for data in (self.live, self.tombstones)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A partition at an offset of its stream."""

    end_offset: int
    """The first message that is not in it."""
    watermark: Watermark
    segments: Mapping[int, SegmentSnapshot]
    """By segment number."""

    def cut(self) -> Cut:
        """The valid docs of all segments; raises CorruptionError."""
        return Cut({number: snapshot.docs() for number, snapshot in self.segments.items()})
