"""What queries see of a partition of an upsert table: one reference to all that is here, and to which docs count."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from merlot.segment.partly import PartlyValid
from merlot.segment.reader import Segment, SomeDocs
from merlot.server.realtime.line import Line
from merlot.server.realtime.rewritten import Former
from merlot.upsert.valid_docs import Cut

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class View:
    """A partition at one moment: what is here, and which docs of it are valid. Any thread.

    Rows may come while it is looked at; docs behind its bits are not valid."""

    line: Line
    cut: Cut
    numbers: Mapping[int, int]
    """What the index calls the segments, by sequence."""
    keys: Mapping[int, str] = field(default_factory=dict)
    """Files of segments, as `name@crc`, by which their docs are numbered: none yet of a segment that is not sealed."""
    former: Mapping[str, Former] = field(default_factory=dict)
    """Files that those have taken the place of, and that may be asked for still."""
    _known: dict[tuple[int, int, int], SomeDocs] = field(default_factory=dict)

    def dressed(self, sequence: int, segment: Segment) -> Segment | None:
        """The segment with its docs that are rows of the table; None if the index does not have it."""
        former = self.former.get(str(segment.key)) if self.former else None
        number = self.numbers.get(sequence if former is None else former.sequence)
        if number is None or (segment.key.crc and not self.knows(sequence, str(segment.key))):
            return None
        key = (sequence, segment.key.crc, segment.num_docs)
        valid = self._known.get(key)
        if valid is None:
            valid = self._known[key] = self._valid(number, segment.num_docs, former)
        return PartlyValid(segment, valid)

    def knows(self, sequence: int, key: str) -> bool:
        """Whether it is known which docs of a sealed segment's file count."""
        former = self.former.get(key)
        if former is not None:
            return former.sequence in self.numbers
        return sequence in self.numbers and self.keys.get(sequence, key) == key

    def without_files(self, sequences: Collection[int]) -> View:
        """The same rows, of which sealed files of some segments are not known: their docs may be others."""
        return replace(self, keys={**self.keys, **dict.fromkeys(sequences, "")}) if sequences else self

    def _valid(self, number: int, num_docs: int, former: Former | None) -> SomeDocs:
        newest, every = self.cut.queryable(number), self.cut.valid(number)
        if former is not None:
            words = former.words(newest)
            return SomeDocs(words, None if every is newest else former.words(every))
        words = fitted(newest, num_docs)
        return SomeDocs(words, None if every is newest else fitted(every, num_docs))


def fitted(words: Words | None, num_docs: int) -> Words:
    """Bits of so many docs; those that are not there are 0."""
    size = (num_docs + 63) >> 6
    found = np.zeros(size, np.uint64)
    if words is not None:
        found[: len(words)] = words[:size]
    if num_docs & 63:
        found[-1] &= (np.uint64(1) << np.uint64(num_docs & 63)) - np.uint64(1)
    return found
