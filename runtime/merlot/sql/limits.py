"""Limits on the size of a text: more than tools really send, but never so much that a text costs minutes of a core.

Sizes are counted while the text is read; reading ends where a limit is passed. Pure and safe on any thread.
"""

from __future__ import annotations

from typing import Final

from merlot.tree.errors import SqlParseError
from merlot.tree.limits import MAX_IN_VALUES as MAX_IN_VALUES

MAX_SQL_CHARS: Final = 1 << 20
MAX_TOKENS: Final = 350_000
MAX_NAME_CHARS: Final = 1_000
MAX_OPTIONS: Final = 200
"""Most SETs and entries of OPTION(…)."""
MAX_PREDICATES: Final = 10_000
"""Most conditions that AND and OR join, and branches of CASE."""
MAX_ITEMS: Final = 10_000
"""Most expressions between commas: in SELECT, GROUP BY and ORDER BY, and as arguments of functions."""
MAX_CHAIN: Final = 100
"""Most operators in a row, as in `a + b + …`: each is a level of the tree."""
MAX_RUN: Final = 30
"""Most NOTs or signs in a row: each is a level of the tree."""
MAX_TERMS: Final = 100
"""Most queries that set operations combine: each is a level of the tree."""
MAX_NESTING: Final = 25
"""Most parentheses, brackets and CASEs that are open at a time: each costs the parser up to 20 Python frames of its
1,000."""
TOO_DEEP: Final = f"nested deeper than {MAX_NESTING} levels"


def check_length(sql: str) -> None:
    """Raise SqlParseError if a text is too long to parse."""
    if len(sql) > MAX_SQL_CHARS:
        raise SqlParseError(f"query too long chars={len(sql)} limit={MAX_SQL_CHARS}")
