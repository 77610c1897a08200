"""A query's text without its constants: texts that ask the same of different values become one.

By one regular expression, without parsing: whatever the text is, two texts with one normal form differ in constants,
white space and comments alone. Lists of constants count as one constant, however long they are.
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


def normalised(sql: str) -> str:
    """The text with `?` for each constant, one blank for white space, and lists of constants as `(?)`."""
    return _LIST.sub("(?)", _TOKEN.sub(_replaced, sql)).strip().rstrip(";").rstrip()


def _replaced(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "blank":
        return " "
    return match[0] if kind == "name" else CONSTANT
