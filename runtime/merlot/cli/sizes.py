"""Parse amounts of memory as users write them."""

from __future__ import annotations

import typer

_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}


def parse_size(text: str) -> int:
    """Return the bytes of `512m` or `4g`."""
    number, unit = text[:-1], text[-1:].lower()
    if text.isdecimal():
        number, unit = text, ""
    if not number.isdecimal() or (unit and unit not in _UNITS) or int(number) == 0:
        raise typer.BadParameter(f"no size: {text}; write one such as 512m or 4g")
    return int(number) << _UNITS.get(unit, 0)
