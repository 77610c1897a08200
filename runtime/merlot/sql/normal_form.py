"""Replace the constants of a query's text, so that queries that differ only in constants have the same text.

It works with a regular expression, without parsing: two texts of one normal form differ in constants, white space and
comments only. A list of constants counts as one constant, whatever its length.
"""

from __future__ import annotations

import re
from typing import Final

CONSTANT: Final = "?"
_TOKEN: Final = re.compile(
    r"""(?P<text>'(?:[^']|'')*')
    |(?P<name>"(?:[^"]|"")*"|`[^`]*`|[^\W\d][\w$.]*)
    |(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<blank>(?:\s|--[^\n]*|/\*.*?\*/)+)""",
    re.VERBOSE | re.DOTALL,
)
_LIST: Final = re.compile(r"\(\s*-?\?(?:\s*,\s*-?\?)+\s*\)")


def normal_form(sql: str) -> str:
    """Return the text with `?` for each constant, one blank for white space, and `(?)` for a list of constants."""
    return _LIST.sub("(?)", _TOKEN.sub(_replaced, sql)).strip().rstrip(";").rstrip()


def _replaced(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "blank":
        return " "
    return match[0] if kind == "name" else CONSTANT
