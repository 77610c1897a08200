"""Names of SQL features that are refused, for error messages."""

from __future__ import annotations

from typing import Final

from merlot.sql.syntax import (
    Derived,
    Distinct,
    Exists,
    GroupingSets,
    Node,
    NullsTreated,
    Quantified,
    Row,
    Select,
    SetOperation,
    Subquery,
    Window,
    WithinGroup,
)

_NAMES: Final[dict[type[Node], str]] = {
    Subquery: "subquery",
    Select: "subquery",
    Derived: "subquery",
    Exists: "EXISTS",
    Quantified: "a comparison with ANY or ALL of a subquery",
    Window: "window function (OVER)",
    GroupingSets: "GROUPING SETS",
    WithinGroup: "WITHIN GROUP",
    NullsTreated: "IGNORE NULLS and RESPECT NULLS without OVER",
    Row: "several values in parentheses",
    Distinct: "IS DISTINCT FROM",
}

CONSTRUCTS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("SIMILAR", "TO"), "SIMILAR TO: write REGEXP_LIKE"),
    (("SIMILAR",), "SUBSTRING(… SIMILAR …): write REGEXP_EXTRACT"),
    (("RLIKE",), "RLIKE: write REGEXP_LIKE"),
    (("REGEXP",), "REGEXP: write REGEXP_LIKE"),
    (("GLOB",), "GLOB: write LIKE"),
    (("DIV",), "DIV: write INTDIV"),
    ((":", ":"), "a::type: write CAST"),
    (("-", ">"), "a function with ->"),
    (("{", "T"), "{t '…'}: write {ts '…'}"),
    (("{", "OJ"), "{oj …}: write the join by itself"),
    (("{", "ESCAPE"), "{escape …}: write ESCAPE"),
    (("SELECT", "TOP"), "TOP: write LIMIT"),
    (("GROUP", "BY", "DISTINCT"), "GROUP BY DISTINCT"),
    (("ORDER", "BY", "ALL"), "ORDER BY ALL"),
    (("LIMIT", "ALL"), "LIMIT ALL: write a number"),
    (("PERCENT",), "LIMIT with PERCENT"),
    (("WITHIN", "DISTINCT"), "WITHIN DISTINCT"),
    (("FOR", "SYSTEM_TIME"), "FOR SYSTEM_TIME AS OF"),
    (("MATCH_RECOGNIZE",), "MATCH_RECOGNIZE"),
    (("OUTER", "APPLY"), "OUTER APPLY: write LEFT JOIN LATERAL"),
    (("OVERLAPS",), "OVERLAPS"),
    (("CONTAINS",), "CONTAINS of periods"),
    (("PRECEDES",), "PRECEDES"),
    (("SUCCEEDS",), "SUCCEEDS"),
    (("MEMBER", "OF"), "MEMBER OF"),
    (("SUBMULTISET", "OF"), "SUBMULTISET OF"),
    (("IS", "JSON"), "IS JSON"),
    (("IS", "NOT", "JSON"), "IS JSON"),
    (("FORMAT", "JSON"), "FORMAT JSON"),
    (("JSON_QUERY", "("), "JSON_QUERY: write JSON_EXTRACT_SCALAR"),
    (("JSON_OBJECT", "("), "JSON_OBJECT"),
    (("NEXT", "VALUE", "FOR"), "NEXT VALUE FOR"),
    (("TIMESTAMP", "WITH"), "TIMESTAMP WITH TIME ZONE '…': write TIMESTAMP '…'"),
    (("AT", "LOCAL"), "AT LOCAL: write TODATETIME"),
    (("ALLOW", "PARTIAL"), "ALLOW PARTIAL"),
    (("CONNECT", "BY"), "CONNECT BY"),
    (("START", "WITH"), "START WITH"),
)
"""Words of constructs that are no part of the grammar, and the names that they are refused by. They are looked for only
where a text does not fit, so that every word may also be a name."""


def feature_name(node: Node) -> str:
    """Return the name of the feature that a node belongs to."""
    if isinstance(node, SetOperation):
        return node.kind
    return _NAMES.get(type(node)) or type(node).__name__.upper()
