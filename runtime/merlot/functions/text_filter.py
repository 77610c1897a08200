"""Filters of TEXT_MATCH: words, phrases and beginnings of words, in Lucene's classic notation.

    java AND ("distributed systems" OR stream*) AND NOT python

Words are runs of letters, digits and underscores, and each Chinese or Japanese character by itself; case does not
matter. Conditions side by side are joined by OR. An excluded condition stands after AND NOT. Fields, fuzziness,
weights, ranges, `+`, `-` and regular expressions are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from merlot.tree.errors import SqlValidationError

MAX_DEPTH: Final = 64
MAX_CLAUSES: Final = 1024
_IDEOGRAPHS: Final = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_IDEOGRAPHS}]|[^\W{_IDEOGRAPHS}]+")
_TOKEN: Final = re.compile(r'\s*(?:"(?P<phrase>[^"]*)"|(?P<sign>[()]|&&|\|\|)|(?P<word>[^\s()"&|]+))')
_SIGNS: Final = {"&&": "AND", "||": "OR", "(": "(", ")": ")"}
_REFUSED: Final = re.compile(r"^[+\-!/]|[~^:\[\]{}?/\\]|\*.|^\*$")
"""Notation of Lucene that would otherwise be read as text."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Condition that these words stand one after another; often there is one word."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Begins:
    """Condition that a word begins with the prefix."""

    prefix: str


@dataclass(frozen=True, slots=True)
class TextAnd:
    """Condition that all parts hold, and none of the excluded ones."""

    parts: tuple[Condition, ...]
    without: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class TextOr:
    """Condition that any of the parts holds."""

    parts: tuple[Condition, ...]


Condition = Phrase | Begins | TextAnd | TextOr


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, in order."""
    return _WORD.findall(text.lower())


def holds(condition: Condition, text: str) -> bool:
    """Return True if a text matches a condition."""
    return _holds(condition, words_of(text))


def _holds(condition: Condition, words: list[str]) -> bool:
    match condition:
        case Phrase(wanted):
            starts = (place for place, word in enumerate(words) if word == wanted[0])
            return any(tuple(words[place : place + len(wanted)]) == wanted for place in starts)
        case Begins(prefix):
            return any(word.startswith(prefix) for word in words)
        case TextOr(parts):
            return any(_holds(part, words) for part in parts)
    is_without = not any(_holds(part, words) for part in condition.without)
    return is_without and all(_holds(part, words) for part in condition.parts)


@lru_cache(maxsize=1024)
def parse(text: str) -> Condition:
    """Parse a condition; raise SqlValidationError."""
    return _SearchParser(text).parse()


class _SearchParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._read())
        self._at = 0
        if len(self._tokens) > MAX_CLAUSES:
            raise self._error(f"more than {MAX_CLAUSES} words")

    def parse(self) -> Condition:
        condition = self._either(0)
        if self._at < len(self._tokens):
            raise self._error(f"nothing more is expected at {self._tokens[self._at][1]!r}")
        return condition

    def _read(self) -> Iterator[tuple[str, str]]:
        place, end = 0, len(self._text.rstrip())
        while place < end:
            match = _TOKEN.match(self._text, place)
            if match is None:
                raise self._error(f"cannot read {self._text[place : place + 20]!r}")
            kind = str(match.lastgroup)
            text = match.group(kind)
            if kind == "sign" or (kind == "word" and text in ("AND", "OR", "NOT")):
                kind, text = "sign", _SIGNS.get(text, text)
            yield kind, text
            place = match.end()

    def _either(self, depth: int) -> Condition:
        parts = [self._every(depth)]
        while self._at < len(self._tokens) and not self._is(")"):
            self._took("OR")
            parts.append(self._every(depth))
        return parts[0] if len(parts) == 1 else TextOr(tuple(parts))

    def _every(self, depth: int) -> Condition:
        parts: list[Condition] = [self._one(depth)]
        without: list[Condition] = []
        while self._took("AND"):
            (without if self._took("NOT") else parts).append(self._one(depth))
        return parts[0] if len(parts) == 1 and not without else TextAnd(tuple(parts), tuple(without))

    def _one(self, depth: int) -> Condition:
        if self._took("("):
            if depth >= MAX_DEPTH:
                raise self._error("parentheses are too deep")
            inner = self._either(depth + 1)
            if not self._took(")"):
                raise self._error(") is expected")
            return inner
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("sign", "the end")
        if kind == "sign":
            hint = "; write … AND NOT …, or NOT TEXT_MATCH(…)" if text == "NOT" else ""
            raise self._error(f"a word or a phrase is expected at {text!r}{hint}")
        self._at += 1
        return self._word(text) if kind == "word" else self._phrase(text)

    def _word(self, text: str) -> Condition:
        if _REFUSED.search(text):
            raise self._error(f"{text!r} is notation that is not known here; put a text into double quotes")
        if not text.endswith("*"):
            return self._phrase(text)
        words = words_of(text)
        if len(words) != 1 or words[0] != text[:-1].lower():
            raise self._error(f"{text!r} is not the beginning of one word")
        return Begins(words[0])

    def _phrase(self, text: str) -> Phrase:
        words = words_of(text)
        if not words:
            raise self._error(f"there is no word in {text!r}")
        return Phrase(tuple(words))

    def _is(self, sign: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign)

    def _took(self, sign: str) -> bool:
        is_next = self._is(sign)
        self._at += is_next
        return is_next

    def _error(self, what: str) -> SqlValidationError:
        return SqlValidationError(f"text_match: {what} query={self._text[:200]!r}")
