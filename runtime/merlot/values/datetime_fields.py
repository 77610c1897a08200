"""Set fields of dates and times as Joda-Time does: the values of a pattern's letters become one instant.

Fields are set from the coarsest to the finest, and each resets all finer fields. So a missing field is the first of its
range, and a weekday moves the date to that day of its week. If the coarsest field of a text is a month, a week or a
day, its year is 2000. Weeks are ISO's: they begin on Monday, and the first week of a year has its first Thursday.
"""

from __future__ import annotations

from calendar import isleap, monthrange
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

DEFAULT_YEAR: Final = 2000
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 a clock on a wall
_OF_WEEKS: Final = frozenset("xweE")


class PatternField(NamedTuple):
    """A letter of a pattern: its rank from coarse to fine, and how it is set."""

    rank: int
    put: Callable[[datetime, int], datetime]
    """Sets the field and keeps all others, as far as the calendar allows. Raises ValueError."""
    floor: Callable[[datetime], datetime]


def assemble(values: Sequence[tuple[str, int]]) -> datetime:
    """Return the wall-clock time for letters and their values, in order of the text. Raise ValueError if there is
    none."""
    fields = sorted(((FIELDS[letter], value) for letter, value in values), key=lambda entry: entry[0].rank)
    if fields and _FIRST_WITHOUT_YEAR <= fields[0][0].rank <= _LAST_WITHOUT_YEAR:
        fields.insert(0, (FIELDS["y"], DEFAULT_YEAR))
    moment = _EPOCH
    for field, value in fields:
        moment = field.floor(field.put(moment, value))
    if not _OF_WEEKS.isdisjoint(letter for letter, _ in values):
        # A weekday may have left the month, so set all fields once more.
        for field, value in fields:
            moment = field.put(moment, value)
        moment = fields[-1][0].floor(moment)
    return moment


def _era(moment: datetime, value: int) -> datetime:
    if not value:
        raise ValueError("years before 1 are not supported")
    return moment


def _year(moment: datetime, value: int) -> datetime:
    if (moment.month, moment.day) == (2, 29):
        moment = moment.replace(day=28 + isleap(value))
    return moment.replace(year=value)


def _century(moment: datetime, value: int) -> datetime:
    return _year(moment, value * 100 + moment.year % 100)


def _month(moment: datetime, value: int) -> datetime:
    first = moment.replace(day=1, month=value)
    return first.replace(day=min(moment.day, monthrange(first.year, value)[1]))


def _week_year(moment: datetime, value: int) -> datetime:
    _, week, weekday = moment.isocalendar()
    day = date.fromisocalendar(value, min(week, _weeks_of(value)), weekday)
    return moment.replace(year=day.year, month=day.month, day=day.day)


def _weeks_of(year: int) -> int:
    return date(year, 12, 28).isocalendar().week


def _week(moment: datetime, value: int) -> datetime:
    year, week, _ = moment.isocalendar()
    _check(value, 1, _weeks_of(year))
    return moment + timedelta(weeks=value - week)


def _day_of_year(moment: datetime, value: int) -> datetime:
    _check(value, 1, 365 + isleap(moment.year))
    return moment.replace(month=1, day=1) + timedelta(days=value - 1)


def _weekday(moment: datetime, value: int) -> datetime:
    _check(value, 1, 7)
    return moment + timedelta(days=value - moment.isoweekday())


def _half_day(moment: datetime, value: int) -> datetime:
    return moment.replace(hour=moment.hour % 12 + 12 * value)


def _hour_of_half(moment: datetime, value: int) -> datetime:
    _check(value, 0, 11)
    return moment.replace(hour=moment.hour // 12 * 12 + value)


def _from_one(put: Callable[[datetime, int], datetime], last: int) -> Callable[[datetime, int], datetime]:
    """Return the setter of an hour that is counted from 1 to `last`, where `last` is hour 0."""

    def set_hour(moment: datetime, value: int) -> datetime:
        _check(value, 1, last)
        return put(moment, value % last)

    return set_hour


def _hour(moment: datetime, value: int) -> datetime:
    return moment.replace(hour=value)


def _check(value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{value} is not within {low} and {high}")


def _day_start(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _year_start(moment: datetime) -> datetime:
    return _day_start(moment.replace(month=1, day=1))


def _week_start(moment: datetime) -> datetime:
    return _day_start(moment - timedelta(days=moment.weekday()))


def _week_year_start(moment: datetime) -> datetime:
    return _week_start(moment - timedelta(weeks=moment.isocalendar().week - 1))


def _hour_start(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


FIELDS: Final[dict[str, PatternField]] = {
    "G": PatternField(0, _era, lambda moment: _year_start(moment.replace(year=1, day=1))),
    "C": PatternField(1, _century, lambda moment: _year_start(moment.replace(year=moment.year // 100 * 100, day=1))),
    "y": PatternField(2, _year, _year_start),
    "Y": PatternField(2, _year, _year_start),
    "x": PatternField(2, _week_year, _week_year_start),
    "M": PatternField(3, _month, lambda moment: _day_start(moment.replace(day=1))),
    "w": PatternField(4, _week, _week_start),
    "D": PatternField(5, _day_of_year, _day_start),
    "d": PatternField(6, lambda moment, value: moment.replace(day=value), _day_start),
    "e": PatternField(7, _weekday, _day_start),
    "E": PatternField(7, _weekday, _day_start),
    "a": PatternField(8, _half_day, lambda moment: _hour_start(moment.replace(hour=moment.hour // 12 * 12))),
    "H": PatternField(9, _hour, _hour_start),
    "k": PatternField(9, _from_one(_hour, 24), _hour_start),
    "K": PatternField(10, _hour_of_half, _hour_start),
    "h": PatternField(10, _from_one(_hour_of_half, 12), _hour_start),
    "m": PatternField(
        11,
        lambda moment, value: moment.replace(minute=value),
        lambda moment: moment.replace(second=0, microsecond=0),
    ),
    "s": PatternField(
        12, lambda moment, value: moment.replace(second=value), lambda moment: moment.replace(microsecond=0)
    ),
    "S": PatternField(13, lambda moment, value: moment.replace(microsecond=value * 1_000), lambda moment: moment),
}
"""Fields by letter. The value of S is in milliseconds."""
_FIRST_WITHOUT_YEAR, _LAST_WITHOUT_YEAR = FIELDS["M"].rank, FIELDS["E"].rank
