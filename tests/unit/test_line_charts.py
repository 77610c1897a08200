"""Charts of the documentation."""

import xml.etree.ElementTree as ET

import pytest

from merlot_spark.flight_keys import NAMES, KeyCounts
from merlot_spark.line_charts import LEFT, PANEL_HEIGHT, RIGHT, TOP, WIDTH, Panel, Series, line_chart, ticks

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 5, [0, 1, 2, 3, 4, 5]),
        (0, 336_776, [0, 100_000, 200_000, 300_000, 400_000]),
        (0.0, 0.3, [0.0, 0.1, 0.2, 0.3]),
        (1, 365, [0, 100, 200, 300, 400]),
        (0, 0, [0.0]),
    ],
)
def test_an_axis_has_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


def test_lines_are_where_their_points_are() -> None:
    text = line_chart("a <b> & c", "days", [Panel("keys", [Series("one", [(0, 0), (10, 50), (5, 25)])])])
    svg = ET.fromstring(text)
    [line] = svg.iter(f"{SVG}polyline")
    places = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    right, bottom = WIDTH - RIGHT, TOP + PANEL_HEIGHT
    assert places == [(LEFT, bottom), (right, TOP), ((LEFT + right) / 2, bottom - PANEL_HEIGHT / 2)]
    texts = [one.text for one in svg.iter(f"{SVG}text")]
    assert {"a <b> & c", "days", "keys", "one", "50", "10"} <= set(texts)


def test_a_chart_of_nothing_is_a_chart() -> None:
    svg = ET.fromstring(KeyCounts().chart())
    assert [one.attrib["points"] for one in svg.iter(f"{SVG}polyline")] == [""] * 2 * len(NAMES)
