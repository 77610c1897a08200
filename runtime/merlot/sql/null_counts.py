"""COUNTs that count more than they seem to, where nulls are default values: `COUNT(CASE WHEN … THEN 1 END)`.

Told from the form of a query, once for each that is planned. Pure and safe on any thread.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from merlot.sql.parse import ParsedStatement
from merlot.tree.names import canonical_key

WARNING: Final = (
    "COUNT of an expression that may be NULL counts every row; SET enableNullHandling=true counts its values"
)


def counts_nulls(statement: ParsedStatement) -> bool:
    """Whether a COUNT is of a CASE without ELSE, or of NULLIF."""
    text = statement.sql.upper()
    if "COUNT" not in text or ("CASE" not in text and "NULLIF" not in text):
        return False
    calls = (call for call in statement.tree.find_all(exp.Anonymous) if canonical_key(call.name) == "count")
    return any(len(call.expressions) == 1 and _may_be_null(call.expressions[0]) for call in calls)


def _may_be_null(node: exp.Expr) -> bool:
    inner = node.unnest()
    if isinstance(inner, exp.Case):
        return isinstance(inner.args.get("default") or exp.Null(), exp.Null)
    return isinstance(inner, exp.Anonymous) and canonical_key(inner.name) == "nullif"
