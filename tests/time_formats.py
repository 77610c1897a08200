"""Time columns of every kind, and instants that are hard on them: for every property test that time matters to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from merlot.spec import time_rounding
from merlot.spec.schema import FieldRole, FieldSpec
from merlot.values import periods
from merlot.values.datetime_format import PatternFormat, datetime_of, millis_of
from merlot.values.periods import Period
from merlot.values.types import TypeName

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ZONES = (
    *("UTC", "America/New_York", "Europe/Berlin", "Europe/London", "Asia/Kolkata", "Asia/Kathmandu"),
    *("Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia", "Pacific/Kiritimati", "Africa/Monrovia"),
)
TEXT_PATTERNS = (
    *("yyyy", "yyyy-MM", "yyyy-MM-dd", "yyyy-DDD", "yyyy-MM-dd HH", "yyyy-MM-dd HH:mm", "yyyy-MM-dd'T'HH:mm:ss"),
    *("yyyy-MM-dd HH:mm:ss.SSS", "MM/dd/yyyy", "d MMM yyyy h:mm a", "EEE, dd MMMM yyyy", "yyyy-MM-dd HH:mm Z"),
    *("yyyy-MM-dd Z", "yyyy-MM-dd hh:mm", "yy-MM-dd", "HH:mm dd.MM.yyyy", "yyyy HH", "YYYY-MM-dd KK:mm a"),
    *("yyyy-MM-dd kk:mm", "xxxx-'W'ww-e", "xxxx ww", "CC G yyyy-MM-dd", "yyyy-MM-dd HH:mm ZZZ"),
)
"""Some of which do not survive being written and read again."""
NUMBER_PATTERNS = ("yyyy", "yyyyMM", "yyyyMMdd", "yyyyDDD", "yyyyMMddHH", "yyyyMMddHHmm", "yyyyMMddHHmmss")
MOMENTS = (
    *("1970-01-01T00:00", "1969-12-31T23:59", "2013-07-01T00:00", "2013-07-04T03:59", "2012-02-29T12:00"),
    *("2013-03-10T07:00", "2013-11-03T06:00", "2013-03-31T01:00", "2013-10-27T01:00", "2011-12-30T10:00"),
    *("2006-10-29T03:31", "2013-04-06T15:00", "2000-01-01T00:00", "2037-12-31T23:59", "1971-06-01T00:44"),
)
"""Round ones, and those at which clocks were turned."""
PERIODS = ("1s", "5m", "15m", "30m", "1h", "2h", "7h", "12h", "36h", "1d", "7d", "1w", "1mo", "3mo", "12mo")


def moment(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def instants() -> st.SearchStrategy[int]:
    """Epoch milliseconds, most of them close to an edge."""
    near = st.sampled_from([0, 1, -1, 1_800_000, -1_800_000, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS])
    edges = st.builds(lambda text, by: moment(text) + by, st.sampled_from(MOMENTS), near)
    days = st.builds(lambda text, by: moment(text) + by * DAY_MS, st.sampled_from(MOMENTS), st.integers(-40, 40))
    return edges | days | st.integers(moment("1950-01-01"), moment("2037-12-31"))


def time_fields(name: str = "at") -> st.SearchStrategy[FieldSpec]:
    """A dateTime column of any type and format."""

    def field(type_name: TypeName, time_format: str | None = None) -> FieldSpec:
        return FieldSpec(name=name, type=type_name, role=FieldRole.DATE_TIME, format=time_format)

    def pattern(types: tuple[TypeName, ...], patterns: tuple[str, ...]) -> st.SearchStrategy[FieldSpec]:
        texts = st.builds("SIMPLE_DATE_FORMAT|{}|{}".format, st.sampled_from(patterns), st.sampled_from(ZONES))
        return st.builds(field, st.sampled_from(types), texts)

    sized = st.builds(
        "EPOCH|{}|{}".format, st.sampled_from(["SECONDS", "MINUTES", "HOURS", "DAYS"]), st.sampled_from([1, 2, 5, 7])
    )
    # In 32 bits until 2038.
    epochs = st.builds(field, st.sampled_from([TypeName.INT, TypeName.LONG, TypeName.STRING]), sized)
    fine = st.builds(
        field,
        st.sampled_from([TypeName.LONG, TypeName.STRING]),
        st.sampled_from(
            [
                "EPOCH|MILLISECONDS",
                "1:MILLISECONDS:EPOCH",
                "EPOCH|MICROSECONDS",
                "3:MICROSECONDS:EPOCH",
                "EPOCH|NANOSECONDS",
            ]
        ),
    )
    return (
        st.just(field(TypeName.TIMESTAMP))
        | fine
        | epochs
        | pattern((TypeName.STRING,), TEXT_PATTERNS)
        | pattern((TypeName.LONG,), NUMBER_PATTERNS)
        | pattern((TypeName.INT, TypeName.LONG), NUMBER_PATTERNS[:5])
    )


@st.composite
def rounded_fields(draw: Any, name: str = "at") -> tuple[FieldSpec, str]:
    """A dateTime column and a period that it can be rounded to."""
    period = draw(st.sampled_from(PERIODS))
    rounding = periods.parse(period)
    return draw(time_fields(name).filter(lambda field: time_rounding.problem(field, rounding) is None)), period


def stored_time(field: FieldSpec, millis: int) -> Any:
    """What the column stores for an instant."""
    assert field.time_format is not None
    value = field.time_format.from_millis(millis)
    return str(value) if field.type is TypeName.STRING else int(value)


def read_time(field: FieldSpec, value: Any) -> int:
    """The instant that a stored value stands for."""
    assert field.time_format is not None
    return field.time_format.to_millis(value)


def rounded_time(field: FieldSpec, value: Any, period: Period) -> Any:
    """A stored value at the start of its period, as the clock of its zone shows it."""
    assert field.time_format is not None
    zone, has_offset = ZoneInfo("UTC"), False
    if isinstance(field.time_format, PatternFormat):
        zone = field.time_format.zone
        has_offset = "Z" in field.time_format.pattern.text
    millis = read_time(field, value)
    clock = datetime_of(millis).astimezone(zone).replace(tzinfo=None)
    start = _start(clock, period).replace(tzinfo=UTC if has_offset else zone)
    start_ms = millis_of(start)
    # Before there were time zones of whole minutes, periods here and there do not fit.
    return stored_time(field, start_ms if period.floor(start_ms) == period.floor(millis) else millis)


def _start(clock: datetime, period: Period) -> datetime:
    if period.months:
        months = (clock.year - 1970) * 12 + clock.month - 1
        months -= months % period.months
        return datetime(1970 + months // 12, months % 12 + 1, 1)  # noqa: DTZ001 a clock on a wall
    length = timedelta(milliseconds=period.fixed_ms)
    return clock - (clock - datetime(1970, 1, 1)) % length  # noqa: DTZ001
