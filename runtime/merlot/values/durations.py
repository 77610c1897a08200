"""Lengths of time as users write them: `45s`, `90m`, `12h`, `30d`, `2w`."""

import re
from typing import Annotated

from pydantic import Field

from merlot.values.periods import DAY_MS

DURATION = r"^[1-9][0-9]{0,8}(s|m|h|d|w)$"
_DURATION_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}

Duration = Annotated[str, Field(pattern=DURATION)]


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration. Raise ValueError."""
    if not re.match(DURATION, text):
        raise ValueError(f"not a duration: {text!r}")
    return int(text[:-1]) * _DURATION_UNIT_MS[text[-1]]
