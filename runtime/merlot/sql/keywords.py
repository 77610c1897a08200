"""Keywords of SQL's grammar."""

from __future__ import annotations

from typing import Final

STRUCTURE: Final = frozenset(
    {
        *("AND", "AS", "BETWEEN", "CASE", "CROSS", "DISTINCT", "ELSE", "END", "EXCEPT", "FETCH", "FROM", "GROUP"),
        *("HAVING", "IN", "INNER", "INTERSECT", "INTO", "IS", "JOIN", "LIKE", "LIMIT", "NATURAL", "NOT", "ON", "OR"),
        *("ORDER", "OUTER", "OVER", "QUALIFY", "SELECT", "THEN", "UNION", "USING", "WHEN", "WHERE", "WITH"),
    }
)
"""Keywords that begin or join clauses. They are no names even after AS."""

RESERVED: Final = STRUCTURE | {
    *("ALL", "ANY", "ASC", "ASOF", "DESC", "ESCAPE", "EXISTS", "FALSE", "FOR", "FULL", "LEFT", "NULL", "OFFSET"),
    *("RIGHT", "TRUE", "WINDOW"),
}
"""Keywords that are no names without quotes, except as functions that are called."""

JOIN_WORDS: Final = frozenset(
    {"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF"}
)
NO_ALIASES: Final = RESERVED | {
    *("ARRAY", "ASYMMETRIC", "BOTH", "BY", "CAST", "COLLATE", "LEADING", "SOME", "SYMMETRIC", "TABLE", "TRAILING"),
}
"""Words that are no alias without AS. The words added to RESERVED occur within expressions, and Calcite and DuckDB
reserve them."""
NO_RELATION_ALIASES: Final = NO_ALIASES | JOIN_WORDS | {"APPLY", "MATCH_CONDITION", "PIVOT", "TABLESAMPLE", "UNPIVOT"}

QUERY_STARTS: Final = frozenset({"SELECT", "WITH", "VALUES"})
SET_OPERATIONS: Final = frozenset({"UNION", "INTERSECT", "EXCEPT"})

TYPES: Final = {
    **dict.fromkeys(("INT", "INTEGER", "INT4", "INT32"), "INT"),
    **dict.fromkeys(("BIGINT", "LONG", "INT8", "INT64"), "BIGINT"),
    **dict.fromkeys(("FLOAT", "FLOAT4", "REAL"), "FLOAT"),
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION", "FLOAT8"), "DOUBLE"),
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC", "NUMBER", "FIXED"), "DECIMAL"),
    **dict.fromkeys(("BIGDECIMAL", "BIGNUMERIC"), "BIGDECIMAL"),
    **dict.fromkeys(("BOOLEAN", "BOOL"), "BOOLEAN"),
    **dict.fromkeys(("VARCHAR", "VARCHAR2", "CHAR VARYING", "CHARACTER VARYING"), "VARCHAR"),
    **dict.fromkeys(("CHAR", "CHARACTER"), "CHAR"),
    **dict.fromkeys(("TEXT", "STRING", "STR", "CLOB", "LONGVARCHAR"), "TEXT"),
    **dict.fromkeys(("VARBINARY", "BLOB", "BYTEA"), "VARBINARY"),
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP",
}
"""Canonical names of types in CAST; types that are not listed keep their names."""
TYPED_TEXTS: Final = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME"})
"""Types of typed constants: `DATE '2020-01-31'`."""
CALLED_FORMS: Final = frozenset({"CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "EXISTS"})
FORMS: Final = CALLED_FORMS | {"(", "CASE", "INTERVAL", "ARRAY", "[", "{", ".", "@", ":", "?", "NULL", "TRUE", "FALSE"}
"""Keywords and signs that begin an expression with its own grammar; those of CALLED_FORMS only before a parenthesis."""
