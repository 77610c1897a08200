"""Rounded times stay in their bucket, and where they are."""

from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.time_formats import PERIODS, instants, read_time, rounded_time, stored_time, time_fields

from merlot.spec import time_rounding
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.values import periods
from merlot.values.types import TypeName


def column(time_format: str | None, type_name: str = "STRING") -> FieldSpec:
    return FieldSpec(name="at", type=TypeName(type_name), role=FieldRole.DATE_TIME, format=time_format)


def rounded(field: FieldSpec, value: Any, period: str) -> Any:
    assert field.time_format is not None
    return time_rounding.round_value(field.time_format, value, periods.parse(period))


@settings(max_examples=examples(400))
@given(field=time_fields(), text=st.sampled_from(PERIODS), millis=instants())
def test_a_rounded_time_is_of_its_bucket_and_is_not_moved_again(field: FieldSpec, text: str, millis: int) -> None:
    period = periods.parse(text)
    assert field.time_format is not None
    if time_rounding.problem(field, period) is not None:
        event("refused")
        return
    value = stored_time(field, millis)
    before_ms = read_time(field, value)
    once = time_rounding.round_value(field.time_format, value, period)
    after_ms = read_time(field, once)
    assert period.floor(after_ms) == period.floor(before_ms)
    assert str(time_rounding.round_value(field.time_format, once, period)) == str(once)
    assert str(once) == str(rounded_time(field, value, period))
    if not time_rounding.is_moving(field, period):
        assert after_ms == before_ms


@settings(max_examples=examples(200))
@given(field=time_fields(), text=st.sampled_from(PERIODS), millis=instants())
def test_what_is_refused_would_go_wrong_for_some_time(field: FieldSpec, text: str, millis: int) -> None:
    """Nothing is refused that has one value for each period of UTC and that is written as it is read."""
    period = periods.parse(text)
    zone = getattr(field.time_format, "zone", None)
    assume(zone is None or zone.key == "UTC")
    assume(field.format is None or not any(letters in field.format for letters in ("hh", "yy-", "Z", "yyyy HH")))
    if time_rounding.problem(field, period) is not None:
        starts = [period.floor(millis)]
        for _ in range(200):
            starts.append(period.next(starts[-1]))
        assert any(read_time(field, stored_time(field, start)) != start for start in starts)


@pytest.mark.parametrize(
    ("time_format", "value", "period", "expected"),
    [
        ("SIMPLE_DATE_FORMAT|yyyyMMdd|America/New_York", "20130704", "1d", "20130704"),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd|Europe/Berlin", "20130704", "1d", "20130704"),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd|America/New_York", "20130731", "1mo", "20130701"),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd|America/New_York", "20130704", "7d", "20130704"),
        ("SIMPLE_DATE_FORMAT|yyyyMMddHH|Asia/Kolkata", "2013070405", "1h", "2013070405"),
        ("SIMPLE_DATE_FORMAT|yyyyMMddHHmm|America/New_York", "201311030159", "1h", "201311030100"),
        ("SIMPLE_DATE_FORMAT|d MMM yyyy h:mm a", "4 jul 2013 11:59 pm", "1d", "4 Jul 2013 12:00 AM"),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm Z", "2013-07-04 01:30 +0200", "1h", "2013-07-03 23:00 +0000"),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd", "2013-7-4", "1d", "2013-07-04"),
        ("EPOCH|DAYS", "15889", "1mo", "15887"),
    ],
)
def test_times_are_rounded_by_the_clock_of_their_zone(time_format: str, value: str, period: str, expected: str) -> None:
    field = column(time_format)
    assert time_rounding.problem(field, periods.parse(period)) is None
    assert str(rounded(field, value, period)) == expected


@pytest.mark.parametrize(
    ("time_format", "type_name", "period", "why"),
    [
        (
            "SIMPLE_DATE_FORMAT|yyyyMMddHH|America/New_York",
            "LONG",
            "1d",
            "1d in America/New_York may lie in two buckets",
        ),
        ("SIMPLE_DATE_FORMAT|yyyyMMdd|Europe/Berlin", "INT", "1mo", "1mo in Europe/Berlin may lie in two buckets"),
        ("SIMPLE_DATE_FORMAT|yyyyMMddHHmm|Asia/Kolkata", "LONG", "1h", "1h in Asia/Kolkata may lie in two buckets"),
        ("SIMPLE_DATE_FORMAT|yyyyMM", "INT", "7d", "periods of 7d do not begin at times that the pattern 'yyyyMM' can"),
        ("EPOCH|DAYS|7", "LONG", "1mo", "periods of 1mo do not begin at whole multiples of 7 DAYS"),
        ("EPOCH|DAYS", "LONG", "36h", "periods of 36h do not begin at whole multiples of DAYS"),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd hh", "STRING", "1h", "read again as 2013-12-31 11:00:00"),
        ("SIMPLE_DATE_FORMAT|yyyy HH", "STRING", "1h", "'2013 23' by 'yyyy HH', and read again as 2013-01-01 23:00:00"),
        ("SIMPLE_DATE_FORMAT|yyMMdd", "INT", "1d", "is written as '040229' by 'yyMMdd', and read again as nothing"),
        ("SIMPLE_DATE_FORMAT|yyMMdd", "STRING", "7d", "years of two digits begin with 1946"),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd HH Z|America/New_York", "STRING", "1h", "rounded in UTC only"),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd Z", "STRING", "1d", "has an offset (Z) and no minutes"),
        ("TIMESTAMP", "STRING", "1d", "texts of format TIMESTAMP"),
        ("SIMPLE_DATE_FORMAT|xxxx-ww-e", "STRING", "1d", "has the letter x, by which no times are rounded"),
        ("SIMPLE_DATE_FORMAT|yyyy-MM-dd z", "STRING", "1d", "has the letter z, by which no times are rounded"),
        ("EPOCH|NANOSECONDS|999999999", "LONG", "1s", "whole multiples of 999999999 NANOSECONDS"),
    ],
)
def test_what_cannot_be_rounded_is_told(time_format: str, type_name: str, period: str, why: str) -> None:
    found = time_rounding.problem(column(time_format, type_name), periods.parse(period))
    assert found is not None
    assert why in found


def test_a_value_of_a_time_before_zones_stays_in_its_bucket() -> None:
    field = column("SIMPLE_DATE_FORMAT|yyyy-MM-dd HH:mm|America/New_York")
    assert rounded(field, "1880-06-01 07:03", "1h") == "1880-06-01 07:00"
    assert rounded(field, "1880-06-01 07:59", "1h") == "1880-06-01 07:59"
