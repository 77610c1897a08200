"""Long lists of constants in IN, read by one regular expression before the tokenizer sees them: 15 ms for 50,000
values, which take sqlglot a second.

`cut` leaves `()` of such a list in the text. Tokens of the shorter text are moved to where they stand in the whole one
(`CutText.place`), so errors name the same lines and columns; the dialect's parser finds a list by where it opens. What
is not exactly a list of whole and decimal numbers, or of texts, stays, and so does everything in a text that the scan
cannot follow. Pure and safe on any thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from merlot.tree import literals
from merlot.tree.nodes import Literal
from merlot.tree.types import DOUBLE, STRING

MIN_CHARS: Final = 512
"""Shorter texts are not looked at."""
MIN_VALUES: Final = 64

_SPACE: Final = r"[ \t\r\n]*+"
_TEXT: Final = r"'(?:[^']++|'')*+'"
_NUMBER: Final = r"-?[0-9]{1,100}+(?:\.[0-9]{1,100}+)?"


def _list_of(name: str, value: str) -> str:
    more = f"(?:{_SPACE},{_SPACE}{value}){{{MIN_VALUES - 1},}}+"
    return rf"\({_SPACE}(?P<{name}>{value}{more}){_SPACE}\)"


_IN: Final = rf"[nN](?![\w$]){_SPACE}"
_PIECES: Final = re.compile(
    rf"""'(?:[^']++|'')*+(?:'|\Z)|"[^"]*+(?:"|\Z)|`[^`]*+(?:`|\Z)|--[^\r\n]*+|/\*(?:[^*/]++|\*(?!/)|/(?!\*))*+\*/"""
    rf"|i{_IN}{_list_of('numbers', _NUMBER)}|i{_IN}{_list_of('texts', _TEXT)}"
    rf"|I{_IN}{_list_of('NUMBERS', _NUMBER)}|I{_IN}{_list_of('TEXTS', _TEXT)}"
    "|/\\*|\\{[#{%]|\0"
)
"""What hides text from the tokenizer, and the lists; each begins with a letter, which the search goes by. The last
line is what the scan gives up at."""
_ONE_TEXT: Final = re.compile(r"'((?:[^']++|'')*+)'")
_EXACT_CHARS: Final = 16
"""A decimal number of so many characters is the double that it reads as."""


class Constants(exp.Expression):
    """The values of a long list, in place of as many nodes.

    `this` is the text between the parentheses, `values` a tuple: of int, of str, or of `tree.nodes.Literal`."""

    arg_types = {"this": True, "values": True}  # noqa: RUF012 (sqlglot's own idiom)

    @property
    def values(self) -> tuple[int, ...] | tuple[str, ...] | tuple[Literal, ...]:
        """What is listed, in order."""
        found: tuple[int, ...] | tuple[str, ...] | tuple[Literal, ...] = self.args["values"]
        return found

    @property
    def literals(self) -> list[Literal]:
        """The values, typed as they are when they are parsed one by one."""
        return [_typed(value) for value in self.values]

    @property
    def spelled(self) -> list[str]:
        """The values as they are written, without quotes."""
        if isinstance(self.values[0], str):
            return [str(value) for value in self.values]
        return [text.strip() for text in self.this.split(",")]


def _typed(value: int | str | Literal) -> Literal:
    if isinstance(value, Literal):
        return value
    return Literal(value, STRING) if isinstance(value, str) else literals.integer(value)


@dataclass(frozen=True, slots=True)
class CutText:
    """A text with `()` for its long lists."""

    sql: str
    """The whole text."""
    short: str
    lists: Mapping[int, Constants] = field(default_factory=dict)
    """By where their parenthesis opens in the whole text."""
    gaps: Sequence[tuple[int, int]] = ()
    """Where each list's parenthesis closes in the short text, and how many characters were left out up to there."""

    @property
    def num_values(self) -> int:
        """In all lists that are cut out."""
        return sum(len(one.values) for one in self.lists.values())

    def place(self, tokens: Sequence[Token]) -> None:
        """Move tokens of the short text, in order, to where they stand in the whole one."""
        gaps = iter((*self.gaps, (len(self.sql) + 1, 0)))
        closing, left_out = next(gaps)
        moved = 0
        line, at = 1, 0
        for token in tokens:
            while token.start >= closing:
                moved = left_out
                closing, left_out = next(gaps)
            if not moved:
                continue
            token.start += moved
            token.end += moved
            line += self.sql.count("\n", at, token.end + 1)
            at = token.end + 1
            token.line = line
            token.col = token.end - self.sql.rfind("\n", 0, at)

    def at(self, position: int) -> int:
        """Where a position of the short text stands in the whole one."""
        return position + max((left_out for closing, left_out in self.gaps if position >= closing), default=0)


def cut(sql: str) -> CutText:
    """The text without its long lists."""
    if len(sql) < MIN_CHARS:
        return CutText(sql, sql)
    lists: dict[int, Constants] = {}
    gaps: list[tuple[int, int]] = []
    pieces: list[str] = []
    start = left_out = 0
    for match in _PIECES.finditer(sql):
        kind = match.lastgroup
        if kind is None and _ends_scan(match[0]):
            return CutText(sql, sql)
        if kind is None or _goes_on(sql[max(match.start() - 1, 0) : match.start()]):
            continue
        opening = sql.index("(", match.start())
        inner = match[kind]
        values = _numbers(inner) if kind in ("numbers", "NUMBERS") else _texts(inner)
        lists[opening] = Constants(this=inner, values=values)
        pieces += [sql[start:opening], "("]
        left_out += match.end() - 2 - opening
        gaps.append((match.end() - 1 - left_out, left_out))
        start = match.end() - 1
    return CutText(sql, "".join([*pieces, sql[start:]]), lists, gaps)


def _goes_on(character: str) -> bool:
    """Whether a word after this character is only the end of one, or a name: `begin (…)`, `t.in (…)`."""
    return character.isalnum() or (character != "" and character in "_$.@:#")


def _ends_scan(piece: str) -> bool:
    """Whether it is the beginning of something whose end the scan does not know."""
    return piece in ("/*", "\0") or piece[0] == "{"


def _numbers(inner: str) -> tuple[int, ...] | tuple[Literal, ...]:
    if "." not in inner:
        return tuple(map(int, inner.split(",")))
    return tuple(map(_number, inner.split(",")))


def _number(text: str) -> Literal:
    spelled = text.strip()
    if "." in spelled and len(spelled) <= _EXACT_CHARS:
        return Literal(float(spelled), DOUBLE)
    return literals.number(spelled)


def _texts(inner: str) -> tuple[str, ...]:
    found = _ONE_TEXT.findall(inner)
    return tuple(text.replace("''", "'") for text in found) if "''" in inner else tuple(found)
