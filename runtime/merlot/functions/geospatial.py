"""ST_… functions of points and polygons, which are stored in BYTES as Pinot does it. Other geometries are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.functions import geometry
from merlot.functions.by_value import by_value
from merlot.functions.function import BINARY, ArgumentKind, Family, Parameter, VectorFunction, number, text
from merlot.functions.geometry import GEOGRAPHY, POINT, POINT_BYTES, POLYGON, Geometry
from merlot.tree.types import BYTES, DOUBLE, INT, STRING, SqlType
from merlot.values.types import TypeName
from merlot.vectors.texts import text_buffers
from merlot.vectors.vector import Attempt, Vector, failed

GEOSPATIAL: Final = Family("Geospatial")
EARTH_RADIUS_M: Final = 6_371_010.0
"""Radius of the earth in Pinot."""
_RECORD: Final = np.dtype([("kind", "u1"), ("x", ">f8"), ("y", ">f8")])
_TRUTH: Final = ArgumentKind("true or false, or 1 or 0", frozenset({TypeName.BOOLEAN, TypeName.INT, TypeName.LONG}))
_SHAPE: Final = Parameter(name="geometry", kind=BINARY)
_OTHER: Final = Parameter(name="other", kind=BINARY)
_UNREAD: Final = "is of a point or polygon, in Pinot's bytes, alone"
_POLYGON: Final = "POLYGON ((0 0, 0 4, 4 4, 4 0, 0 0), (1 1, 2 1, 2 2, 1 2, 1 1))"
Doubles = NDArray[np.float64]


def _rows(args: Sequence[Vector]) -> int:
    return max((len(arg.data) for arg in args if not arg.is_constant), default=1)


@GEOSPATIAL.strict(
    "stpoint",
    parameters=(
        number("x"),
        number("y"),
        Parameter(name="is_geography", kind=_TRUTH, is_constant=True, is_optional=True),
    ),
    result=BYTES,
    examples={
        "ST_ASTEXT(ST_POINT(-122.5, 37))": "POINT (-122.5 37)",
        "ST_POINT(1, 2, 1)": "803ff00000000000004000000000000000",
    },
)
def _point(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return points in bytes. For geography, x is the longitude and y the latitude, in degrees."""
    records = np.zeros(_rows(args), _RECORD)
    records["kind"] = GEOGRAPHY if len(args) > 2 and bool(args[2].data[()]) else POINT
    for name, arg in zip("xy", args, strict=False):
        records[name] = np.asarray(arg.data, np.float64)
    offsets = np.arange(len(records) + 1, dtype=np.int32) * np.int32(POINT_BYTES)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(records.tobytes())]
    points = pa.Array.from_buffers(pa.binary(), len(records), buffers)
    return points[0] if all(arg.is_constant for arg in args) else points


@GEOSPATIAL.strict(
    "stdistance",
    parameters=(_SHAPE, _OTHER),
    result=DOUBLE,
    examples={
        "ST_DISTANCE(ST_POINT(0, 0), ST_POINT(3, 4))": 5.0,
        "ROUNDDECIMAL(ST_DISTANCE(ST_POINT(-122, 37, 1), ST_POINT(-121, 37, 1)), 3)": 88803.948,
    },
)
def _distance(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the distance of two points in their own units, or for geography in metres on a sphere."""
    (x, y, kinds, is_lost), (x2, y2, kinds2, is_lost2) = map(_coordinates, args)
    is_geography = (kinds & GEOGRAPHY) != 0
    is_lost = is_lost | is_lost2 | (kinds != kinds2)
    is_far = (np.abs(x) > 180) | (np.abs(x2) > 180) | (np.abs(y) > 90) | (np.abs(y2) > 90)
    is_lost = is_lost | (is_geography & is_far)
    with np.errstate(invalid="ignore", over="ignore"):
        metres = EARTH_RADIUS_M * _angle(*map(np.radians, (x, y, x2, y2)))
        distances = np.where(is_geography, metres, np.hypot(x - x2, y - y2))
    reason = "ST_DISTANCE is of two points, both geometry or both geography and then on the earth"
    if all(arg.is_constant for arg in args):
        return Attempt(distances.reshape(()), failed(is_lost.reshape(()), reason))
    return Attempt(distances, failed(np.broadcast_to(is_lost, distances.shape), reason))


def _angle(x: Doubles, y: Doubles, x2: Doubles, y2: Doubles) -> Doubles:
    """Return the angle between two points seen from the middle of a sphere, in radians as all arguments are, by
    Vincenty's formula, which is exact near and far."""
    across = np.cos(y2) * np.sin(x - x2)
    along = np.cos(y) * np.sin(y2) - np.sin(y) * np.cos(y2) * np.cos(x - x2)
    straight = np.sin(y) * np.sin(y2) + np.cos(y) * np.cos(y2) * np.cos(x - x2)
    angle: Doubles = np.arctan2(np.sqrt(across * across + along * along), straight)
    return angle


def _coordinates(arg: Vector) -> tuple[Doubles, Doubles, NDArray[np.uint8], NDArray[np.bool_]]:
    """Return x, y and kinds (with the bit GEOGRAPHY) of points, and True where the bytes are no point."""
    stored = pa.array([arg.data.as_py()], pa.binary()) if arg.is_constant else arg.data
    offsets, data = text_buffers(stored)
    starts = offsets[:-1].astype(np.int64)
    is_point = np.diff(offsets) == POINT_BYTES
    is_point[is_point] = (data[starts[is_point]] & 0x7F) == POINT
    records = np.zeros(len(starts), _RECORD)
    records[is_point] = data[starts[is_point][:, np.newaxis] + np.arange(POINT_BYTES)].view(_RECORD)[:, 0]
    return records["x"].astype(np.float64), records["y"].astype(np.float64), records["kind"], ~is_point


def _of(name: str, compute: Callable[..., Any]) -> VectorFunction:
    """Return a function that applies `compute` to the geometries in bytes; a geometry that is not supported fails."""

    def of_bytes(*stored: bytes) -> Any:
        shapes = [geometry.read(data) for data in stored]
        return None if None in shapes else compute(*shapes)

    return lambda type_, args: by_value(type_, args, of_bytes, f"{name} {_UNREAD}")


def _made(name: str, *, is_geography: bool, is_polygon: bool = False) -> VectorFunction:
    def of_text(written: str) -> bytes | None:
        shape = geometry.from_text(written, is_geography=is_geography)
        return None if shape is None or (is_polygon and shape.is_point) else geometry.write(shape)

    reason = f"{name} is of the well-known text of a {'' if is_polygon else 'POINT or '}POLYGON"
    return lambda type_, args: by_value(type_, args, of_text, reason)


for _name, _apply, _example in (
    ("stgeomfromtext", _made("ST_GEOMFROMTEXT", is_geography=False), "00"),
    ("stgeogfromtext", _made("ST_GEOGFROMTEXT", is_geography=True), "80"),
):
    GEOSPATIAL.strict(
        _name,
        parameters=(text("wkt"),),
        result=BYTES,
        examples={f"{_name.upper()}('POINT (1 2)')": f"{_example}3ff00000000000004000000000000000"},
    )(_apply)
GEOSPATIAL.strict(
    "stpolygon",
    parameters=(text("wkt"),),
    result=BYTES,
    examples={f"ST_ASTEXT(ST_POLYGON('{_POLYGON}'))": _POLYGON},
)(_made("ST_POLYGON", is_geography=False, is_polygon=True))


def _bytes(shape: Geometry, *, is_geography: bool) -> bytes:
    return geometry.write(replace(shape, is_geography=is_geography))


def _kind(shape: Geometry) -> str:
    return {POINT: "Point", POLYGON: "Polygon"}[shape.kind]


for _name, _result, _compute, _examples in (
    ("stastext", STRING, geometry.to_text, {"ST_ASTEXT(ST_POINT(0.5, -1))": "POINT (0.5 -1)"}),
    ("stgeometrytype", STRING, _kind, {"ST_GEOMETRYTYPE(ST_POINT(0.5, -1))": "Point"}),
    (
        "tosphericalgeography",
        BYTES,
        lambda shape: _bytes(shape, is_geography=True),
        {"TOSPHERICALGEOGRAPHY(ST_POINT(1, 2))": "803ff00000000000004000000000000000"},
    ),
    (
        "togeometry",
        BYTES,
        lambda shape: _bytes(shape, is_geography=False),
        {"TOGEOMETRY(ST_POINT(1, 2, true))": "003ff00000000000004000000000000000"},
    ),
):
    GEOSPATIAL.strict(_name, parameters=(_SHAPE,), result=_result, examples=_examples)(_of(_name, _compute))


def _contains(outer: Geometry, inner: Geometry) -> int | None:
    is_inside = geometry.contains(outer, inner) if outer.is_geography == inner.is_geography else None
    return None if is_inside is None else int(is_inside)


def _equals(first: Geometry, other: Geometry) -> int | None:
    return int(first.rings == other.rings) if first.is_point and other.is_point else None


for _name, _compares, _answers in (
    (
        "stcontains",
        _contains,
        {
            f"ST_CONTAINS(ST_GEOMFROMTEXT('{_POLYGON}'), ST_POINT(3, 3))": 1,
            f"ST_CONTAINS(ST_GEOMFROMTEXT('{_POLYGON}'), ST_POINT(1.5, 1.5))": 0,
        },
    ),
    (
        "stwithin",
        lambda inner, outer: _contains(outer, inner),
        {f"ST_WITHIN(ST_POINT(4, 2), ST_GEOMFROMTEXT('{_POLYGON}'))": 0},
    ),
    ("stequals", _equals, {"ST_EQUALS(ST_POINT(1, 2), ST_GEOMFROMTEXT('POINT (1.0 2)'))": 1}),
):
    GEOSPATIAL.strict(_name, parameters=(_SHAPE, _OTHER), result=INT, examples=_answers)(_of(_name, _compares))
