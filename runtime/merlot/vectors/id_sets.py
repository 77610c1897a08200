"""Pinot's IdSets: whole numbers as roaring bitmaps, in base 64. Read-only, shared by threads.

The first byte is the kind: 0 for no ids, 1 for INTs, 2 for LONGs, 3 for a Bloom filter. INTs are a bitmap in its
portable form. LONGs are written as Java's Roaring64NavigableMap writes them: a byte, the number of bitmaps, and each
bitmap behind the high 32 bits of its ids.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from merlot.kernels.jit import read_only
from merlot.kernels.roaring import count_bitmap
from merlot.values.types import TypeName
from merlot.vectors import account

_NOTHING, _INTS, _LONGS, _BLOOM = range(4)
_HEAD: Final = struct.Struct(">bi")
_HIGH: Final = struct.Struct(">i")
_WINDOW: Final = 1 << 10
"""Bytes of a text in which a bitmap is looked for first."""


class IdSetError(ValueError):
    """Raised if a text is no id set that can be read."""


@dataclass(frozen=True, slots=True)
class RoaringIdSet:
    """Bitmaps of low 32 bits by the high ones, and the type of the ids; None if there are no ids."""

    type: TypeName | None
    bitmaps: dict[int, Any]

    def holds(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Mark the ids that are in the set. A bitmap may stand for more ids than there is memory, so it is never
        expanded. Raise what the query's check raises."""
        wide = ids.astype(np.int64)
        lows = wide.astype(np.uint32)
        if self.type is not TypeName.LONG:
            return _members(self.bitmaps.get(0, BitMap()), lows)
        is_held = np.zeros(len(ids), np.bool_)
        order = np.argsort(wide, kind="stable")
        highs, words = wide[order] >> 32, np.fromiter(self.bitmaps, np.int64, len(self.bitmaps))
        starts, stops = np.searchsorted(highs, words, "left"), np.searchsorted(highs, words, "right")
        check = account.current().account.check
        for at in np.flatnonzero(starts < stops):
            if check is not None:
                check()
            rows = order[starts[at] : stops[at]]
            is_held[rows] = _members(self.bitmaps[int(words[at])], lows[rows])
        return is_held


def _members(bitmap: Any, lows: NDArray[np.uint32]) -> NDArray[np.bool_]:
    members = np.array(BitMap(lows) & bitmap, np.uint32)
    return np.isin(lows, members)


def write(type_: TypeName, ids: NDArray[Any]) -> str:
    """Return the text of a set of distinct ids, INT or LONG. Raise what the query's check raises."""
    if not len(ids):
        data = bytes([_NOTHING])
    elif type_ is TypeName.INT:
        data = bytes([_INTS]) + BitMap(ids.astype(np.int64).astype(np.uint32)).serialize()
    else:
        wide = np.sort(ids.astype(np.int64).view(np.uint64))
        highs, starts = np.unique(wide >> np.uint64(32), return_index=True)
        lows, words = wide.astype(np.uint32), highs.astype(np.uint32).view(np.int32).tolist()
        edges = pairwise([*starts.tolist(), len(wide)])
        parts = (
            _HIGH.pack(word) + BitMap(lows[start:stop]).serialize()
            for word, (start, stop) in zip(words, edges, strict=True)
        )
        data = b"".join([bytes([_LONGS]), _HEAD.pack(0, len(words)), *account.gathered(parts)])
    return base64.b64encode(data).decode()


def read(text: str) -> RoaringIdSet:
    """Return the set that a text spells. Raise IdSetError."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = b""
    kind = data[0] if data else -1
    if kind == _NOTHING and len(data) == 1:
        return RoaringIdSet(None, {})
    if kind == _BLOOM:
        raise IdSetError("is a Bloom filter, which is not supported: make it of INTs or LONGs")
    if kind == _INTS:
        bitmap, size = _bitmap(memoryview(data)[1:])
        if size == len(data) - 1:
            return RoaringIdSet(TypeName.INT, {0: bitmap})
    if kind == _LONGS and len(data) >= 1 + _HEAD.size:
        return RoaringIdSet(TypeName.LONG, _bitmaps(memoryview(data)))
    raise IdSetError("is no text that ID_SET has answered")


def _bitmaps(data: memoryview) -> dict[int, Any]:
    _, number = _HEAD.unpack_from(data, 1)
    position = 1 + _HEAD.size
    bitmaps: dict[int, Any] = {}
    while len(bitmaps) < number and position + _HIGH.size < len(data):
        (high,) = _HIGH.unpack_from(data, position)
        position += _HIGH.size
        bitmaps[high], size = _bitmap(data[position:])
        position += size
    if len(bitmaps) != number or position != len(data):
        raise IdSetError("is no text that ID_SET has answered")
    return bitmaps


def _bitmap(data: memoryview) -> tuple[Any, int]:
    """Return the bitmap that bytes begin with, and the number of its bytes."""
    most = _WINDOW
    while count_bitmap(read_only(np.frombuffer(data[:most], np.uint8)), 1 << 32) < 0:
        if most >= len(data):
            raise IdSetError("is no text that ID_SET has answered")
        most *= 2
    bitmap = BitMap.deserialize(bytes(data[:most]))
    return bitmap, len(bitmap.serialize())
