"""Label the condition of `sum(x) FILTER(WHERE …)` as Pinot prints filters: `(color = 'red' AND b IN ('2'))`.

A filter of Pinot's compares an expression with a constant. So a comparison of two columns is labelled
`minus(a,b) > '0'`, and a column that is the whole condition is labelled `flag = 'true'`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from merlot.sql.syntax import (
    And,
    Between,
    Call,
    Comparison,
    Constants,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Number,
    Or,
    Text,
    bare,
)
from merlot.tree.names import canonical_key

_SIGNS: Final = {
    "equals": ("=", "="),
    "not_equals": ("!=", "!="),
    "greater_than": (">", "<"),
    "greater_than_or_equal": (">=", "<="),
    "less_than": ("<", ">"),
    "less_than_or_equal": ("<=", ">="),
}
"""Sign of a comparison, and the sign with its sides exchanged."""
_PREDICATES: Final = frozenset({"regexplike", "textmatch", "textcontains", "jsonmatch"})


def filter_text(node: Node, text: Callable[[Node], str], constant: Callable[[Node], str | None]) -> str:
    """Label a condition. `text` prints an expression; `constant` prints an expression without columns, unquoted, and
    returns None for any other expression."""
    return _Filters(text, constant).write(node)


class _Filters:
    def __init__(self, text: Callable[[Node], str], constant: Callable[[Node], str | None]) -> None:
        self._text = text
        self._constant = constant

    def write(self, node: Node) -> str:
        node = bare(node)
        constant = self._constant(node)
        if constant is not None:
            return constant
        if isinstance(node, And | Or):
            word = " AND " if isinstance(node, And) else " OR "
            return f"({word.join(map(self.write, flattened(node)))})"
        if isinstance(node, Not):
            return self._not(bare(node.operand))
        if isinstance(node, Comparison):
            return self._comparison(node)
        return self._predicate(node)

    def _comparison(self, node: Comparison) -> str:
        sign, mirrored = _SIGNS[node.function]
        left, right = self._constant(node.left), self._constant(node.right)
        if right is not None:
            return f"{self._text(node.left)} {sign} '{right}'"
        if left is not None:
            return f"{self._text(node.right)} {mirrored} '{left}'"
        return f"minus({self._text(node.left)},{self._text(node.right)}) {sign} '0'"

    def _not(self, inner: Node) -> str:
        if isinstance(inner, In):
            return self._membership(inner, "NOT IN")
        if isinstance(inner, IsNull):
            return f"{self._text(inner.subject)} IS NOT NULL"
        return f"(NOT {self.write(inner)})"

    def _predicate(self, node: Node) -> str:
        if isinstance(node, In):
            return self._membership(node, "IN")
        if isinstance(node, Between):
            bounds = [self._constant(bound) for bound in (node.low, node.high)]
            return f"{self._text(node.subject)} BETWEEN '{bounds[0]}' AND '{bounds[1]}'"
        if isinstance(node, IsNull):
            return f"{self._text(node.subject)} IS NULL"
        if isinstance(node, Like) and node.escape is None and isinstance(node.pattern, Text | Number):
            pattern = node.pattern.value if isinstance(node.pattern, Text) else node.pattern.text
            matched = f"regexp_like({self._text(node.subject)},'{_regex_of_like(pattern)}')"
            return f"(NOT {matched})" if node.is_negated else matched
        if isinstance(node, Call) and canonical_key(node.name) in _PREDICATES:
            return self._text(node)
        return f"{self._text(node)} = 'true'"

    def _membership(self, node: In, word: str) -> str:
        listed: list[str | None] = []
        for item in node.items:
            listed += item.spelled if isinstance(item, Constants) else [self._constant(item)]
        values = ",".join(f"'{value}'" for value in listed)
        return f"{self._text(node.subject)} {word} ({values})"


def flattened(node: And | Or) -> list[Node]:
    """Return the operands of ANDs, or of ORs, in order, including those within parentheses."""
    operands: list[Node] = []
    for part in map(bare, node.parts):
        if isinstance(part, And | Or) and type(part) is type(node):
            operands += flattened(part)
        else:
            operands.append(part)
    return operands


def _regex_of_like(pattern: str) -> str:
    """Return the regular expression that Pinot makes of LIKE: no anchor where the pattern begins or ends with %."""
    begins, ends = pattern.startswith("%"), pattern.endswith("%")
    middle = pattern.strip("%") if begins or ends else pattern
    text = "".join({"%": ".*", "_": "."}.get(letter, _escaped(letter)) for letter in middle)
    return f"{'' if begins else '^'}{text}{'' if ends else '$'}"


def _escaped(letter: str) -> str:
    return f"\\{letter}" if letter in "^$.{}[]()*+?|<>-&/\\" else letter
