"""View that queries have of a partition of an upsert table: one reference to its log and its valid docs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from merlot.segment.reader import Segment, SomeDocs
from merlot.segment.segment_view import SegmentView
from merlot.server.realtime.partition_log import PartitionLog
from merlot.server.realtime.rewritten import ReplacedFile
from merlot.upsert.valid_docs import ValidDocsView

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class UpsertView:
    """Log and valid docs of a partition at one moment. Any thread.

    Rows may come while it is read; docs behind its bits are not valid."""

    log: PartitionLog
    cut: ValidDocsView
    numbers: Mapping[int, int]
    """Numbers of the segments in the index, by sequence."""
    keys: Mapping[int, str] = field(default_factory=dict)
    """Files (`name@crc`) of segments by which their docs are numbered; none yet for a segment that is not sealed."""
    former: Mapping[str, ReplacedFile] = field(default_factory=dict)
    """Files that these have replaced, and that may still be asked for."""
    _valid_docs: dict[tuple[int, int, int], SomeDocs] = field(default_factory=dict)

    def masked(self, sequence: int, segment: Segment) -> Segment | None:
        """Return the segment masked with its valid docs; None if the index does not have it."""
        former = self.former.get(str(segment.key)) if self.former else None
        number = self.numbers.get(sequence if former is None else former.sequence)
        if number is None or (segment.key.crc and not self.knows(sequence, str(segment.key))):
            return None
        key = (sequence, segment.key.crc, segment.num_docs)
        valid = self._valid_docs.get(key)
        if valid is None:
            valid = self._valid_docs[key] = self._valid(number, segment.num_docs, former)
        return SegmentView(segment, valid)

    def knows(self, sequence: int, key: str) -> bool:
        """Return True if the valid docs of a sealed segment's file are known."""
        former = self.former.get(key)
        if former is not None:
            return former.sequence in self.numbers
        return sequence in self.numbers and self.keys.get(sequence, key) == key

    def without_files(self, sequences: Collection[int]) -> UpsertView:
        """Return the same rows without the sealed files of these segments: their docs may be others."""
        return replace(self, keys={**self.keys, **dict.fromkeys(sequences, "")}) if sequences else self

    def _valid(self, number: int, num_docs: int, former: ReplacedFile | None) -> SomeDocs:
        newest, every = self.cut.queryable(number), self.cut.valid(number)
        if former is not None:
            words = former.words(newest)
            return SomeDocs(words, None if every is newest else former.words(every))
        words = fitted(newest, num_docs)
        return SomeDocs(words, None if every is newest else fitted(every, num_docs))


def fitted(words: Words | None, num_docs: int) -> Words:
    """Return bits of `num_docs` docs; docs that are not in `words` are 0."""
    size = (num_docs + 63) >> 6
    bits = np.zeros(size, np.uint64)
    if words is not None:
        bits[: len(words)] = words[:size]
    if num_docs & 63:
        bits[-1] &= (np.uint64(1) << np.uint64(num_docs & 63)) - np.uint64(1)
    return bits
