"""Date patterns: every letter is written and read as Joda-Time does, or refused by its name."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.time_formats import ZONES, instants

from merlot.errors import InvalidInputError
from merlot.functions import calendar
from merlot.functions.date_texts import written
from merlot.values.datetime_format import datetime_of, millis_of
from merlot.values.datetime_pattern import LETTERS, MAX_LETTERS, DateTimePattern
from merlot.values.time_zones import short_names, zone_of

JODAS_LETTERS = "GCYxweEyDMdaKhHkmsSzZ"
MOMENT = datetime(2004, 6, 9, 10, 20, 30, 40_000, UTC)


def read(pattern: str, text: str, zone: str = "UTC") -> str:
    return (
        DateTimePattern.compile(pattern).parse(text, zone_of(zone)).astimezone(UTC).isoformat(" ", "milliseconds")[:-6]
    )


@pytest.mark.parametrize("letter", string.ascii_letters)
def test_a_letter_is_jodas_or_refused_by_name(letter: str) -> None:
    if letter in JODAS_LETTERS:
        assert letter in LETTERS
        assert DateTimePattern.compile(letter).format(MOMENT)
    else:
        with pytest.raises(InvalidInputError, match=f"letter '{letter}' is not supported in date pattern"):
            DateTimePattern.compile(f"yyyy {letter}")


@pytest.mark.parametrize(
    ("pattern", "zone", "text"),
    [
        *(("G", "UTC", "AD"), ("C", "UTC", "20"), ("CCC", "UTC", "020"), ("Y", "UTC", "2004"), ("YY", "UTC", "04")),
        *(("yyyyy", "UTC", "02004"), ("x", "UTC", "2004"), ("xx", "UTC", "04"), ("w", "UTC", "24"), ("e", "UTC", "3")),
        *(("E", "UTC", "Wed"), ("EEEE", "UTC", "Wednesday"), ("D", "UTC", "161"), ("M", "UTC", "6")),
        *(("MMM", "UTC", "Jun"), ("MMMM", "UTC", "June"), ("d", "UTC", "9"), ("a", "Asia/Tokyo", "PM")),
        *(
            ("K", "America/New_York", "6"),
            ("K", "Asia/Tokyo", "7"),
            ("h", "Asia/Tokyo", "7"),
            ("H", "Asia/Tokyo", "19"),
        ),
        *(("k", "Asia/Tokyo", "19"), ("m", "UTC", "20"), ("s", "UTC", "30"), ("SSS", "UTC", "040")),
        *(("SSSSSS", "UTC", "040000"), ("S", "UTC", "0"), ("z", "UTC", "UTC"), ("zzz", "America/New_York", "EDT")),
        *(("z", "Asia/Tokyo", "JST"), ("z", "Europe/Dublin", "IST"), ("z", "+05:30", "+05:30"), ("Z", "UTC", "+0000")),
        *(("Z", "America/New_York", "-0400"), ("ZZ", "Asia/Tokyo", "+09:00"), ("ZZZ", "UTC", "UTC")),
        *(("ZZZ", "Asia/Tokyo", "Asia/Tokyo"), ("ZZZ", "GMT+8", "+08:00"), ("ZZZZ", "PST", "America/Los_Angeles")),
        *(("yyyy-MM yyyy", "UTC", "2004-06 2004"), ("'Hello' ''yyyy", "UTC", "Hello '2004")),
    ],
)
def test_a_letter_is_written(pattern: str, zone: str, text: str) -> None:
    compiled = DateTimePattern.compile(pattern)
    assert compiled.format(MOMENT.astimezone(zone_of(zone))) == text
    millis = np.array([millis_of(MOMENT)])
    assert written(compiled, millis, calendar.local_times(millis, zone), zone).to_pylist() == [text]


def test_midnight_is_hour_24_of_k_and_0_of_big_k() -> None:
    assert DateTimePattern.compile("k K h H").format(datetime(2004, 6, 9, tzinfo=UTC)) == "24 0 12 0"


@pytest.mark.parametrize("years", [-124, -1, 0, 1])
def test_eras_and_years_of_them_are_written(years: int) -> None:
    days = np.array([f"{years:05}" if years < 0 else f"{years:04}"], "datetime64[Y]").astype("datetime64[ms]")
    millis = days.astype(np.int64)
    (text,) = written(
        DateTimePattern.compile("G Y yy C"), millis, calendar.local_times(millis, "UTC"), "UTC"
    ).to_pylist()
    assert text == f"{'AD' if years > 0 else 'BC'} {abs(years)} {abs(years) % 100:02} {abs(years) // 100}"


@pytest.mark.parametrize(
    ("pattern", "text", "instant"),
    [
        ("YYYY-MM G", "2005-10 AD", "2005-10-01 00:00:00.000"),
        ("YYYY-MM G", "2005-10 ce", "2005-10-01 00:00:00.000"),
        ("yy", "22", "2022-01-01 00:00:00.000"),
        ("YY", "46", "1946-01-01 00:00:00.000"),
        ("yy", "+0004", "0004-01-01 00:00:00.000"),
        ("yy", "3004", "3004-01-01 00:00:00.000"),
        ("yyMMdd", "040309", "2004-03-09 00:00:00.000"),
        ("yy/MM/dd", "2004/03/09", "2004-03-09 00:00:00.000"),
        ("yyyy", "+2004", "2004-01-01 00:00:00.000"),
        ("CC", "19", "1900-01-01 00:00:00.000"),
        ("xx", "04", "2003-12-29 00:00:00.000"),
        ("xx", "00", "2000-01-03 00:00:00.000"),
        ("xxxx", "2021", "2021-01-04 00:00:00.000"),
        ("xxxx-'W'ww-e", "2020-W53-7", "2021-01-03 00:00:00.000"),
        ("xxxxwwe", "2004243", "2004-06-09 00:00:00.000"),
        ("xxxx-ww", "2004-24", "2004-06-07 00:00:00.000"),
        # The first of the year 2000 is of the last week of 1999, so the year is set once more.
        ("ww", "10", "2000-03-06 00:00:00.000"),
        ("yyyy-ww", "2000-10", "2000-03-06 00:00:00.000"),
        ("MM-dd", "02-29", "2000-02-29 00:00:00.000"),
        ("DDD", "366", "2000-12-31 00:00:00.000"),
        ("dd HH", "07 11", "2000-01-07 11:00:00.000"),
        ("HH:mm", "07:11", "1970-01-01 07:11:00.000"),
        ("E yyyy-MM-dd", "MON 2004-06-09", "2004-06-07 00:00:00.000"),
        ("e yyyy-MM-dd", "1 2013-01-01", "2012-12-31 00:00:00.000"),
        # Monday of the week of the 1st is in December; of the 31st, which the month then is set to again, it is not.
        ("yyyy MM E", "2013 01 Mon", "2013-01-28 00:00:00.000"),
        ("EEEE", "wednesday", "2000-12-27 00:00:00.000"),
        ("yyyy kk", "2004 24", "2004-01-01 00:00:00.000"),
        ("yyyy KK a", "2004 11 pm", "2004-01-01 23:00:00.000"),
        ("yyyy hh a", "2004 12 AM", "2004-01-01 00:00:00.000"),
        ("HH hh", "13 03", "1970-01-01 15:00:00.000"),
        ("HH a", "09 PM", "1970-01-01 09:00:00.000"),
        ("yyyy-MM yyyy", "2003-05 2004", "2004-05-01 00:00:00.000"),
        ("ss.SSS", "1.5", "1970-01-01 00:00:01.500"),
        ("ss.SSSSSS", "1.123456", "1970-01-01 00:00:01.123"),
        ("HHmmss", "12034", "1970-01-01 12:03:04.000"),
        ("yyyy HH z", "2004 12 PST", "2004-01-01 20:00:00.000"),
        ("yyyy-MM HH z", "2004-07 12 EST", "2004-07-01 16:00:00.000"),
        ("yyyy HH ZZZ", "2004 12 Asia/Tokyo", "2004-01-01 03:00:00.000"),
        ("yyyy HHZ", "2004 12+05", "2004-01-01 07:00:00.000"),
        ("yyyy HHZ", "2004 12+05:30:15", "2004-01-01 06:29:45.000"),
        ("yyyy HHZZ", "2004 12-0530", "2004-01-01 17:30:00.000"),
        ("yyyy HHZZ", "2004 12z", "2004-01-01 12:00:00.000"),
    ],
)
def test_a_text_is_read(pattern: str, text: str, instant: str) -> None:
    assert read(pattern, text) == instant


def test_a_pattern_of_too_many_letters_is_refused() -> None:
    DateTimePattern.compile("yyyy-" * (MAX_LETTERS // 5))
    with pytest.raises(InvalidInputError, match="more than 1000 letters: 'a"):
        DateTimePattern.compile("a" * (MAX_LETTERS + 1))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        *(("yyyy-MM G", "2005-10 BC"), ("yyyy-MM G", "2005-10 Ad"), ("yyMMdd", "20040309"), ("xxxx-ww", "2021-53")),
        *(("xxxx-ww", "2021-00"), ("e", "8"), ("e", "0"), ("E", "Mo"), ("EEE yyyy", "jUN 2004"), ("MMM", "jAn")),
        *(("kk", "0"), ("kk", "25"), ("KK", "12"), ("hh", "0"), ("hh", "13"), ("HH", "24"), ("HH", "007")),
        *(("dM", "12"), ("SSS", "1234"), ("z", "CET"), ("z", "pst"), ("Z", "+5"), ("Z", "+05:3"), ("Z", "+24:00")),
        *(("ZZ", "+0560"), ("DDD", "367"), ("yyyy DDD", "2013 366"), ("YYYY", "-2004"), ("yyyy-MM-dd", "2013-02-29")),
    ],
)
def test_a_text_that_follows_no_pattern_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(InvalidInputError):
        read(pattern, text)


WHOLE = (
    "yyyy-MM-dd HH:mm:ss.SSS",
    "xxxx'W'wwe kk mm ss SSS",
    "YYYY DDD KK a mm ss S SS SSS",
    "CC yyyy d MMMM h a m s SSS E",
)


@given(millis=instants(), zone=st.sampled_from(ZONES), pattern=st.sampled_from(WHOLE))
def test_what_a_whole_pattern_writes_it_reads(millis: int, zone: str, pattern: str) -> None:
    compiled = DateTimePattern.compile(f"{pattern} ZZ")
    # Offsets of hours and minutes only are written.
    minute = timedelta(minutes=1)
    moment = datetime_of(millis).astimezone(zone_of(zone))
    if moment.utcoffset() is None or moment.utcoffset() % minute:
        return
    assert millis_of(compiled.parse(compiled.format(moment), UTC)) == millis


@given(
    millis=st.lists(instants(), min_size=1, max_size=20),
    zone=st.sampled_from([zone for zone in ZONES if short_names(zone_of(zone))]),
    letter=st.sampled_from(LETTERS),
    width=st.integers(1, 6),
)
def test_rows_are_written_as_single_values_are(millis: list[int], zone: str, letter: str, width: int) -> None:
    pattern = DateTimePattern.compile(letter * (min(width, 3) if letter == "z" else width))
    times = np.array(millis)
    found = written(pattern, times, calendar.local_times(times, zone), zone).to_pylist()
    assert found == [pattern.format(datetime_of(one).astimezone(zone_of(zone))) for one in millis]
