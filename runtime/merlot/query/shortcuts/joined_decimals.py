"""BIG_DECIMAL of joined segments: whole numbers of one scale where 64 bits hold them, and texts for whoever asks.

A text is a number's only one, so texts that are made of numbers are those that the segments have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merlot.segment.reader import Reader, ScaledReader
from merlot.vectors.scaled import Scaled, raised, scaled_of, texts_of


class JoinedDecimals:
    """Values of a dictionary, or of every doc. What is worked out is kept; threads that come at once agree."""

    __slots__ = ("_is_unscaled", "_scaled", "_texts")

    def __init__(self, texts: pa.Array | None, scaled: Scaled | None = None) -> None:
        """One of them may be missing."""
        self._texts = texts
        self._scaled = scaled
        self._is_unscaled = False

    @property
    def is_scaled(self) -> bool:
        """Whether the numbers are at hand."""
        return self._scaled is not None

    def scaled(self) -> Scaled | None:
        """The numbers, None where 64 bits may not hold them."""
        if self._scaled is None and not self._is_unscaled:
            self._scaled = scaled_of(self.texts())
            self._is_unscaled = self._scaled is None
        return self._scaled

    def texts(self) -> pa.Array:
        """Plain texts."""
        if self._texts is None:
            assert self._scaled is not None
            self._texts = texts_of(self._scaled.values, self._scaled.scale)
            assert self._texts is not None
        return self._texts

    @property
    def nbytes(self) -> int:
        """Memory of what is kept."""
        of_texts = 0 if self._texts is None else self._texts.nbytes
        return of_texts + (0 if self._scaled is None else self._scaled.values.nbytes)


def joined_decimals(readers: Sequence[Reader]) -> JoinedDecimals:
    """Every value of single-value columns, one of which at least has no dictionary."""
    parts = [_scaled(reader) for reader in readers]
    known = [part for part in parts if part is not None]
    if len(known) == len(parts):
        scale = max(part.scale for part in known)
        joined = [raised(part, scale) for part in known]
        if all(part is not None for part in joined):
            return JoinedDecimals(None, _concatenated([part for part in joined if part is not None], scale))
    return JoinedDecimals(pa.concat_arrays([_texts(reader) for reader in readers]))


def _concatenated(parts: Sequence[Scaled], scale: int) -> Scaled:
    values = np.concatenate([part.values for part in parts])
    values.flags.writeable = False
    return Scaled(values, scale, min(part.low for part in parts), max(part.high for part in parts))


def _scaled(reader: Reader) -> Scaled | None:
    """By doc."""
    found = reader.scaled() if isinstance(reader, ScaledReader) else scaled_of(_by_id_or_doc(reader))
    if found is None or reader.dictionary is None:
        return found
    return Scaled(found.values[reader.dict_ids()], found.scale, found.low, found.high)


def _texts(reader: Reader) -> pa.Array:
    """By doc."""
    texts = _by_id_or_doc(reader)
    return texts if reader.dictionary is None else texts.take(pa.array(reader.dict_ids()))


def _by_id_or_doc(reader: Reader) -> pa.Array:
    return reader.strings() if reader.dictionary is None else reader.dictionary.arrow()
