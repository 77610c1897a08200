"""The words of SQL's grammar, and the words of a text's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

NUMBER: Final = "0"
STRING: Final = "'"
QUOTED: Final = '"'
END: Final = ""

_MARKS: Final = {
    TokenType.NUMBER: NUMBER,
    TokenType.STRING: STRING,
    TokenType.NATIONAL_STRING: STRING,
    TokenType.HEX_STRING: STRING,
    TokenType.BIT_STRING: STRING,
    TokenType.BYTE_STRING: STRING,
    TokenType.RAW_STRING: STRING,
    TokenType.UNICODE_STRING: STRING,
    TokenType.IDENTIFIER: QUOTED,
}

STRUCTURE: Final = frozenset(
    {
        *("AND", "AS", "BETWEEN", "CASE", "CROSS", "DISTINCT", "ELSE", "END", "EXCEPT", "FETCH", "FROM", "GROUP"),
        *("GROUP BY", "GROUPING SETS", "HAVING", "IN", "INNER", "INTERSECT", "INTO", "IS", "JOIN", "LIKE", "LIMIT"),
        *("NATURAL", "NOT", "ON", "OR", "ORDER", "ORDER BY", "OUTER", "OVER", "PARTITION BY", "QUALIFY", "SELECT"),
        *("THEN", "UNION", "USING", "WHEN", "WHERE", "WITH"),
    }
)
"""Words that begin or join clauses, and are no names even after AS."""

RESERVED: Final = STRUCTURE | {
    *("ALL", "ANY", "ASC", "ASOF", "DESC", "ESCAPE", "EXISTS", "FALSE", "FOR", "FULL", "LEFT", "NULL", "OFFSET"),
    *("RIGHT", "TRUE", "WINDOW"),
}
"""Words that are no names without quotes, calls of functions apart."""

NO_ALIASES: Final = RESERVED | {
    *("ARRAY", "ASYMMETRIC", "BOTH", "CAST", "COLLATE", "LEADING", "SOME", "SYMMETRIC", "TABLE", "TRAILING"),
}
"""Words that are no alias without AS: the added ones stand within expressions, and Calcite and DuckDB reserve them."""

QUERY_STARTS: Final = frozenset({"SELECT", "WITH", "VALUES"})
ROWS: Final = frozenset({"ROW", "ROWS"})
SET_OPERATIONS: Final = frozenset({"UNION", "INTERSECT", "EXCEPT"})
JOIN_WORDS: Final = frozenset(
    {"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF"}
)
COMPARISONS: Final = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"})
BINARY: Final = frozenset({"+", "-", "*", "/", "%", "||", "&", "|", "^", "<<", ">>"})
TYPED_TEXTS: Final = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME"})
"""`DATE '2020-01-31'`"""


def words_of(tokens: Sequence[Token]) -> list[str]:
    """Each token as the grammar reads it, and END three times: no rule looks further ahead."""
    words = [_MARKS.get(token.token_type) or token.text.upper() for token in tokens]
    return [*words, END, END, END]
