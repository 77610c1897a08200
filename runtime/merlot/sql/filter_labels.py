"""The condition of `sum(x) FILTER(WHERE …)` in a label, as Pinot prints filters: `(color = 'red' AND b IN ('2'))`.

A filter compares an expression with constants; where text does not, it is `minus(a,b) > '0'` or `flag = 'true'`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from merlot.sql.lists import Constants
from merlot.tree.names import canonical_key

_SIGNS: Final[dict[type[exp.Expr], tuple[str, str]]] = {
    exp.EQ: ("=", "="),
    exp.NEQ: ("!=", "!="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
}
"""The sign of a comparison, and that with its sides changed."""
_PREDICATES: Final = frozenset({"regexplike", "textmatch", "textcontains", "jsonmatch"})


def filter_text(node: exp.Expr, text: Callable[[exp.Expr], str], constant: Callable[[exp.Expr], str | None]) -> str:
    """The condition; `text` prints an expression, `constant` one that has no columns, without quotes."""
    return _Filters(text, constant).write(node)


class _Filters:
    def __init__(self, text: Callable[[exp.Expr], str], constant: Callable[[exp.Expr], str | None]) -> None:
        self._text = text
        self._constant = constant

    def write(self, node: exp.Expr) -> str:
        node = node.unnest()
        known = self._constant(node)
        if known is not None:
            return known
        if isinstance(node, exp.And | exp.Or):
            word = " AND " if isinstance(node, exp.And) else " OR "
            return f"({word.join(map(self.write, flattened(node)))})"
        if isinstance(node, exp.Not):
            return self._not(node.this.unnest())
        if type(node) in _SIGNS:
            return self._comparison(node)
        return self._predicate(node)

    def _comparison(self, node: exp.Expr) -> str:
        sign, turned = _SIGNS[type(node)]
        left, right = self._constant(node.this), self._constant(node.expression)
        if right is not None:
            return f"{self._text(node.this)} {sign} '{right}'"
        if left is not None:
            return f"{self._text(node.expression)} {turned} '{left}'"
        return f"minus({self._text(node.this)},{self._text(node.expression)}) {sign} '0'"

    def _not(self, inner: exp.Expr) -> str:
        if isinstance(inner, exp.In):
            return self._membership(inner, "NOT IN")
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            return f"{self._text(inner.this)} IS NOT NULL"
        return f"(NOT {self.write(inner)})"

    def _predicate(self, node: exp.Expr) -> str:
        if isinstance(node, exp.In):
            return self._membership(node, "IN")
        if isinstance(node, exp.Between):
            bounds = [self._constant(node.args[name]) for name in ("low", "high")]
            return f"{self._text(node.this)} BETWEEN '{bounds[0]}' AND '{bounds[1]}'"
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return f"{self._text(node.this)} IS NULL"
        if isinstance(node, exp.Like) and isinstance(node.expression, exp.Literal):
            matched = f"regexp_like({self._text(node.this)},'{_regex_of_like(str(node.expression.this))}')"
            return f"(NOT {matched})" if node.args.get("negate") else matched
        if isinstance(node, exp.Anonymous) and canonical_key(node.name) in _PREDICATES:
            return self._text(node)
        return f"{self._text(node)} = 'true'"

    def _membership(self, node: exp.In, word: str) -> str:
        listed: list[str | None] = []
        for one in node.expressions:
            listed += one.spelled if isinstance(one, Constants) else [self._constant(one)]
        values = ",".join(f"'{value}'" for value in listed)
        return f"{self._text(node.this)} {word} ({values})"


def flattened(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of ANDs, or of ORs, first ones first."""
    found: list[exp.Expr] = []
    pending = [node]
    while pending:
        part = pending.pop().unnest()
        if type(part) is type(node):
            pending += [part.expression, part.this]
        else:
            found.append(part)
    return found


def _regex_of_like(pattern: str) -> str:
    """The regular expression that Pinot makes of LIKE: no anchor where the pattern may go on."""
    begins, ends = pattern.startswith("%"), pattern.endswith("%")
    middle = pattern.strip("%") if begins or ends else pattern
    text = "".join({"%": ".*", "_": "."}.get(letter, _escaped(letter)) for letter in middle)
    return f"{'' if begins else '^'}{text}{'' if ends else '$'}"


def _escaped(letter: str) -> str:
    return f"\\{letter}" if letter in "^$.{}[]()*+?|<>-&/\\" else letter
