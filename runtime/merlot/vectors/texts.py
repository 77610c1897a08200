"""Texts as kernels read them: offsets, and the bytes that they delimit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.kernels.find import find_parts
from merlot.values.number_text import java_text

ASCII: Final = 0x80
"""Lowest byte that is no character of its own."""


def text_buffers(texts: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return the offsets, i32 or i64, and the bytes of texts without nulls, read-only as those of a mapped column are.
    The first offset of a slice can be above 0."""
    is_large = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    width = np.int64 if is_large else np.int32
    _, offsets, data = texts.buffers()
    if offsets is None or len(texts) == 0:
        return _frozen(np.zeros(1, width)), _frozen(np.zeros(0, np.uint8))
    bounds = np.frombuffer(offsets, width)[texts.offset : texts.offset + len(texts) + 1]
    return _frozen(bounds), _frozen(np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8))


def is_ascii(texts: pa.Array) -> bool:
    """Return True if every character is one byte."""
    offsets, data = text_buffers(texts)
    return int(data[offsets[0] : offsets[-1]].max(initial=0)) < ASCII


def holds_parts(texts: pa.Array, parts: Sequence[str]) -> NDArray[np.bool_]:
    """Mark the texts that have all parts, none of them empty, in this order without overlap."""
    offsets, data = text_buffers(texts)
    encoded = [part.encode() for part in parts]
    starts = np.cumsum([0, *map(len, encoded)])
    is_match = np.zeros(len(texts), np.uint8)
    find_parts(offsets, data, _frozen(np.frombuffer(b"".join(encoded), np.uint8)), starts, is_match)
    return is_match.view(np.bool_)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def float_texts(numbers: Any) -> pa.Array:
    """Return FLOAT or DOUBLE numbers as Java writes them. Python writes only small, large and non-finite numbers in
    another way."""
    texts = numbers.astype(str).astype(object)
    size = np.abs(numbers)
    others = np.flatnonzero(~((size >= 1e-3) & (size < 1e7) | (size == 0)))
    texts[others] = [java_text(text) for text in texts[others]]
    return pa.array(texts, pa.string())
