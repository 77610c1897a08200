"""Warn of COUNTs that count every row while nulls are default values: `COUNT(CASE WHEN … THEN 1 END)`.

The form of the query decides, once for each query that is planned. Pure and safe on any thread.
"""

from __future__ import annotations

from typing import Final

from merlot.sql.parse import ParsedStatement
from merlot.sql.syntax import Call, Case, Node, Null, bare, walk
from merlot.tree.names import canonical_key

WARNING: Final = (
    "COUNT of an expression that may be NULL counts every row; SET enableNullHandling=true counts its values"
)


def counts_nulls(statement: ParsedStatement) -> bool:
    """Return True if the query has a COUNT of NULLIF, or of a CASE without ELSE or with ELSE NULL."""
    text = statement.sql.upper()
    if "COUNT" not in text or ("CASE" not in text and "NULLIF" not in text):
        return False
    return any(_counts_nulls(node) for node in walk(statement.tree) if isinstance(node, Call))


def _counts_nulls(call: Call) -> bool:
    is_count = canonical_key(call.name) == "count" and not call.is_distinct
    return is_count and len(call.args) == 1 and _may_be_null(call.args[0])


def _may_be_null(node: Node) -> bool:
    inner = bare(node)
    if isinstance(inner, Case):
        return inner.default is None or isinstance(inner.default, Null)
    return isinstance(inner, Call) and canonical_key(inner.name) == "nullif"
