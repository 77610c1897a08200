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


def feature_name(node: Node) -> str:
    """Return the name of the feature that a node belongs to."""
    if isinstance(node, SetOperation):
        return node.kind
    return _NAMES.get(type(node)) or type(node).__name__.upper()
