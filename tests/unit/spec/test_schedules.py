"""Cron and periods."""

from datetime import UTC, datetime

import pytest

from merlot.errors import InvalidInputError
from merlot.values.schedules import parse


def after(text: str, moment: str) -> str:
    millis = round(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1000)
    return datetime.fromtimestamp(parse(text).next(millis) / 1000, UTC).strftime("%Y-%m-%dT%H:%M")


@pytest.mark.parametrize(
    ("text", "moment", "expected"),
    [
        ("0 3 * * *", "2026-01-01T02:59", "2026-01-01T03:00"),
        ("0 3 * * *", "2026-01-01T03:00", "2026-01-02T03:00"),
        ("*/15 * * * *", "2026-01-01T02:46", "2026-01-01T03:00"),
        ("5/20 8-9 * * *", "2026-01-01T09:46", "2026-01-02T08:05"),
        ("0 0 1,15 * *", "2026-01-02T00:00", "2026-01-15T00:00"),
        ("0 0 * * mon-fri", "2026-01-02T12:00", "2026-01-05T00:00"),
        ("0 0 * * 7", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("0 0 13 * fri", "2026-01-03T00:00", "2026-01-09T00:00"),
        ("0 0 29 feb *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 0 29 2 */7", "2032-03-01T00:00", "2060-02-29T00:00"),
        ("0 0 29 2 */7", "2088-03-01T00:00", "2128-02-29T00:00"),
        ("@monthly", "2026-01-01T00:00", "2026-02-01T00:00"),
        ("@hourly", "1969-12-31T23:30", "1970-01-01T00:00"),
        ("10m", "2026-01-01T00:09", "2026-01-01T00:10"),
        ("1mo", "2026-01-31T00:09", "2026-02-01T00:00"),
    ],
)
def test_the_next_moment(text: str, moment: str, expected: str) -> None:
    assert after(text, moment) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no schedule"),
        ("often", "is no schedule"),
        ("0 0 3 * * ?", "cron has five, without seconds"),
        ("60 * * * *", "is no minute: from 0 to 59"),
        ("* 5-3 * * *", "is no hour"),
        ("* * * * someday", "is no day of week"),
        ("*/0 * * * *", "is no minute"),
        ("0 0 31 2 *", "names a day that no month of it has"),
        ("0m", "is no time at all"),
        ("a-b-c * * * *", "is no minute"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse(text)
