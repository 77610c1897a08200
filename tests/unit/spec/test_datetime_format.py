"""Date-time formats give and take epoch milliseconds."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfoNotFoundError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.errors import InvalidInputError
from merlot.functions.zones import zone_clock
from merlot.values import datetime_format
from merlot.values.time_zones import zone_of

NEW_YEAR_2013 = 1_356_998_400_000
MOMENT = int(datetime(2013, 1, 5, 15, 4, 9, 87_000, UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "value", "millis"),
    [
        ("EPOCH|DAYS", 15_706, NEW_YEAR_2013),
        ("EPOCH|DAYS", "15706", NEW_YEAR_2013),
        ("EPOCH|SECONDS|5", NEW_YEAR_2013 // 5000, NEW_YEAR_2013),
        ("EPOCH|MICROSECONDS", NEW_YEAR_2013 * 1000 + 999, NEW_YEAR_2013),
        ("1:MICROSECONDS:EPOCH", -1, -1),
        ("3:MICROSECONDS:EPOCH", "1000", 3),
        ("EPOCH|NANOSECONDS", NEW_YEAR_2013 * 1_000_000, NEW_YEAR_2013),
        ("EPOCH|NANOSECONDS|1000000", NEW_YEAR_2013, NEW_YEAR_2013),
        ("EPOCH", NEW_YEAR_2013, NEW_YEAR_2013),
        ("1:MILLISECONDS:EPOCH", NEW_YEAR_2013, NEW_YEAR_2013),
        ("5:MINUTES:EPOCH", NEW_YEAR_2013 // 300_000, NEW_YEAR_2013),
        ("TIMESTAMP", NEW_YEAR_2013, NEW_YEAR_2013),
        ("TIMESTAMP", "2013-01-01 00:00:00.5", NEW_YEAR_2013 + 500),
        ("TIMESTAMP", "2013-01-01T02:00:00+02:00", NEW_YEAR_2013),
        ("TIMESTAMP", str(NEW_YEAR_2013), NEW_YEAR_2013),
        ("1:MILLISECONDS:TIMESTAMP", NEW_YEAR_2013, NEW_YEAR_2013),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd", "20130101", NEW_YEAR_2013),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd", 20130101, NEW_YEAR_2013),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm:ss.SSS", "2013-01-05 15:04:09.087", MOMENT),
        ("SIMPLE_DATE_FORMAT|yyyyMMddHHmmssSSS", "20130105150409087", MOMENT),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2013-01-05T17:04:09.087+0200", MOMENT),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd|America/New_York", "20130101", NEW_YEAR_2013 + 5 * 3_600_000),
        ("1:DAYS:SIMPLE_DATE_FORMAT:yyyyMMdd", "20130101", NEW_YEAR_2013),
        (
            "1:DAYS:SIMPLE_DATE_FORMAT:yyyyMMdd HH:mm tz(America/New_York)",
            "20130101 01:00",
            NEW_YEAR_2013 + 6 * 3_600_000,
        ),
        ("SIMPLE_DATE_FORMAT|d MMM yy h:mm a", "1 Jan 13 12:00 AM", NEW_YEAR_2013),
        ("SIMPLE_DATE_FORMAT|yy", "70", 0),
        ("SIMPLE_DATE_FORMAT|yy", "45", 2366841600000),
        ("SIMPLE_DATE_FORMAT|yy", "46", -757382400000),
        ("EPOCH|DAYS", "15706.0", NEW_YEAR_2013),
        ("SIMPLE_DATE_FORMAT|EEEE, MMMM d yyyy", "Tuesday, January 1 2013", NEW_YEAR_2013),
        ("SIMPLE_DATE_FORMAT|yyyy-DDD", "2013-032", NEW_YEAR_2013 + 31 * 86_400_000),
    ],
)
def test_value_is_read_as_its_instant(text: str, value: int | str, millis: int) -> None:
    assert datetime_format.parse(text).to_millis(value) == millis


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("EPOCH|DAYS", 15_710),
        ("EPOCH|HOURS|6", MOMENT // 21_600_000),
        ("EPOCH|MICROSECONDS", MOMENT * 1000),
        ("EPOCH|MICROSECONDS|3", MOMENT * 1000 // 3),
        ("EPOCH|NANOSECONDS", MOMENT * 1_000_000),
        ("TIMESTAMP", MOMENT),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd", "20130105"),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm:ss.SSS", "2013-01-05 15:04:09.087"),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm|Asia/Tokyo", "2013-01-06 00:04"),
        ("SIMPLE_DATE_FORMAT|EEE d MMMM yy h:mm a Z", "Sat 5 January 13 3:04 PM +0000"),
        ("SIMPLE_DATE_FORMAT|yyyy 'o''clock' H", "2013 o'clock 15"),
        ("SIMPLE_DATE_FORMAT|yyyy-DDD", "2013-005"),
    ],
)
def test_instant_is_written_rounded_down(text: str, value: int | str) -> None:
    assert datetime_format.parse(text).from_millis(MOMENT) == value


def test_instants_before_1970_round_down() -> None:
    assert datetime_format.parse("EPOCH|DAYS").from_millis(-1) == -1


@given(millis=st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_writing_and_reading_is_the_identity(millis: int) -> None:
    for text in ("TIMESTAMP", "EPOCH", "SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm:ss.SSS", "SIMPLE_DATE_FORMAT"):
        parsed = datetime_format.parse(text)
        assert parsed.to_millis(parsed.from_millis(millis)) == millis


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("EPOCH|FORTNIGHTS", "unknown unit 'FORTNIGHTS'"),
        ("EPOCH|DAYS|0", "size must be a whole number above 0"),
        (f"EPOCH|DAYS|{'9' * 5_000}", "size must be a whole number above 0, of 9 digits at most"),
        ("x:DAYS:EPOCH", "size must be"),
        ("1:DAYS:EPOK", "unknown date-time format"),
        ("epoch", "unknown date-time format 'epoch'; write TIMESTAMP, EPOCH"),
        ("TIMESTAMP|DAYS", "unknown date-time format"),
        ("1:WEEKS:EPOCH", "WEEKS in '1:WEEKS:EPOCH' can only be the new format of DATETIMECONVERT"),
        ("EPOCH|WEEKS", "as nothing reads them; write EPOCH|DAYS|7"),
        ("EPOCH|MONTHS", "write SIMPLE_DATE_FORMAT|yyyyMM"),
        ("2:YEARS:EPOCH", "write SIMPLE_DATE_FORMAT|yyyy"),
        ("SIMPLE_DATE_FORMAT|yyyy zzzz", "'zzzz', the long name of a time zone, is not supported in date pattern"),
        ("SIMPLE_DATE_FORMAT|yyyy z|Asia/Singapore", "time zone 'Asia/Singapore' has no short name, letter 'z'"),
        ("SIMPLE_DATE_FORMAT|yyyy'", "not a date pattern"),
        ("SIMPLE_DATE_FORMAT|--", "not a date pattern"),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd|Mars/North", "unknown time zone 'Mars/North'"),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd|America", "unknown time zone 'America'"),
        (f"SIMPLE_DATE_FORMAT|yyyyMMdd|{'x' * 300}", "unknown time zone 'xxx"),
    ],
)
def test_wrong_format_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message.replace("|", r"\|")):
        datetime_format.parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("EPOCH|DAYS", "yesterday"),
        ("EPOCH|DAYS", "NaN"),
        ("EPOCH|DAYS", "12.7"),
        ("EPOCH|DAYS", "1_2"),
        ("EPOCH|DAYS", "1e999999999"),
        ("TIMESTAMP", "1_000"),
        ("TIMESTAMP", "9" * 5000),
        ("TIMESTAMP", "2013-13-01"),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd", "20131301"),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd", "2013-01-01"),
        ("SIMPLE_DATE_FORMAT|d MMMM yyyy", "1 Smarch 2013"),
    ],
)
def test_wrong_value_is_refused(text: str, value: str) -> None:
    with pytest.raises(InvalidInputError):
        datetime_format.parse(text).to_millis(value)


@pytest.mark.parametrize(
    ("name", "minutes"),
    [
        *(("Z", 0), ("UT", 0), ("+05:30", 330), ("-0330", -210), ("+5", 300), ("GMT+8", 480), ("UTC-03:30", -210)),
        *(("UT+18:00", 1_080), ("-00:15", -15), ("JST", 540), ("IST", 330), ("Asia/Kathmandu", 345)),
    ],
)
def test_zones_have_names_offsets_and_javas_short_names(name: str, minutes: int) -> None:
    moment = datetime(2024, 7, 1, tzinfo=zone_of(name))
    assert moment.utcoffset() == timedelta(minutes=minutes)
    assert zone_clock(name).local(np.array([0, 10**15])).tolist()[1] == 10**15 + minutes * 60_000


@pytest.mark.parametrize("name", ["+18:01", "GMT+99", "+5:60", "+1:2", "++1", "Mars/North", "", "GMT+"])
def test_zone_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises((ZoneInfoNotFoundError, ValueError, OSError)):
        zone_of(name)
