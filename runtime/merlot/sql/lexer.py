"""Split a text into tokens with one regular expression: words, numbers, quoted texts and names, and signs.

A long list of constants after IN is one token, its IN included: 50,000 values are read in 15 ms. Tokens have no
positions. Only errors need them, and find them by reading the text again. Pure and safe on any thread.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from merlot.sql.excerpts import error_at
from merlot.sql.syntax import Constants
from merlot.tree import literals
from merlot.tree.nodes import Literal
from merlot.tree.types import DOUBLE

END: Final = ""
MIN_VALUES: Final = 64
"""Fewest values of a list that is one token; shorter lists are read value by value."""
MIN_LIST_CHARS: Final = 2 * MIN_VALUES
"""Fewest characters of such a list."""

_SPACE: Final = r"\s*+"
_TEXT: Final = r"'(?:[^']++|'')*+'"
_NUMBER: Final = r"-?[0-9]{1,100}+(?:\.[0-9]{1,100}+)?"


def _list_of(value: str) -> str:
    return rf"{value}(?:{_SPACE},{_SPACE}{value}){{{MIN_VALUES - 1},}}+"


_COMMENT: Final = r"--[^\r\n]*+|/\*(?:[^*/]++|\*(?!/)|/(?!\*))*+\*/"
_TOKEN: Final = re.compile(
    rf"\s*+(?:(?:{_COMMENT})\s*+)*+("
    rf"[iI][nN]{_SPACE}\({_SPACE}(?:{_list_of(_NUMBER)}|{_list_of(_TEXT)}){_SPACE}\)"
    rf"|[xX]'[^']*+'|[^\W\d][\w$]*+|\$[\w$]*+|0[xX][0-9a-fA-F]++|[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?"
    rf'|{_TEXT}|"(?:[^"]++|"")*+"|`(?:[^`]++|``)*+`'
    r"|<=>|<>|!=|<=|>=|==|\|\||<<|>>|/\*|[^\s]|\Z)"
)
"""White space and comments, then a token. The end of the text is a token too, so that no space is matched twice."""
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
_UNFINISHED: Final = frozenset({"'", '"', "`", "/*"})
_ONE_TEXT: Final = re.compile(r"'((?:[^']++|'')*+)'")
_EXACT_CHARS: Final = 16
"""Longest text of a decimal number whose digits a double always keeps: 15 digits and a point."""


def tokens_of(sql: str) -> tuple[str, list[str]]:
    """Return the text without nested comments, and its tokens. Raise SqlParseError for a quote or comment that is not
    closed."""
    tokens = _TOKEN.findall(sql)
    if "/*" in tokens:
        sql = _without_nested_comments(sql)
        tokens = _TOKEN.findall(sql)
    while tokens and not tokens[-1]:
        tokens.pop()
    if not _UNFINISHED.isdisjoint(tokens):
        number = next(number for number, token in enumerate(tokens) if token in _UNFINISHED)
        raise error_at(sql, offset_of_token(sql, number), "unfinished string, name or comment")
    return sql, tokens


def _without_nested_comments(sql: str) -> str:
    """Replace comments that contain comments by blanks."""
    pieces: list[str] = []
    at = copied = 0
    while (match := _TOKEN.match(sql, at)) is not None and match[1]:
        at = match.end()
        if match[1] != "/*":
            continue
        start = match.start(1)
        end = _end_of_comment(sql, start)
        if end is None:
            break
        # Line breaks stay, so that errors name the same lines.
        pieces += [sql[copied:start], re.sub(r"[^\n]", " ", sql[start:end])]
        at = copied = end
    return "".join([*pieces, sql[copied:]])


def _end_of_comment(sql: str, start: int) -> int | None:
    depth = 0
    for match in _COMMENT_MARK.finditer(sql, start):
        depth += 1 if match[0] == "/*" else -1
        if not depth:
            return match.end()
    return None


def offset_of_token(sql: str, number: int) -> int:
    """Return the offset at which a token of the text begins."""
    match = next(islice(_TOKEN.finditer(sql), number, None), None)
    return len(sql) if match is None else match.start(1)


def text_in(token: str) -> str:
    """Return a token's text, without quotes if it has any."""
    quote = token[:1]
    if quote == "'" or quote == '"' or quote == "`":
        return token[1:-1].replace(quote + quote, quote)
    return token


def is_list(token: str) -> bool:
    """Return True if the token is a long list of constants, its IN included."""
    return len(token) > MIN_LIST_CHARS and token[0] in "iI" and token[-1] == ")"


def constants_in(token: str) -> Constants:
    """Return the values of a token that is a long list."""
    text = token[token.index("(") + 1 : -1].strip()
    return Constants(text, _texts(text) if text[0] == "'" else _numbers(text))


def _numbers(text: str) -> tuple[int, ...] | tuple[Literal, ...]:
    if "." not in text:
        return tuple(map(int, text.split(",")))
    return tuple(map(_number, text.split(",")))


def _number(text: str) -> Literal:
    spelled = text.strip()
    if "." in spelled and len(spelled) <= _EXACT_CHARS:
        return Literal(float(spelled), DOUBLE)
    return literals.number(spelled)


def _texts(text: str) -> tuple[str, ...]:
    texts: list[str] = _ONE_TEXT.findall(text)
    return tuple(text.replace("''", "'") for text in texts) if "''" in text else tuple(texts)
