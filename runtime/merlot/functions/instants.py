"""Current time of a query: NOW() and AGO('PT3H'), LONG milliseconds since the epoch, worked out at binding."""

from __future__ import annotations

import re
from typing import Final

from merlot.functions.function import Binding, Family, word
from merlot.functions.time_words import constant_text
from merlot.tree import literals
from merlot.tree.errors import SqlValidationError
from merlot.tree.nodes import Expr, Literal
from merlot.tree.types import LONG
from merlot.values.periods import DAY_MS

_DURATION: Final = re.compile(
    r"""(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]{1,15})D)?
    (?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]{1,15})H)?(?:(?P<minutes>[-+]?[0-9]{1,15})M)?
    (?:(?P<seconds>[-+]?[0-9]{1,15}(?:[.,][0-9]{0,9})?)S)?)?""",
    re.IGNORECASE | re.VERBOSE,
)
_UNITS_MS: Final = {"days": DAY_MS, "hours": 3_600_000, "minutes": 60_000}
INSTANTS: Final = Family("Now")


class Moment:
    """Current time of one query. `was_asked` is True if the query's plan is valid for this moment alone."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.was_asked = False

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, the same for every call, and set `was_asked`."""
        self.was_asked = True
        return self._now_ms


@INSTANTS.rewriting("now", result=LONG, examples={"NOW() > 1700000000000": True})
def _now(binding: Binding, _args: tuple[Expr, ...]) -> Expr:
    return Literal(binding.now_ms(), LONG)


@INSTANTS.rewriting("ago", parameters=(word("duration"),), result=LONG, examples={"NOW() - AGO('P1DT2H')": 93_600_000})
def _ago(binding: Binding, args: tuple[Expr, ...]) -> Expr:
    value = binding.now_ms() - duration_ms(constant_text(args[0]))
    if not literals.LONG_MIN <= value <= literals.LONG_MAX:
        raise SqlValidationError("ago is out of the range of LONG")
    return Literal(value, LONG)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration of days, hours, minutes and seconds, as Java's Duration reads it;
    a day has 24 hours. Raise SqlValidationError for other texts."""
    match = _DURATION.fullmatch(text)
    parts = {} if match is None else {unit: value for unit, value in match.groupdict().items() if value}
    sign = -1 if parts.pop("sign", "") == "-" else 1
    if not parts:
        raise SqlValidationError(f"'{text:.100}' is no duration; write one such as PT3H, P7D or P1DT12H30M")
    millis = sum(int(parts[unit]) * size for unit, size in _UNITS_MS.items() if unit in parts)
    whole, _, fraction = parts.get("seconds", "0").replace(",", ".").partition(".")
    thousandths = int(fraction[:3].ljust(3, "0"))
    return sign * (millis + int(whole) * 1000 + (-thousandths if whole.startswith("-") else thousandths))
