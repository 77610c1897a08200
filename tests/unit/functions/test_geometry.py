"""Bytes and texts of points and polygons: what is written is read, and other bytes are no geometry."""

from __future__ import annotations

import random
import struct

import pytest

from merlot.functions import geometry
from merlot.functions.geometry import Geometry

SQUARE = "POLYGON ((0 0, 0 4, 4 4, 4 0, 0 0), (1 1, 2 1, 2 2, 1 2, 1 1))"


def test_a_polygon_has_the_bytes_that_pinot_writes():
    shell, hole = [(0, 0), (0, 4), (4, 4), (4, 0), (0, 0)], [(1, 1), (2, 1), (2, 2), (1, 2), (1, 1)]
    numbers = [float(number) for spot in [*shell, *hole] for number in spot]
    stored = geometry.write(geometry.from_text(SQUARE, is_geography=True))
    assert stored == struct.pack(">Biiii20d", 0x84, 2, 10, 0, 5, *numbers)
    assert geometry.to_text(geometry.read(stored)) == SQUARE


def test_the_edge_of_a_polygon_and_of_its_hole_are_not_within():
    square = geometry.from_text(SQUARE, is_geography=False)
    for x, y, is_within in (
        (3, 3, True),
        (0.5, 4 - 1e-9, True),
        (0, 2, False),
        (4, 4, False),
        (1, 1.5, False),
        (1.5, 1.5, False),
        (5, 1, False),
        (-1, 4, False),
    ):
        assert geometry.contains(square, Geometry(geometry.POINT, (((x, y),),))) is is_within, (x, y)


@pytest.mark.parametrize("seed", range(20))
def test_other_bytes_are_read_as_something_that_can_be_written_or_as_nothing(seed):
    random_ = random.Random(seed)
    whole = geometry.write(geometry.from_text(SQUARE, is_geography=False))
    for _ in range(200):
        data = bytearray(whole[: random_.choice((len(whole), random_.randrange(len(whole))))])
        for _ in range(random_.randrange(4)):
            if data:
                data[random_.randrange(min(20, len(data)))] = random_.randrange(256)
        found = geometry.read(bytes(data))
        if found is not None:
            assert geometry.write(found) == bytes(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "POINT",
        "POINT (1)",
        "POINT EMPTY",
        "LINESTRING (0 0, 1 1)",
        "POLYGON ((0 0, 1 1, 0 0))",
        "POLYGON ((0 0, 1 0, 1 1, 0 1))",
        "POINT (1 2) x",
        "POINT (" + "1" * 5000,
    ],
)
def test_texts_of_no_point_and_no_polygon_that_ends_where_it_begins_are_refused(text):
    assert geometry.from_text(text, is_geography=False) is None
