"""Offsets of time zones with seconds, of local mean time."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from tests.contracts.functions.values import value_of

from merlot.values.datetime_pattern import DateTimePattern

IN_1800 = -5_364_662_400_000


@pytest.mark.parametrize(
    ("zone", "offset"),
    [
        ("America/New_York", "-04:56"),
        ("Europe/London", "-00:01"),
        ("Europe/Berlin", "+00:53"),
        ("Asia/Kolkata", "+05:53"),
        ("America/Los_Angeles", "-07:52"),
    ],
)
def test_offsets_are_written_without_their_seconds(zone: str, offset: str) -> None:
    assert value_of(f"TODATETIME({IN_1800}, 'ZZ', '{zone}')") == offset
    assert value_of(f"TODATETIME({IN_1800}, 'Z', '{zone}')") == offset.replace(":", "")
    moment = datetime.fromtimestamp(IN_1800 / 1000, UTC).astimezone(ZoneInfo(zone))
    assert DateTimePattern.compile("ZZ").format(moment) == offset
