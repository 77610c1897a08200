"""Values that kernels found in JSON texts, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels import json_scan

_FITS: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isin(
    np.arange(8), (json_scan.ABSENT, json_scan.NULL, json_scan.STRING, json_scan.INTEGER, json_scan.WORD)
)


@dataclass(frozen=True, slots=True)
class JsonValues:
    """Value of each text, or none: `data[begins[i]:begins[i] + lengths[i]]`, for a string the part between the quotes;
    kinds as of `kernels.json_scan`."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int32]
    kinds: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def nothing(self) -> NDArray[np.bool_]:
        """Mark the texts without a value, or with null."""
        is_nothing: NDArray[np.bool_] = self.kinds <= json_scan.NULL
        return is_nothing

    @property
    def is_written_once(self) -> bool:
        """True if each value is written in its canonical form. Values of the kinds NUMBER, ESCAPED and NESTED may have
        another form, as 1.50 and { } do."""
        return bool(_FITS[self.kinds].all())

    def at(self, rows: NDArray[np.int64]) -> JsonValues:
        """Return the values of some texts."""
        return JsonValues(self.data, self.begins[rows], self.lengths[rows], self.kinds[rows])

    def whole(self) -> NDArray[np.int64] | None:
        """Return whole numbers, 0 for nothing; None if other values are among them, or numbers of more than 18
        digits."""
        numbers = np.empty(len(self), np.int64)
        return None if json_scan.read_integers(self.data, self.begins, self.lengths, self.kinds, numbers) else numbers

    def doubles(self) -> NDArray[np.float64] | None:
        """Return numbers, 0 for nothing; None if other values are among them, or numbers with an exponent or more than
        15 digits."""
        numbers = np.empty(len(self), np.float64)
        return None if json_scan.read_doubles(self.data, self.begins, self.lengths, self.kinds, numbers) else numbers

    def texts(self) -> pa.StringArray:
        """Return the contents of strings, and the texts of other values; null for nothing."""
        used = int(self.lengths.sum(dtype=np.int64, where=self.kinds > json_scan.NULL))
        offsets, out = np.empty(len(self) + 1, np.int32), np.empty(used, np.uint8)
        json_scan.copy_texts(self.data, self.begins, self.lengths, self.kinds, offsets, out)
        nothing = self.nothing
        mask = pa.array(~nothing).buffers()[1] if nothing.any() else None
        return pa.Array.from_buffers(pa.string(), len(self), [mask, pa.py_buffer(offsets), pa.py_buffer(out)])

    def raw(self) -> pa.StringArray:
        """Return values as they are written, null among them; an absent value is the empty text."""
        quotes = ((self.kinds == json_scan.STRING) | (self.kinds == json_scan.ESCAPED)).astype(np.int32)
        is_absent = self.kinds == json_scan.ABSENT
        lengths = np.where(is_absent, 0, self.lengths + 2 * quotes).astype(np.int32)
        kinds = np.full(len(self), json_scan.NESTED, np.uint8)
        return JsonValues(self.data, self.begins - quotes, lengths, kinds).texts()
