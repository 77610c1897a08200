"""Valid docs of a partition's segments: one writer, any number of readers.

A reader takes `ValidDocs.cut`, one reference to all bits of the partition at one moment; nothing that a cut holds is
written to again. The writer copies the pages that it changes (8 KB, 65,536 docs) and replaces that reference once per
publication, so that a reader sees a row that moves between two segments exactly once: never in both, never in none.
Take the cut first and the rows after it: docs behind the bits of a cut are not valid in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from merlot.errors import CorruptionError
from merlot.kernels import roaring, scan
from merlot.kernels.upsert import clear_bits, set_bits

Longs = NDArray[np.int64]
Words = NDArray[np.uint64]

PAGE_BITS: Final = 16
PAGE_WORDS: Final = 1 << PAGE_BITS - 6
_NO_WORDS: Final = np.zeros(0, np.uint64)


@dataclass(frozen=True)
class Bits:
    """Immutable set of docs: a bit per doc."""

    pages: tuple[Words, ...] = ()
    count: int = 0
    """Number of set bits."""

    def changed(self, docs: Longs, *, to: bool) -> Bits:
        """Return the set with the bits of `docs`, in any order, changed."""
        if not len(docs):
            return self
        docs = np.sort(docs)
        pages = list(self.pages)
        while to and len(pages) <= int(docs[-1]) >> PAGE_BITS:
            pages.append(np.zeros(PAGE_WORDS, np.uint64))
        count = self.count
        numbers, firsts = np.unique(docs >> PAGE_BITS, return_index=True)
        stops = [*firsts[1:].tolist(), len(docs)]
        for number, first, stop in zip(numbers.tolist(), firsts.tolist(), stops, strict=True):
            if number >= len(pages):
                break
            page = pages[number].copy()
            inside = docs[first:stop] & (1 << PAGE_BITS) - 1
            count += set_bits(inside, page) if to else -clear_bits(inside, page)
            pages[number] = page
        return Bits(tuple(pages), count)

    @cached_property
    def words(self) -> Words:
        """Bits, lowest first, as far as there are pages."""
        if not self.pages:
            return _NO_WORDS
        words = self.pages[0] if len(self.pages) == 1 else np.concatenate(self.pages)
        words = words.view()
        words.flags.writeable = False
        return words

    def docs(self) -> Longs:
        """Return the docs whose bits are set."""
        docs = np.empty(self.count, np.uint32)
        scan.list_docs(np.array(self.words), 0, docs)
        return docs.astype(np.int64)

    def serialized(self) -> bytes:
        """Return a roaring bitmap in the portable format."""
        bitmap = BitMap(self.docs().astype(np.uint32))
        bitmap.run_optimize()
        return bytes(bitmap.serialize())

    @classmethod
    def deserialized(cls, data: bytes, num_docs: int) -> Self:
        """Parse the bytes of `serialized`; raise CorruptionError if they are no such bytes."""
        if roaring.count_bitmap(np.frombuffer(data, np.uint8), num_docs) < 0:
            raise CorruptionError(f"no roaring bitmap of valid docs bytes={len(data)} docs={num_docs}")
        docs = np.array(BitMap.deserialize(data).to_array(), np.int64)
        bits = cls().changed(docs, to=True)
        return cls(bits.pages, bits.count)


@dataclass(frozen=True)
class SegmentDocs:
    """Valid docs of one segment: live rows, and tombstones, rows that deleted their keys."""

    live: Bits = field(default_factory=Bits)
    tombstones: Bits = field(default_factory=Bits)

    @cached_property
    def valid(self) -> Words:
        """Bits of both."""
        if not self.tombstones.count:
            return self.live.words
        words = np.zeros(max(len(self.live.words), len(self.tombstones.words)), np.uint64)
        words[: len(self.live.words)] |= self.live.words
        words[: len(self.tombstones.words)] |= self.tombstones.words
        words.flags.writeable = False
        return words

    def docs(self) -> Longs:
        """Return the docs of both, ascending."""
        return np.sort(np.concatenate([self.live.docs(), self.tombstones.docs()]))

    @property
    def num_valid(self) -> int:
        """Number of valid docs."""
        return self.live.count + self.tombstones.count


class ValidDocsView:
    """Valid docs of every segment of a partition at one moment."""

    def __init__(self, segments: Mapping[int, SegmentDocs]) -> None:
        self.segments = MappingProxyType(dict(segments))

    def valid(self, segment: int) -> Words | None:
        """Return the bits of valid docs, lowest first; docs behind them are not valid. None: no such segment."""
        docs = self.segments.get(segment)
        return None if docs is None else docs.valid

    def queryable(self, segment: int) -> Words | None:
        """Return the bits of `valid` without tombstones."""
        docs = self.segments.get(segment)
        return None if docs is None else docs.live.words


@dataclass(frozen=True, slots=True, kw_only=True)
class BitChanges:
    """Changes of a partition's bits by one batch."""

    segment: int
    live: Longs
    """Docs of `segment` that became valid."""
    tombstones: Longs
    """Docs of `segment` that became valid tombstones."""
    cleared_segments: Longs
    cleared_docs: Longs
    """Docs that are no longer valid, with their segments."""


class ValidDocs:
    """The writer's side."""

    def __init__(self, cut: ValidDocsView | None = None) -> None:
        self._cut = cut or ValidDocsView({})

    @property
    def cut(self) -> ValidDocsView:
        """Present valid docs."""
        return self._cut

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return sum(
            [
                8 * PAGE_WORDS * (len(segment.live.pages) + len(segment.tombstones.pages))
                for segment in self._cut.segments.values()
            ]
        )

    def apply(self, changes: BitChanges) -> None:
        """Publish the changes of a batch, all at once."""
        segments = dict(self._cut.segments)
        order = np.argsort(changes.cleared_segments, kind="stable")
        numbers, firsts = np.unique(changes.cleared_segments[order], return_index=True)
        for number, docs in zip(numbers.tolist(), np.split(changes.cleared_docs[order], firsts[1:]), strict=False):
            if number in segments:
                segments[number] = _without(segments[number], docs)
        current = segments.get(changes.segment, SegmentDocs())
        segments[changes.segment] = SegmentDocs(
            current.live.changed(changes.live, to=True), current.tombstones.changed(changes.tombstones, to=True)
        )
        self._cut = ValidDocsView(segments)

    def exchange(self, removed: Mapping[int, Longs | None], target: int | None) -> None:
        """Publish at once that segments are gone and that the bits of their docs belong to `target` under new numbers.
        removed: the new numbers of each segment's docs, -1: none."""
        segments = dict(self._cut.segments)
        merged = SegmentDocs()
        for segment, numbers in removed.items():
            source = segments.pop(segment, SegmentDocs())
            if numbers is not None:
                live, tombstones = (_moved(bits, numbers) for bits in (source.live, source.tombstones))
                merged = SegmentDocs(merged.live.changed(live, to=True), merged.tombstones.changed(tombstones, to=True))
        if target is not None:
            segments[target] = merged
        self._cut = ValidDocsView(segments)

    def move_tail(self, segment: int, first_doc: int, target: int) -> None:
        """Publish that the docs of a segment from `first_doc` on are docs of another segment from 0 on."""
        segments = dict(self._cut.segments)
        source = segments.get(segment, SegmentDocs())
        live, tombstones = source.live.docs(), source.tombstones.docs()
        live, tombstones = live[live >= first_doc], tombstones[tombstones >= first_doc]
        segments[segment] = SegmentDocs(
            source.live.changed(live, to=False), source.tombstones.changed(tombstones, to=False)
        )
        segments[target] = SegmentDocs(
            Bits().changed(live - first_doc, to=True), Bits().changed(tombstones - first_doc, to=True)
        )
        self._cut = ValidDocsView(segments)


def _without(segment: SegmentDocs, docs: Longs) -> SegmentDocs:
    live = segment.live.changed(docs, to=False)
    if not segment.tombstones.count:
        return replace(segment, live=live)
    return SegmentDocs(live, segment.tombstones.changed(docs, to=False))


def _moved(bits: Bits, docs: Longs) -> Longs:
    held = bits.docs()
    moved = docs[held[held < len(docs)]]
    return moved[moved >= 0]
