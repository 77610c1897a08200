"""How much one text may hold: what tools really send, with room, so that no text is worth minutes of a core.

Told from the text, before anything costly is done with it. Pure and safe on any thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from merlot.sql import syntax_errors
from merlot.sql.budget import Budget
from merlot.sql.lists import CutText
from merlot.tree.errors import SqlParseError, SqlValidationError
from merlot.tree.limits import MAX_IN_VALUES as MAX_IN_VALUES

MAX_SQL_CHARS: Final = 1 << 20
MAX_TOKENS: Final = 350_000
MAX_NAME_CHARS: Final = 1_000
MAX_OPTIONS: Final = 200
"""SETs and entries of OPTION(…)."""
MAX_PREDICATES: Final = 10_000
"""Conditions that AND and OR join, and branches of CASE."""
MAX_ITEMS: Final = 10_000
"""Expressions between commas: of SELECT, GROUP BY and ORDER BY, and arguments of functions."""
MAX_CHAIN: Final = 1_000
"""Operators in a row, as `a + b + …` has them: each is a level of the tree, which may have far fewer."""

MAX_NESTING: Final = 25
"""Open parentheses and CASEs at any point: each costs the parser some 25 Python frames of its 1,000."""
TOO_DEEP: Final = f"nested deeper than {MAX_NESTING} levels"

SHORT_CHARS: Final = 20_000
"""No text of so many characters passes any of the limits on numbers."""

_TOKEN: Final = re.compile(
    r"""'(?:[^']|'')*+'?|"[^"]*"?|`[^`]*`?|--[^\n]*|/\*(?:.*?\*/|.*)|[0-9][\w.]*|[\w$]+|[^\s\w$]""", re.DOTALL
)
"""What is opened and not closed is one, to the end: looking for the end of each would take the square of the text."""
_JOINING: Final = frozenset({"AND", "OR", "WHEN"})
_OPERATORS: Final = frozenset("+-*/%|=<>")
_ENDING: Final = frozenset({"SELECT", "FROM", "THEN", "ELSE"})
"""Words after which operators are of another expression."""
_WORDS: Final = _JOINING | _ENDING


def check_length(sql: str) -> None:
    """Raise SqlParseError for a text that is too long to look at."""
    if len(sql) > MAX_SQL_CHARS:
        raise SqlParseError(f"query too long chars={len(sql)} limit={MAX_SQL_CHARS}")


def check_text(text: CutText, budget: Budget) -> None:
    """Raise SqlParseError or SqlValidationError for a text that has too much of something, or goes too deep.

    Before anything is made of it: half a second of tokens keeps other threads waiting for the interpreter and fills the
    memory that they collect."""
    _check("values in IN", text.num_values, MAX_IN_VALUES)
    if len(text.short) <= SHORT_CHARS:
        return
    count = _Count(tokens=2 * text.num_values, in_values=text.num_values - len(text.lists))
    tokens = map(itemgetter(0), _TOKEN.finditer(text.short))
    seen = 0
    while chunk := list(islice(tokens, _TOKENS_A_LOOK)):
        budget.look()
        too_deep = count.add(chunk)
        if too_deep is not None:
            opening = next(islice(_TOKEN.finditer(text.short), seen + too_deep, None))
            raise syntax_errors.at(text.sql, text.at(opening.start()), TOO_DEEP)
        seen += len(chunk)
    _check("values in IN", count.in_values, MAX_IN_VALUES)
    _check("conditions joined by AND, OR and WHEN", count.predicates, MAX_PREDICATES)
    _check("expressions in SELECT, GROUP BY, ORDER BY and calls", count.items, MAX_ITEMS)


_TOKENS_A_LOOK: Final = 1_000


@dataclass(slots=True)
class _Count:
    """What a text has so far."""

    tokens: int = 0
    in_values: int = 0
    predicates: int = 0
    items: int = 0
    chain: int = 0
    """Operators since the last comma, parenthesis or word that ends an expression."""
    _is_in_list: list[bool] = field(default_factory=lambda: [False])
    _is_after_in: bool = False

    def add(self, tokens: Sequence[str]) -> int | None:
        """Which of the tokens opens one parenthesis too many, if any. Raises SqlParseError for too many tokens."""
        self.tokens += len(tokens)
        if self.tokens > MAX_TOKENS:
            raise SqlParseError(f"query has too many words limit={MAX_TOKENS}")
        for number, token in enumerate(tokens):
            if token in _OPERATORS:
                self.chain += 1
                if self.chain > MAX_CHAIN:
                    raise SqlParseError(f"too many operators in a row limit={MAX_CHAIN}")
                self._is_after_in = False
                continue
            if token in ",()":
                self.chain = 0
            if token == ",":
                self.in_values += self._is_in_list[-1]
                self.items += not self._is_in_list[-1]
            elif token == "(":
                if len(self._is_in_list) > MAX_NESTING:
                    return number
                self._is_in_list.append(self._is_after_in)
                self.in_values += self._is_after_in
            elif token == ")":
                if len(self._is_in_list) > 1:
                    self._is_in_list.pop()
            elif len(token) <= 6 and (word := token.upper()) in _WORDS:
                self.predicates += word in _JOINING
                self.chain = 0
            self._is_after_in = len(token) == 2 and token.upper() == "IN"
        return None


def check_names(tokens: Sequence[Token]) -> None:
    """Raise SqlParseError for a name that is a page long: messages would be as long."""
    for token in tokens:
        if len(token.text) > MAX_NAME_CHARS and token.token_type in _NAMES:
            shown = token.text[:20]
            raise SqlParseError(f"name too long starts={shown} chars={len(token.text)} limit={MAX_NAME_CHARS}")


_NAMES: Final = frozenset({TokenType.VAR, TokenType.IDENTIFIER})


def _check(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise SqlValidationError(f"too many {what} got={count} limit={limit}")
