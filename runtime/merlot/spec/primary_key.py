"""Placement of primary keys in the two words of 8 bytes that an index holds per key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from merlot.values.types import TypeName

WORD_BYTES: Final = 8
KEY_BYTES: Final[Mapping[TypeName, int]] = {
    TypeName.INT: 4,
    TypeName.LONG: 8,
    TypeName.FLOAT: 4,
    TypeName.DOUBLE: 8,
    TypeName.BOOLEAN: 4,
    TypeName.TIMESTAMP: 8,
}
"""Bytes of a value, for types whose values all have the same size."""


def places_of(widths: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return the word and the first bit of each column; None unless all fit into two words. A width of 0 does not
    fit."""
    filled = [0, 0]
    places = []
    for width in widths:
        word = next((word for word in (0, 1) if width and filled[word] + width <= WORD_BYTES), None)
        if word is None:
            return None
        places.append((word, 8 * filled[word]))
        filled[word] += width
    return places
