"""Points and polygons: Pinot's bytes of them, their well-known text, and their positions relative to each other.

The bytes are those of its GeometrySerializer: a type (0 is a point, 4 a polygon; the highest bit marks geography), then
big-endian numbers. A point is x and y. A polygon has the number of rings, the number of all their points, the place
where each ring begins, and the points: first the shell, clockwise, then its holes, counter-clockwise. A ring ends where
it begins.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Final

Spot = tuple[float, float]
"""x and y; for geography longitude and latitude, in degrees."""
GEOGRAPHY: Final = 0x80
POINT, POLYGON = 0, 4
POINT_BYTES: Final = 17
_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_SPOT: Final = rf"\s*{_NUMBER}\s+{_NUMBER}\s*"
_RING: Final = rf"\s*\({_SPOT}(?:,{_SPOT})*\)\s*"
_POINT: Final = re.compile(rf"\s*POINT\s*\(({_SPOT})\)\s*", re.IGNORECASE)
_POLYGON: Final = re.compile(rf"\s*POLYGON\s*\(({_RING}(?:,{_RING})*)\)\s*", re.IGNORECASE)
_LEAST_RING: Final = 4


@dataclass(frozen=True, slots=True)
class Geometry:
    """Point, whose single ring is one spot, or polygon."""

    kind: int
    rings: tuple[tuple[Spot, ...], ...]
    is_geography: bool = False

    @property
    def is_point(self) -> bool:
        return self.kind == POINT


def write(geometry: Geometry) -> bytes:
    """Return the geometry in Pinot's bytes."""
    kind = geometry.kind | (GEOGRAPHY if geometry.is_geography else 0)
    numbers = [number for ring in geometry.rings for spot in ring for number in spot]
    if geometry.is_point:
        return struct.pack(">Bdd", kind, *numbers)
    starts = [sum(map(len, geometry.rings[:place])) for place in range(len(geometry.rings))]
    head = struct.pack(f">Bii{len(starts)}i", kind, len(starts), len(numbers) // 2, *starts)
    return head + struct.pack(f">{len(numbers)}d", *numbers)


def read(data: bytes) -> Geometry | None:
    """Read a geometry from Pinot's bytes; return None for other bytes, and for other kinds of geometry."""
    kind = data[0] & ~GEOGRAPHY if data else -1
    is_geography = bool(data) and bool(data[0] & GEOGRAPHY)
    if kind == POINT and len(data) == POINT_BYTES:
        return Geometry(POINT, ((struct.unpack_from(">dd", data, 1),),), is_geography)
    if kind != POLYGON or len(data) < 9:
        return None
    num_rings, num_spots = struct.unpack_from(">ii", data, 1)
    if num_rings < 1 or num_spots < _LEAST_RING or len(data) != 9 + 4 * num_rings + 16 * num_spots:
        return None
    bounds = (*struct.unpack_from(f">{num_rings}i", data, 9), num_spots)
    numbers = struct.unpack_from(f">{2 * num_spots}d", data, 9 + 4 * num_rings)
    spots = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    if bounds[0] != 0 or any(b - a < _LEAST_RING for a, b in pairwise(bounds)):
        return None
    return Geometry(POLYGON, tuple(spots[a:b] for a, b in pairwise(bounds)), is_geography)


def from_text(text: str, *, is_geography: bool) -> Geometry | None:
    """Parse well-known text, and turn rings as `write` needs them. Return None for other text, and for a ring that is
    not closed or has fewer than four points."""
    point = _POINT.fullmatch(text)
    if point is not None:
        return Geometry(POINT, ((_spot(point[1]),),), is_geography)
    polygon = _POLYGON.fullmatch(text)
    if polygon is None:
        return None
    rings = [tuple(map(_spot, ring.split(","))) for ring in re.findall(r"\(([^()]*)\)", polygon[1])]
    if any(len(ring) < _LEAST_RING or ring[0] != ring[-1] for ring in rings):
        return None
    turned = tuple(ring if _is_clockwise(ring) == (place == 0) else ring[::-1] for place, ring in enumerate(rings))
    return Geometry(POLYGON, turned, is_geography)


def to_text(geometry: Geometry) -> str:
    """Return well-known text, as JTS writes it."""
    rings = [", ".join(f"{_plain(x)} {_plain(y)}" for x, y in ring) for ring in geometry.rings]
    if geometry.is_point:
        return f"POINT ({rings[0]})"
    return f"POLYGON ({', '.join(f'({ring})' for ring in rings)})"


def contains(outer: Geometry, inner: Geometry) -> bool | None:
    """Return True if a point lies within, which excludes the edges of a polygon; None if `inner` is a polygon."""
    if not inner.is_point:
        return None
    spot = inner.rings[0][0]
    if outer.is_point:
        return outer.rings[0][0] == spot
    shell, *holes = outer.rings
    return _side(shell, spot) > 0 and all(_side(hole, spot) < 0 for hole in holes)


def _spot(text: str) -> Spot:
    x, y = map(float, text.split())
    return x, y


def _plain(number: float) -> str:
    if math.isfinite(number):
        return format(Decimal(repr(number)), "f").removesuffix(".0") if number else "0"
    return "NaN" if math.isnan(number) else "Inf" if number > 0 else "-Inf"


def _is_clockwise(ring: Sequence[Spot]) -> bool:
    return sum((bx - ax) * (by + ay) for (ax, ay), (bx, by) in pairwise(ring)) > 0


def _side(ring: Sequence[Spot], spot: Spot) -> int:
    """Return 1 if the spot is inside a ring, 0 on it, -1 outside. A ray to the right from a spot inside
    crosses the ring an odd number of times."""
    x, y = spot
    is_within = False
    for (ax, ay), (bx, by) in pairwise(ring):
        turn = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        if turn == 0 and min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by):
            return 0
        if (ay > y) != (by > y) and (turn > 0) == (by > ay):
            is_within = not is_within
    return 1 if is_within else -1
