"""Check images of KLL sketches of doubles before the library reads them, because it trusts their contents.

An image begins with the length of its preamble, a version, a family, flags, K and M. A single value follows it. If
there are more values, a body follows: the number of values, the least K of the merged sketches, the number of levels
and where each begins, the least and the greatest value, and the retained values. A value of level n stands for 2^n
values.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa

from merlot.aggregates.sketches import SketchError

NO_SKETCH: Final = "bytes are no serialized KLL sketch of doubles"
_HEAD: Final = struct.Struct("<BBBBHBB")
_BODY: Final = struct.Struct("<QHBB")
_FAMILY: Final = 15
_EMPTY, _SINGLE = 1, 4
_SHORT, _FULL = 2, 5
"""Length of the preamble in words of four bytes, without and with a body."""
_M: Final = 8
_LEAST_K: Final = 8
_MOST_LEVELS: Final = 60
_THIRDS: Final[tuple[int, ...]] = tuple(3**power for power in range(31))


def checked(stored: pa.Array) -> pa.Array:
    """Return the images unchanged. Raise SketchError if one of them is neither empty nor a valid sketch."""
    for row, image in enumerate(stored.to_pylist()):
        if image and not is_sound(image):
            raise SketchError(NO_SKETCH, row)
    return stored


def has_values(image: bytes) -> bool:
    """Return False for empty bytes, and for a valid sketch without values, which is a head alone."""
    return len(image) > _HEAD.size


def with_sorted_first_level(image: bytes) -> bytes:
    """Return the same sketch with its lowest level sorted. The image of a sketch of few values then does not depend on
    the order in which they arrived."""
    if image[0] != _FULL:
        return image
    _, _, num_levels, _ = _BODY.unpack_from(image, _HEAD.size)
    start = _HEAD.size + _BODY.size
    bounds = np.frombuffer(image, "<u4", num_levels, start)
    values_at = start + 4 * num_levels + 2 * 8
    size = int(bounds[1] - bounds[0]) if num_levels > 1 else (len(image) - values_at) // 8
    ordered = np.sort(np.frombuffer(image, "<f8", size, values_at))
    return image[:values_at] + ordered.tobytes() + image[values_at + 8 * size :]


def is_sound(image: bytes) -> bool:
    """Return True if the image is consistent, so that the library can read it safely."""
    if len(image) < _HEAD.size:
        return False
    preamble_words, version, family, flags, k, m, _ = _HEAD.unpack_from(image)
    if family != _FAMILY or m != _M or k < _LEAST_K:
        return False
    if flags & _EMPTY:
        return preamble_words == _SHORT and version == 1 and len(image) == _HEAD.size
    if flags & _SINGLE:
        is_whole = preamble_words == _SHORT and version == 2 and len(image) == _HEAD.size + 8
        # Only NaN, which no sketch takes, differs from itself.
        return is_whole and struct.unpack_from("<d", image, _HEAD.size)[0] == struct.unpack_from("<d", image, 8)[0]
    return (
        preamble_words == _FULL and version == 1 and len(image) >= _HEAD.size + _BODY.size and _is_sound_body(image, k)
    )


def _is_sound_body(image: bytes, k: int) -> bool:
    number, least_k, num_levels, _ = _BODY.unpack_from(image, _HEAD.size)
    start = _HEAD.size + _BODY.size
    if not _LEAST_K <= least_k <= k or not 1 <= num_levels <= _MOST_LEVELS or len(image) < start + 4 * num_levels:
        return False
    capacity = sum(_level_capacity(k, num_levels, level) for level in range(num_levels))
    bounds = np.append(np.frombuffer(image, "<u4", num_levels, start).astype(np.int64), capacity)
    sizes = np.diff(bounds)
    values_at = start + 4 * num_levels
    if (sizes < 0).any() or len(image) != values_at + 8 * (2 + int(sizes.sum())):
        return False
    if sum(int(size) << level for level, size in enumerate(sizes)) != number or number < 1:
        return False
    least, greatest, *_ = bounds_and_values = np.frombuffer(image, "<f8", -1, values_at)
    values = bounds_and_values[2:]
    if not ((values >= least) & (values <= greatest)).all():
        return False
    # All levels but the first are sorted.
    positions = bounds - bounds[0]
    levels = (values[positions[level] : positions[level + 1]] for level in range(1, num_levels))
    return all(bool((level_values[1:] >= level_values[:-1]).all()) for level_values in levels)


def _level_capacity(k: int, num_levels: int, level: int) -> int:
    """Return the capacity of a level: two thirds of the level above, and at least M."""
    depth = num_levels - level - 1
    if depth <= 30:
        return max(_M, _scaled(k, depth))
    half = depth // 2
    return max(_M, _scaled(_scaled(k, half), depth - half))


def _scaled(k: int, depth: int) -> int:
    doubled: int = (k << 1 << depth) // _THIRDS[depth]
    return (doubled + 1) >> 1
