"""Show where in a query's text an error is: the line, and a caret below the word.

Pure and safe on any thread.
"""

from __future__ import annotations

from typing import Final

from merlot.tree.errors import SqlParseError, UnsupportedSqlError

_CHARS_BEFORE: Final = 60
"""Most characters of a line that are shown before the word."""
_CHARS_AFTER: Final = 40
"""Most characters of a line that are shown from the word on."""


def excerpt(sql: str, start: int) -> str:
    """Return two lines: the line of the text that `start` is on, cut around it, and a caret below `start`."""
    first = sql.rfind("\n", 0, start) + 1
    end = sql.find("\n", start)
    last = len(sql) if end < 0 else end
    shown_from, shown_to = max(first, start - _CHARS_BEFORE), min(last, start + _CHARS_AFTER)
    before = ("…" if shown_from > first else "") + sql[shown_from:start]
    after = sql[start:shown_to] + ("…" if shown_to < last else "")
    return f"{_printable(before + after)}\n{' ' * len(before)}^"


def error_at(sql: str, start: int, problem: str) -> SqlParseError:
    """Return an error whose message names the line and column of `start`, with an excerpt."""
    line = sql.count("\n", 0, start) + 1
    column = start - (sql.rfind("\n", 0, start) + 1) + 1
    near = sql[start : start + 20].split("\n")[0]
    error = SqlParseError(f'syntax error at line {line}, column {column} near "{near}": {problem}')
    error.excerpt = excerpt(sql, start)
    return error


def unsupported_at(sql: str, start: int, feature: str) -> UnsupportedSqlError:
    """Return an error that names a feature, with an excerpt of the text at `start`."""
    error = UnsupportedSqlError(feature)
    error.excerpt = excerpt(sql, start)
    return error


def _printable(text: str) -> str:
    """Replace tabs and control characters by blanks, so that the caret stands below its word."""
    return "".join(character if character.isprintable() else " " for character in text)
