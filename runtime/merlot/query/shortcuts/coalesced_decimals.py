"""BIG_DECIMAL columns of coalesced segments: whole numbers of one scale if 64 bits hold them, else texts.

A number has exactly one text, so texts made from the numbers equal the texts that the segments store.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from merlot.segment.concat import concat_values
from merlot.segment.reader import Reader, ScaledReader
from merlot.vectors.scaled import Scaled, raised, scaled_of, texts_of


class CoalescedDecimals:
    """Values of a dictionary, or of every doc. Numbers or texts that are computed are kept; threads agree on them."""

    __slots__ = ("_is_unscaled", "_scaled", "_texts")

    def __init__(self, texts: pa.Array | None, scaled: Scaled | None = None) -> None:
        """Either argument may be None, but not both."""
        self._texts = texts
        self._scaled = scaled
        self._is_unscaled = False

    @property
    def is_scaled(self) -> bool:
        """True if the numbers are computed."""
        return self._scaled is not None

    def scaled(self) -> Scaled | None:
        """Return the numbers; None if 64 bits may not hold them."""
        if self._scaled is None and not self._is_unscaled:
            self._scaled = scaled_of(self.texts())
            self._is_unscaled = self._scaled is None
        return self._scaled

    def texts(self) -> pa.Array:
        """Return the numbers as plain texts."""
        if self._texts is None:
            assert self._scaled is not None
            self._texts = texts_of(self._scaled.values, self._scaled.scale)
            assert self._texts is not None
        return self._texts

    @property
    def nbytes(self) -> int:
        """Memory of the numbers and texts that are kept."""
        of_texts = 0 if self._texts is None else self._texts.nbytes
        return of_texts + (0 if self._scaled is None else self._scaled.values.nbytes)


def coalesce_decimals(readers: Sequence[Reader]) -> CoalescedDecimals:
    """Concatenate the values of single-value columns, at least one of which has no dictionary."""
    parts = [_scaled(reader) for reader in readers]
    scaled = [part for part in parts if part is not None]
    if len(scaled) == len(parts):
        scale = max(part.scale for part in scaled)
        numbers = [raised(part, scale) for part in scaled]
        if all(part is not None for part in numbers):
            return CoalescedDecimals(None, _concatenated([part for part in numbers if part is not None], scale))
    return CoalescedDecimals(concat_values([_texts(reader) for reader in readers]))


def _concatenated(parts: Sequence[Scaled], scale: int) -> Scaled:
    values = np.concatenate([part.values for part in parts])
    values.flags.writeable = False
    return Scaled(values, scale, min(part.low for part in parts), max(part.high for part in parts))


def _scaled(reader: Reader) -> Scaled | None:
    """Return the number of each doc; None if 64 bits may not hold them."""
    scaled = reader.scaled() if isinstance(reader, ScaledReader) else scaled_of(_by_id_or_doc(reader))
    if scaled is None or reader.dictionary is None:
        return scaled
    return Scaled(scaled.values[reader.dict_ids()], scaled.scale, scaled.low, scaled.high)


def _texts(reader: Reader) -> pa.Array:
    """Return the text of each doc."""
    texts = _by_id_or_doc(reader)
    return texts if reader.dictionary is None else texts.take(pa.array(reader.dict_ids()))


def _by_id_or_doc(reader: Reader) -> pa.Array:
    return reader.strings() if reader.dictionary is None else reader.dictionary.arrow()
