"""Sealed segments that minions rewrite without the rows that were replaced (UpsertCompactionTask): both sides of it.

Before: a server tells minions the valid docs in `SettledDocs`. A consumed row may be given up, and the row that it
replaced would be valid again. So only rows that sealed rows have replaced are reported: the valid docs are taken when a
segment begins, and reported once all rows that they are based on are sealed.

After: the new file has some docs of the old file in the same order, among them all that are valid. Their keys say which
(`upsert.rewriting`), so that a replica depends on nobody's word; a file that lacks a valid doc is refused. Brokers ask
for either file for a while: the bits of the old file follow from those of the new file (`ReplacedFile`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from merlot.cluster.consuming.merged import merged_sequences
from merlot.cluster.records import StreamSegmentRecord
from merlot.upsert.valid_docs import Bits, ValidDocsView

Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
Records = Mapping[int, StreamSegmentRecord]

MOST_REPORTED: Final = 20
"""Most segments of a partition whose number of replaced docs is reported: those with most."""

MOST_UNSETTLED: Final = 100
"""Most segments of a partition that are reported as not settled. There are more only while an index is built."""


@dataclass(frozen=True)
class SettledDocs:
    """Valid docs of a partition's sealed segments, as sealed rows alone decide. Any thread."""

    cut: ValidDocsView = field(default_factory=lambda: ValidDocsView({}))
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Numbers of the segments in the cut, by `name@crc`."""
    num_docs: Mapping[str, int] = field(default_factory=dict)

    def bitmap(self, keys: Sequence[str]) -> tuple[bytes, int] | None:
        """Return the docs of segments that are not replaced, as a roaring bitmap, numbered from one segment to the
        next, and the number of all their docs. None if a segment is not settled."""
        parts, first = [np.zeros(0, np.int64)], 0
        for key in keys:
            docs = None if key not in self.numbers else self.cut.segments.get(self.numbers[key])
            if docs is None:
                return None
            parts.append(first + docs.docs())
            first += self.num_docs[key]
        return Bits().changed(np.concatenate(parts), to=True).serialized(), first

    @cached_property
    def replaced(self) -> dict[str, int]:
        """Number of replaced docs, for the segments with most."""
        counts = {key: docs - self._num_valid(key) for key, docs in self.num_docs.items()}
        worst = sorted((key for key, count in counts.items() if count), key=lambda key: (-counts[key], key))
        return {key: counts[key] for key in worst[:MOST_REPORTED]}

    def unsettled(self, records: Iterable[StreamSegmentRecord]) -> tuple[str, ...]:
        """Return the keys of sealed segments whose valid docs nobody can ask for yet, the first ones."""
        keys = (record.key_text for record in records if not record.is_open and record.total_docs)
        return tuple(islice((key for key in keys if key not in self.numbers), MOST_UNSETTLED))

    def _num_valid(self, key: str) -> int:
        docs = self.cut.segments.get(self.numbers[key])
        return 0 if docs is None else docs.num_valid


@dataclass(frozen=True, slots=True)
class DocsAtStart:
    """Valid docs at one moment, and the number of docs of each segment that they are based on, by sequence."""

    cut: ValidDocsView
    numbers: Mapping[int, int]
    num_docs: Mapping[int, int]

    def settled(self, records: Records, keys: Mapping[int, str]) -> SettledDocs | None:
        """Return the settled docs once all that they are based on is sealed; None before that. `keys` are the files by
        which the docs of segments are numbered."""
        for sequence, docs in self.num_docs.items():
            record = records.get(sequence)
            if docs and record is not None and (record.is_open or (sequence not in keys and docs > record.total_docs)):
                return None
        sealed = {
            sequence: record.key_text
            for sequence, record in records.items()
            if not record.is_open and self.num_docs.get(sequence) == record.total_docs
            if keys.get(sequence) == record.key_text
        }
        return SettledDocs(
            self.cut,
            {key: self.numbers[sequence] for sequence, key in sealed.items()},
            {key: self.num_docs[sequence] for sequence, key in sealed.items()},
        )

    def without(self, sequences: Collection[int]) -> DocsAtStart:
        """Return the same without segments whose docs have other numbers by now."""
        num_docs = {sequence: docs for sequence, docs in self.num_docs.items() if sequence not in sequences}
        return replace(self, num_docs=num_docs)


@dataclass(frozen=True)
class ReplacedFile:
    """File that another file has replaced."""

    sequence: int
    """Sequence of the segment that has the new file; another segment's if segments were merged."""
    num_docs: int
    docs: Longs
    """Doc of this file for each doc of the new file; -1 for a doc that is not valid, or came from another file."""

    def behind(self, sequence: int, docs: Longs) -> ReplacedFile:
        """Return the same, now that yet another file is in its place. `docs`: for each doc of that file, its doc in the
        file before it, or -1."""
        return ReplacedFile(sequence, self.num_docs, np.where(docs >= 0, self.docs[docs], -1))

    def words(self, newer: Words | None) -> Words:
        """Return the bits of its docs, computed from those of the newer file."""
        is_valid = np.zeros(((self.num_docs + 63) >> 6) * 64, np.bool_)
        if newer is not None:
            bits = np.unpackbits(np.ascontiguousarray(newer).view(np.uint8), bitorder="little")[: len(self.docs)]
            held = self.docs[: len(bits)][bits.astype(np.bool_)]
            is_valid[held[held >= 0]] = True
        return np.packbits(is_valid, bitorder="little").view(np.uint64)


def files_to_keep(keys_of: Mapping[int, Mapping[int, str]], records: Iterable[StreamSegmentRecord]) -> set[str]:
    """Return the files that docs are still numbered by although the records name others in their place.

    `keys_of`: by partition and sequence, the file by which an index numbers the docs of a sealed segment.
    """
    files: set[str] = set()
    for record in records:
        keys = keys_of.get(record.partition, {})
        if not record.is_open and keys.get(record.sequence, record.key_text) != record.key_text:
            files.update(keys[sequence] for sequence in {record.sequence, *merged_sequences(record)} & keys.keys())
    return files
