"""Charts of the documentation."""

import xml.etree.ElementTree as ET

import pytest
from examples.demos.flight_keys import NAMES, KeyCounts
from examples.demos.line_charts import (
    LEFT,
    PANEL_HEIGHT,
    RIGHT,
    TOP,
    WIDTH,
    Panel,
    Series,
    line_chart,
    log_ticks,
    ticks,
)

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


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.003, 40, [0.001, 0.01, 0.1, 1.0, 10.0, 100.0]),
        (1, 1_000, [1.0, 10.0, 100.0, 1_000.0]),
        (12, 180, [10.0, 20.0, 50.0, 100.0, 200.0]),
        (7, 7, [5.0, 10.0]),
    ],
)
def test_a_logarithmic_axis_has_powers_of_ten(low: float, high: float, expected: list[float]) -> None:
    assert log_ticks(low, high) == expected


def test_equal_factors_are_equal_lengths() -> None:
    panel = Panel("ms", [Series("one", [(1, 0.1), (10, 1), (1_000_000, 100)])], is_log=True)
    svg = ET.fromstring(line_chart("t", "rows", [panel], is_log=True))
    [line] = svg.iter(f"{SVG}polyline")
    width = WIDTH - RIGHT - LEFT
    bottom = TOP + PANEL_HEIGHT
    places = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert places == [
        (LEFT, bottom),
        (pytest.approx(LEFT + width / 6, abs=0.1), pytest.approx(bottom - PANEL_HEIGHT / 3, abs=0.1)),
        (WIDTH - RIGHT, TOP),
    ]
    assert {"0.1", "100", "1,000,000"} <= {one.text for one in svg.iter(f"{SVG}text")}


def test_panels_of_other_lines_have_legends_of_their_own_and_long_ones_more_rows() -> None:
    many = [Series(f"the line number {number}", [(0, number)]) for number in range(8)]
    [shared] = [ET.fromstring(line_chart("t", "x", [Panel("a", many), Panel("b", many)]))]
    names = [one for one in shared.iter(f"{SVG}text") if (one.text or "").startswith("the line")]
    assert len(names) == 8
    assert len({one.attrib["y"] for one in names}) > 1
    assert all(float(one.attrib["x"]) + 7.5 * len(one.text or "") < WIDTH for one in names)
    parted = ET.fromstring(line_chart("t", "x", [Panel("a", many[:1]), Panel("b", many[:2])]))
    assert [one.text for one in parted.iter(f"{SVG}text") if (one.text or "").startswith("the line")] == [
        "the line number 0",
        "the line number 1",
    ]
