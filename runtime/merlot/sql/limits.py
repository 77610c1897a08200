"""How much one text may hold: what tools really send, with room, so that no text is worth minutes of a core.

Told from the tokens, before anything costly is done with them. Pure and safe on any thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from merlot.sql.errors import SqlParseError, SqlValidationError

MAX_SQL_CHARS: Final = 1 << 20
MAX_TOKENS: Final = 350_000
MAX_NAME_CHARS: Final = 1_000
MAX_OPTIONS: Final = 200
"""SETs and entries of OPTION(…)."""
MAX_IN_VALUES: Final = 100_000
"""Of all INs of a text."""
MAX_PREDICATES: Final = 10_000
"""Conditions that AND and OR join, and branches of CASE."""
MAX_ITEMS: Final = 10_000
"""Expressions between commas: of SELECT, GROUP BY and ORDER BY, and arguments of functions."""

_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|[\w$.]+|[^\s\w$.]", re.DOTALL)
_NAMES: Final = frozenset({TokenType.VAR, TokenType.IDENTIFIER})
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})


def check_text(sql: str) -> None:
    """Raise SqlParseError for a text that is not worth reading: a third of a second goes into 350,000 tokens."""
    if len(sql) > MAX_SQL_CHARS:
        raise SqlParseError(f"query too long chars={len(sql)} limit={MAX_SQL_CHARS}")
    if len(sql) > MAX_TOKENS and sum(1 for _ in _TOKEN.finditer(sql)) > MAX_TOKENS:
        raise SqlParseError(f"query has too many words limit={MAX_TOKENS}")


def check_sizes(tokens: Sequence[Token]) -> None:
    """Raise SqlValidationError if a query has too much of something, SqlParseError for a name that is a page long."""
    num_in_values = num_items = num_predicates = 0
    is_in_list = [False]
    previous = None
    for token in tokens:
        kind = token.token_type
        if kind is TokenType.COMMA:
            num_in_values += is_in_list[-1]
            num_items += not is_in_list[-1]
        elif kind in _OPENING:
            is_in_list.append(previous is TokenType.IN)
            num_in_values += previous is TokenType.IN
        elif kind in _CLOSING:
            if len(is_in_list) > 1:
                is_in_list.pop()
        elif kind is TokenType.AND or kind is TokenType.OR or kind is TokenType.WHEN:
            num_predicates += 1
        elif kind in _NAMES and len(token.text) > MAX_NAME_CHARS:
            raise SqlParseError(
                f"name too long starts={token.text[:20]} chars={len(token.text)} limit={MAX_NAME_CHARS}"
            )
        previous = kind
    _check("values in IN", num_in_values, MAX_IN_VALUES)
    _check("conditions joined by AND, OR and WHEN", num_predicates, MAX_PREDICATES)
    _check("expressions in SELECT, GROUP BY, ORDER BY and calls", num_items, MAX_ITEMS)


def _check(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise SqlValidationError(f"too many {what} got={count} limit={limit}")
