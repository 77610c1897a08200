"""Bloom filters of one column, of all segments: a constant is looked up in all of them at once.

Filters lie one after another in one array; a constant's block in each of them follows from the hash and the filter's
length alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.hashing import WORDS_PER_BLOCK, find_holders, masks_of
from merlot.query.pruning.verdicts import NONE, SOME, Verdicts, constant
from merlot.segment.index.bloom import hashes_of
from merlot.values.types import TypeName

MAX_QUESTIONS: Final = 1 << 17
"""Most lookups (segments times values of an IN). More would cost more than they save."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentBloom:
    """Filter of one segment, and the type by which its values were hashed."""

    stored: TypeName
    words: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _BloomGroup:
    """Segments whose values were hashed as one type."""

    stored: TypeName
    positions: NDArray[np.intp]
    starts: NDArray[np.uint64]
    """First block of each filter in `words`."""
    num_blocks: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ColumnBlooms:
    """Filters by segment; a segment without one may hold anything."""

    num_segments: int
    words: NDArray[np.uint32] = field(repr=False)
    groups: tuple[_BloomGroup, ...]

    @classmethod
    def of(cls, blooms: Sequence[SegmentBloom | None]) -> ColumnBlooms:
        """Return the filters of a column, given that of each segment; None for a segment without a filter."""
        present = [(position, bloom) for position, bloom in enumerate(blooms) if bloom is not None]
        sizes = np.array([len(bloom.words) // WORDS_PER_BLOCK for _, bloom in present], np.int64)
        starts = np.cumsum(sizes) - sizes
        words = np.concatenate([bloom.words for _, bloom in present]) if present else np.zeros(0, np.uint32)
        groups = []
        for stored in dict.fromkeys(bloom.stored for _, bloom in present):
            mine = np.array([bloom.stored is stored for _, bloom in present], np.bool_)
            positions = np.array([position for position, _ in present], np.intp)[mine]
            own = (array[mine].astype(np.uint64) for array in (starts, sizes))
            groups.append(_BloomGroup(stored, positions, *own))
        return cls(len(blooms), words, tuple(groups))

    @property
    def num_known(self) -> int:
        """Number of segments that have a filter."""
        return sum(len(group.positions) for group in self.groups)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = [array for group in self.groups for array in (group.positions, group.starts, group.num_blocks)]
        return self.words.nbytes + sum(array.nbytes for array in arrays)

    def holding(self, values: Sequence[Any]) -> Verdicts:
        """Return NONE for segments that hold no row with any of these values, SOME for the others."""
        verdicts = constant(self.num_segments, SOME)
        if len(values) * self.num_segments > MAX_QUESTIONS:
            return verdicts
        for group in self.groups:
            hashes_of_values = [hashes_of(group.stored, value) for value in values]
            if None in hashes_of_values:
                continue
            of_group = constant(len(group.positions), NONE)
            for hash_ in {hash_ for hashes in hashes_of_values for hash_ in hashes or ()}:
                masks = masks_of(hash_)
                find_holders(np.uint64(hash_), masks, self.words, group.starts, group.num_blocks, of_group)
            verdicts[group.positions] = of_group
        return verdicts
