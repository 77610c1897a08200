"""Sealed segments that minions rewrite without the rows that were replaced (UpsertCompactionTask): both sides of it.

Before: `Settled` is what may be told of valid docs. A row that is consumed may come to nothing, and what it replaced
would be valid again; so only what sealed rows have replaced is told, by a cut that was taken when a segment began and
holds once all that it was told of is sealed.

After: the new file has some docs of the old one in the same order, among them all that are valid. Which, is found by
their keys (`upsert.rewriting`), so that a replica needs nobody's word for it; a file that lacks a valid doc is refused.
Brokers ask for either file for a while: the bits of the old one follow from those of the new one (`Former`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from merlot.cluster.consuming.merged import merged_sequences
from merlot.cluster.records import StreamSegmentRecord
from merlot.upsert.valid_docs import Bits, Cut

Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
Records = Mapping[int, StreamSegmentRecord]

MOST_TOLD: Final = 20
"""Segments of a partition of which is told how many docs were replaced: those with most."""


@dataclass(frozen=True)
class Settled:
    """Valid docs of a partition's sealed segments, as sealed rows alone decide. Any thread."""

    cut: Cut = field(default_factory=lambda: Cut({}))
    numbers: Mapping[str, int] = field(default_factory=dict)
    """What the cut calls them, by `name@crc`."""
    num_docs: Mapping[str, int] = field(default_factory=dict)

    def bitmap(self, keys: Sequence[str]) -> tuple[bytes, int] | None:
        """The docs of segments that are not replaced, as a roaring bitmap, numbered from one segment to the next, and
        how many docs these have; None if one is none of these."""
        parts, first = [np.zeros(0, np.int64)], 0
        for key in keys:
            found = None if key not in self.numbers else self.cut.segments.get(self.numbers[key])
            if found is None:
                return None
            parts.append(first + found.docs())
            first += self.num_docs[key]
        return Bits().changed(np.concatenate(parts), to=True).serialized(), first

    @cached_property
    def replaced(self) -> dict[str, int]:
        """How many docs of segments were replaced, of those with most."""
        counts = {key: docs - self._num_valid(key) for key, docs in self.num_docs.items()}
        worst = sorted((key for key, count in counts.items() if count), key=lambda key: (-counts[key], key))
        return {key: counts[key] for key in worst[:MOST_TOLD]}

    def _num_valid(self, key: str) -> int:
        found = self.cut.segments.get(self.numbers[key])
        return 0 if found is None else found.num_valid


@dataclass(frozen=True, slots=True)
class Taken:
    """A cut, and how many docs of each segment it was told of, by sequence."""

    cut: Cut
    numbers: Mapping[int, int]
    told: Mapping[int, int]

    def settled(self, records: Records, keys: Mapping[int, str]) -> Settled | None:
        """What it tells once all that it was told of is sealed; None before that. `keys`: by which files the docs of
        segments are numbered."""
        for sequence, told in self.told.items():
            record = records.get(sequence)
            if told and record is not None and (record.is_open or (sequence not in keys and told > record.total_docs)):
                return None
        sealed = {
            sequence: record.key_text
            for sequence, record in records.items()
            if not record.is_open and self.told.get(sequence) == record.total_docs
            if keys.get(sequence) == record.key_text
        }
        return Settled(
            self.cut,
            {key: self.numbers[sequence] for sequence, key in sealed.items()},
            {key: self.told[sequence] for sequence, key in sealed.items()},
        )

    def without(self, sequences: Collection[int]) -> Taken:
        """The same, but for segments whose docs have other numbers by now."""
        told = {sequence: docs for sequence, docs in self.told.items() if sequence not in sequences}
        return replace(self, told=told)


@dataclass(frozen=True)
class Former:
    """A file that another one has taken the place of."""

    sequence: int
    """Of the segment whose file that is: of another one, if segments were merged."""
    num_docs: int
    docs: Longs
    """The doc here of each doc there; -1: one that is not valid."""

    def behind(self, sequence: int, docs: Longs) -> Former:
        """The same, now that yet another file is there, each doc of which was that one there, or -1: none."""
        return Former(sequence, self.num_docs, np.where(docs >= 0, self.docs[docs], -1))

    def words(self, newer: Words | None) -> Words:
        """The bits of its docs, by those of the newer file."""
        found = np.zeros(((self.num_docs + 63) >> 6) * 64, np.bool_)
        if newer is not None:
            bits = np.unpackbits(np.ascontiguousarray(newer).view(np.uint8), bitorder="little")[: len(self.docs)]
            held = self.docs[: len(bits)][bits.astype(np.bool_)]
            found[held[held >= 0]] = True
        return np.packbits(found, bitorder="little").view(np.uint64)


def files_to_keep(keys_of: Mapping[int, Mapping[int, str]], records: Iterable[StreamSegmentRecord]) -> set[str]:
    """Return the files that docs are still numbered by although the records name others in their place.

    `keys_of`: by partition and sequence, the file by which an index numbers the docs of a sealed segment.
    """
    found: set[str] = set()
    for record in records:
        keys = keys_of.get(record.partition, {})
        if not record.is_open and keys.get(record.sequence, record.key_text) != record.key_text:
            found.update(keys[sequence] for sequence in {record.sequence, *merged_sequences(record)} & keys.keys())
    return found
