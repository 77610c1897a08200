"""Time buckets: fixed periods such as `1h` and `7d`, and calendar months such as `1mo`, all in UTC.

Buckets of a fixed period are counted from 1970-01-01T00:00Z, so those of `1w` and `7d` begin on Thursdays. Buckets
of months are counted from January 1970. Instants before 1970 round down, not towards zero.
"""

from __future__ import annotations

import calendar
import functools
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from merlot.errors import InvalidInputError

PERIOD = r"^[0-9]{1,6}(s|m|h|d|w|mo)$"
"""`1m` is a minute, `1mo` a month."""

DAY_MS = 86_400_000
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
_MONTH_MS = 30 * DAY_MS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MONTH = (1 - 1970) * 12
_LAST_MONTH = (9999 - 1970) * 12 + 11


@dataclass(frozen=True, slots=True)
class Period:
    """A length of time: `months` calendar months, or `fixed_ms` milliseconds; one of the two is 0, or both are."""

    text: str
    fixed_ms: int = 0
    months: int = 0

    @property
    def is_zero(self) -> bool:
        """True if the period has no length: a buffer may be 0d, a bucket may not."""
        return not self.fixed_ms and not self.months

    @property
    def nominal_ms(self) -> int:
        """Length to order periods by: a month counts as 30 days."""
        return self.fixed_ms + self.months * _MONTH_MS

    def floor(self, millis: int) -> int:
        """Return the start of the bucket that an instant is in."""
        if self.months:
            return _month_start(_month_of(millis) // self.months * self.months)
        return millis // self.fixed_ms * self.fixed_ms

    def next(self, millis: int) -> int:
        """Return the start of the bucket after the one that an instant is in."""
        if self.months:
            return _month_start((_month_of(millis) // self.months + 1) * self.months)
        return self.floor(millis) + self.fixed_ms

    def count(self, start_ms: int, end_ms: int) -> int:
        """Return the number of buckets from that of `start_ms` up to, but not including, that of `end_ms`; never
        negative."""
        if self.months:
            return max(0, _month_of(end_ms) // self.months - _month_of(start_ms) // self.months)
        return max(0, end_ms // self.fixed_ms - start_ms // self.fixed_ms)

    def before(self, millis: int) -> int:
        """Return the instant that is this period earlier. If the earlier month has no such day, it is its last
        millisecond."""
        if not self.months:
            return millis - self.fixed_ms
        month = _month_of(millis)
        into_month = millis - _month_start(month)
        start = _month_start(month - self.months)
        return start + min(into_month, _month_start(month - self.months + 1) - start - 1)

    def is_multiple_of(self, finer: Period) -> bool:
        """Return True if each bucket of this period consists of whole buckets of the finer one."""
        if self.is_zero or finer.is_zero:
            return False
        if finer.months:
            return bool(self.months) and self.months % finer.months == 0
        whole = DAY_MS if self.months else self.fixed_ms
        return whole % finer.fixed_ms == 0

    def __str__(self) -> str:
        return self.text


@functools.lru_cache(maxsize=1024)
def parse(text: str) -> Period:
    """Parse a period such as `1h`, `7d` or `1mo`. Raise InvalidInputError if the text is not one."""
    if not re.match(PERIOD, text):
        raise InvalidInputError(f'"{text}" is no period; write one such as 1h, 1d, 7d or 1mo')
    if text.endswith("mo"):
        return Period(text, months=int(text[:-2]))
    return Period(text, fixed_ms=int(text[:-1]) * _UNIT_MS[text[-1]])


def _month_of(millis: int) -> int:
    """Return the months since January 1970. Before year 1 and after 9999 a month counts 30 days, which keeps
    the order."""
    try:
        moment = _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        edge = _FIRST_MONTH if millis < 0 else _LAST_MONTH + 1
        return edge + (millis - _month_start(edge)) // _MONTH_MS
    return (moment.year - 1970) * 12 + moment.month - 1


def _month_start(month: int) -> int:
    if month < _FIRST_MONTH:
        return _month_start(_FIRST_MONTH) + (month - _FIRST_MONTH) * _MONTH_MS
    if month > _LAST_MONTH:
        last = datetime(9999, 12, 1, tzinfo=UTC)
        days = calendar.monthrange(last.year, last.month)[1]
        end_ms = (last - _EPOCH) // timedelta(milliseconds=1) + days * DAY_MS
        return end_ms + (month - _LAST_MONTH - 1) * _MONTH_MS
    start = datetime(1970 + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return (start - _EPOCH) // timedelta(milliseconds=1)
