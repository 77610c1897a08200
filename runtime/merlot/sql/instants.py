"""Functions whose value is an instant, worked out at binding: NOW(), AGO('PT3H'), FROMDATETIME(text, pattern [, zone]).

As Pinot does it: LONG milliseconds since the epoch, one value for the whole query.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from merlot.errors import InvalidInputError
from merlot.sql import literals
from merlot.sql.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import LONG
from merlot.values.datetime_pattern import DateTimePattern

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION: Final = re.compile(
    r"""(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]{1,15})D)?
    (?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]{1,15})H)?(?:(?P<minutes>[-+]?[0-9]{1,15})M)?
    (?:(?P<seconds>[-+]?[0-9]{1,15}(?:[.,][0-9]{0,9})?)S)?)?""",
    re.IGNORECASE | re.VERBOSE,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000}


class Moment:
    """The instant that one query goes by. `was_asked` tells that its plan is of this moment alone."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.was_asked = False

    def now_ms(self) -> int:
        """Milliseconds since the epoch, the same for every call."""
        self.was_asked = True
        return self._now_ms


def instant(name: str, args: tuple[Expr, ...], moment: Moment | None) -> Literal | None:
    """The value of a call of one of these functions; None for all others. SqlValidationError for wrong arguments."""
    function = _FUNCTIONS.get(name.replace("_", "").lower())
    if function is None:
        return None
    texts = [arg.value for arg in args if isinstance(arg, Literal) and isinstance(arg.value, str)]
    if len(texts) != len(args):
        raise SqlValidationError(f"{name.upper()} takes string constants")
    value = function(texts, moment)
    if not literals.LONG_MIN <= value <= literals.LONG_MAX:
        raise SqlValidationError(f"{name.upper()} is out of the range of LONG")
    return Literal(value, LONG)


def _now(texts: list[str], moment: Moment | None) -> int:
    if texts:
        raise SqlValidationError("NOW takes no arguments")
    if moment is None:
        raise SqlValidationError("NOW and AGO are of queries that somebody asks now")
    return moment.now_ms()


def _ago(texts: list[str], moment: Moment | None) -> int:
    if len(texts) != 1:
        raise SqlValidationError("AGO takes one duration, such as AGO('PT3H') or AGO('P7D')")
    return _now([], moment) - duration_ms(texts[0])


def duration_ms(text: str) -> int:
    """An ISO 8601 duration of days, hours, minutes and seconds, as Java's Duration reads it; a day has 24 hours."""
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else {unit: value for unit, value in match.groupdict().items() if value}
    sign = -1 if parts.pop("sign", "") == "-" else 1
    if not parts:
        raise SqlValidationError(f"'{text:.100}' is no duration; write one such as PT3H, P7D or P1DT12H30M")
    millis = sum(int(parts[unit]) * size for unit, size in _UNITS_MS.items() if unit in parts)
    whole, _, fraction = parts.get("seconds", "0").replace(",", ".").partition(".")
    thousandths = int(fraction[:3].ljust(3, "0"))
    return sign * (millis + int(whole) * 1000 + (-thousandths if whole.startswith("-") else thousandths))


def _from_date_time(texts: list[str], _moment: Moment | None) -> int:
    if len(texts) not in (2, 3):
        raise SqlValidationError("FROMDATETIME takes a text, its pattern and, if it is not UTC, a time zone")
    try:
        zone = ZoneInfo(texts[2]) if len(texts) == 3 else UTC
        return (DateTimePattern.compile(texts[1]).parse(texts[0], zone) - _EPOCH) // timedelta(milliseconds=1)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SqlValidationError(f"FROMDATETIME: unknown time zone '{texts[2]:.100}'") from error
    except InvalidInputError as error:
        raise SqlValidationError(f"FROMDATETIME: {error}") from error


_FUNCTIONS: Final[dict[str, Callable[[list[str], Moment | None], int]]] = {
    "now": _now,
    "ago": _ago,
    "fromdatetime": _from_date_time,
}
