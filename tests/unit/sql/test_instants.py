"""NOW, AGO and FROMDATETIME: durations as Java's, one instant for a query, errors that say what to write."""

import pytest

from merlot.functions.instants import Moment, duration_ms
from merlot.query.plan.binding import bind
from merlot.sql.parse import parse
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Literal

NOW_MS = 1_700_000_000_123


def value(expression: str, moment: Moment | None = None) -> object:
    bound = bind(parse(f"SELECT {expression}"), None, {}, moment or Moment(NOW_MS)).select[0].expr
    assert isinstance(bound, Literal)
    return bound.value


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("NOW()", NOW_MS),
        ("now() - 1000", NOW_MS - 1000),
        ("AGO('PT3H')", NOW_MS - 3 * 3_600_000),
        ("ago('p1d')", NOW_MS - 86_400_000),
        ("AGO('-PT1M')", NOW_MS + 60_000),
        ("NOW() - AGO('P1DT2H3M4.5S')", 93_784_500),
        ("FROMDATETIME('2024-02-29', 'yyyy-MM-dd')", 1_709_164_800_000),
        ("FROM_DATE_TIME('20240229 12', 'yyyyMMdd HH', 'Asia/Kolkata')", 1_709_188_200_000),
        ("FROMDATETIME('1969-12-31T23:59:59.999+01:00', 'yyyy-MM-dd''T''HH:mm:ss.SSSZ')", -3_600_001),
    ],
)
def test_an_instant_is_worked_out_at_binding(expression: str, expected: int) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT0.001S", 1),
        ("PT-0.5S", -500),
        ("PT1.9999S", 1999),
        ("P-2DT+3H", -2 * 86_400_000 + 3 * 3_600_000),
        ("-P2DT-3H", -2 * 86_400_000 + 3 * 3_600_000),
        ("PT1H1S", 3_601_000),
    ],
)
def test_durations_are_read_as_java_reads_them(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1H", "P1M", "P1Y", "PT1D", "PT1.5H", "PT1M1H", "P1W", "P D"])
def test_what_is_no_duration_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(SqlValidationError, match="PT3H"):
        duration_ms(text)


@pytest.mark.parametrize(
    "expression",
    [
        "NOW(1)",
        "NOW('x')",
        "AGO()",
        "AGO(3)",
        "AGO('P300000000000D')",
        "FROMDATETIME('2024', 'yyyy', 'Mars/Base')",
        "FROMDATETIME('20x4', 'yyyy')",
        "FROMDATETIME('2024', 'QQ')",
        "FROMDATETIME('2024')",
    ],
)
def test_wrong_arguments_are_refused(expression: str) -> None:
    with pytest.raises(SqlValidationError):
        value(expression)


def test_a_moment_tells_whether_it_was_asked() -> None:
    asked, unasked = Moment(NOW_MS), Moment(NOW_MS)
    value("AGO('PT1H')", asked)
    value("FROMDATETIME('2024', 'yyyy')", unasked)
    assert (asked.was_asked, unasked.was_asked) == (True, False)
