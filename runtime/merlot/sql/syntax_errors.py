"""Syntax errors of one line, with where in the text they are."""

from __future__ import annotations

from sqlglot.errors import ParseError

from merlot.tree.errors import SqlParseError


def of_parser(error: ParseError) -> SqlParseError:
    """The parser's error in our words."""
    details = error.errors[0] if error.errors else {}
    line, column = details.get("line"), details.get("col")
    near = str(details.get("highlight") or "").replace("\n", " ")
    description = _plain(str(details.get("description") or "invalid syntax"))
    if line is None:
        return SqlParseError(f"invalid syntax: {description}")
    first_column = max(1, int(column or 1) - max(0, len(near) - 1))
    return SqlParseError(f'syntax error at line {line}, column {first_column} near "{near}": {description}')


def at(sql: str, start: int, problem: str) -> SqlParseError:
    """An error of the text from `start` on."""
    line = sql.count("\n", 0, start) + 1
    column = start - (sql.rfind("\n", 0, start) + 1) + 1
    near = sql[start : start + 20].split("\n")[0]
    return SqlParseError(f'syntax error at line {line}, column {column} near "{near}": {problem}')


def _plain(description: str) -> str:
    """The parser's words without its class names."""
    if description.startswith("Required keyword"):
        return "expected an expression"
    if description.startswith("Invalid expression"):
        return "unexpected token"
    text = description.split(" but got ")[0].split("\n")[0].rstrip(".")
    return text[:1].lower() + text[1:]
