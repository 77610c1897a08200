"""How much one text may hold: what tools really send, with room, so that no text is worth minutes of a core.

Counted while the text is read, which ends where a limit is passed. Pure and safe on any thread.
"""

from __future__ import annotations

from typing import Final

from merlot.tree.errors import SqlParseError
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
MAX_CHAIN: Final = 100
"""Operators in a row, as `a + b + …` has them: each is a level of the tree."""
MAX_RUN: Final = 30
"""NOTs or signs in a row: each is a level of the tree."""
MAX_TERMS: Final = 100
"""Queries that set operations join: each is a level of the tree."""
MAX_NESTING: Final = 25
"""Open parentheses, brackets and CASEs at any point: each costs the parser up to 20 Python frames of its 1,000."""
TOO_DEEP: Final = f"nested deeper than {MAX_NESTING} levels"


def check_length(sql: str) -> None:
    """Raise SqlParseError for a text that is too long to look at."""
    if len(sql) > MAX_SQL_CHARS:
        raise SqlParseError(f"query too long chars={len(sql)} limit={MAX_SQL_CHARS}")
