"""The words of SQL's grammar."""

from __future__ import annotations

from typing import Final

STRUCTURE: Final = frozenset(
    {
        *("AND", "AS", "BETWEEN", "CASE", "CROSS", "DISTINCT", "ELSE", "END", "EXCEPT", "FETCH", "FROM", "GROUP"),
        *("HAVING", "IN", "INNER", "INTERSECT", "INTO", "IS", "JOIN", "LIKE", "LIMIT", "NATURAL", "NOT", "ON", "OR"),
        *("ORDER", "OUTER", "OVER", "QUALIFY", "SELECT", "THEN", "UNION", "USING", "WHEN", "WHERE", "WITH"),
    }
)
"""Words that begin or join clauses, and are no names even after AS."""

RESERVED: Final = STRUCTURE | {
    *("ALL", "ANY", "ASC", "ASOF", "DESC", "ESCAPE", "EXISTS", "FALSE", "FOR", "FULL", "LEFT", "NULL", "OFFSET"),
    *("RIGHT", "TRUE", "WINDOW"),
}
"""Words that are no names without quotes, calls of functions apart."""

JOIN_WORDS: Final = frozenset(
    {"JOIN", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF"}
)
NO_ALIASES: Final = RESERVED | {
    *("ARRAY", "ASYMMETRIC", "BOTH", "BY", "CAST", "COLLATE", "LEADING", "SOME", "SYMMETRIC", "TABLE", "TRAILING"),
}
"""Words that are no alias without AS: the added ones stand within expressions, and Calcite and DuckDB reserve them."""
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
"""What types are called in CAST, and the one name that each has here; others keep their own."""
TYPED_TEXTS: Final = frozenset({"DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME"})
"""`DATE '2020-01-31'`"""
CALLED_FORMS: Final = frozenset({"CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "EXISTS"})
FORMS: Final = CALLED_FORMS | {"(", "CASE", "INTERVAL", "ARRAY", "[", ".", "@", ":", "?", "NULL", "TRUE", "FALSE"}
"""Words and signs that begin an expression with a grammar of its own; the called ones with a parenthesis alone."""
