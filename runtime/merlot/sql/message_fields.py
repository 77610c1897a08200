"""Give types to fields of a message that are no columns: nothing declares them, so each use decides the type.

Beside a number a field is a number; beside a boolean, or as a condition, it is a boolean; in JSONFORMAT it is JSON as
the message has it; elsewhere it is text. A comparison of a text with a number is refused. This module works on the
syntax tree before it is bound: fields get the CAST that their use implies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from merlot.sql.node_text import node_text
from merlot.sql.syntax import (
    And,
    Between,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Constants,
    Distinct,
    In,
    IsTruth,
    Negative,
    Node,
    Not,
    Operation,
    Or,
    Paren,
    Row,
    children,
    transform,
    with_children,
)
from merlot.tree.errors import SqlValidationError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Expr, Literal
from merlot.values.types import TypeName

JSON_VIEW: Final = "json of "
"""Prefix of a field's name that stands for the same field as JSON. No column has a blank in its name."""
_EXACT_DOUBLES: Final = 2**53
_ORDERED: Final = frozenset({"greatest", "least"})
_TEXTS: Final = (TypeName.STRING, TypeName.JSON)
_OTHER_TYPES: Final = ("DOUBLE", "LONG", "BOOLEAN", "TIMESTAMP")
"""Types that fields are tried as, in this order, where a function does not take text."""

Bind = Callable[[Node], Expr]


def typed(node: Node, fields: frozenset[str], bind: Bind, *, is_predicate: bool) -> Node:
    """Return the expression with types for its fields. Raise SqlValidationError if no type can be inferred, and the
    errors of `bind`."""
    types = _Types(fields, bind)
    # From the leaves up, so that operands have types before the operator that uses them.
    result = transform(node, types.typed)
    return types.cast(result, "BOOLEAN") if is_predicate else result


class _Types:
    def __init__(self, fields: frozenset[str], bind: Bind) -> None:
        self._fields = fields
        self._bind = bind

    def typed(self, node: Node) -> Node:
        """Return the node with types for the fields among its operands."""
        match node:
            case Case():
                return self._case(node)
            case Call():
                return self._call(node)
            case And() | Or() | Not() | IsTruth():
                return self._operands_cast(node, "BOOLEAN")
            case Operation(function) if function != "concat":
                return self._operands_cast(node, "DOUBLE")
            case Negative():
                return self._operands_cast(node, "DOUBLE")
            case Comparison() | In() | Between() | Distinct():
                type_ = self._compared_as(list(children(node)), node)
                return node if type_ is None else self._operands_cast(node, type_)
        return node

    def cast(self, node: Node, type_: str) -> Node:
        """Return the node, with a CAST if it is a field, perhaps in parentheses."""
        if self._field(node) is None:
            return node
        if isinstance(node, Paren):
            return Paren(self.cast(node.inner, type_))
        return Cast(node, _SQL_NAMES.get(type_, type_))

    def _operands_cast(self, node: Node, type_: str) -> Node:
        return with_children(node, lambda child: self.cast(child, type_))

    def _field(self, node: Node) -> Column | None:
        while isinstance(node, Paren):
            node = node.inner
        if isinstance(node, Column) and not node.qualifier and node.name in self._fields:
            return node
        return None

    def _compared_as(self, operands: Sequence[Node], node: Node) -> str | None:
        """Return the type of the fields among compared operands; None if they stay texts."""
        rows = [operand for operand in operands if isinstance(operand, Row)]
        if any(self._field(item) is not None for row in rows for item in row.items):
            raise SqlValidationError(f"compare fields of a message one by one instead of as a row: {node_text(node)}")
        fields = [operand for operand in operands if self._field(operand) is not None]
        others = self._others(operands)
        if len(fields) > 1 and not others:
            raise SqlValidationError(f"nothing says which type is compared; CAST the fields: {node_text(node)}")
        type_ = _type_of_compared_fields(others) if fields else None
        if type_ is not None:
            return type_
        kinds = {other.type.base for other in others if not isinstance(other, Literal)}
        is_text = bool(fields) or not kinds.isdisjoint(_TEXTS)
        if is_text and any(other.type.is_numeric for other in others):
            raise SqlValidationError(f"a text is compared with a number; CAST the text to a number: {node_text(node)}")
        return None

    def _others(self, operands: Sequence[Node]) -> list[Expr]:
        """Bind the operands that are neither fields nor rows."""
        bound: list[Expr] = []
        for operand in operands:
            if isinstance(operand, Constants):
                bound += operand.literals
            elif self._field(operand) is None and not isinstance(operand, Row):
                bound.append(self._bind(operand))
        return bound

    def _case(self, node: Case) -> Node:
        conditions = [condition for condition, _ in node.branches]
        type_: str | None = "BOOLEAN"
        if node.subject is not None:
            type_ = self._compared_as([node.subject, *conditions], node)
        if type_ is not None:
            subject = None if node.subject is None else self.cast(node.subject, type_)
            branches = [(self.cast(condition, type_), value) for condition, value in node.branches]
            node = Case(subject, branches, node.default)
        return self._with_types(node)

    def _call(self, node: Call) -> Node:
        key = canonical_key(node.name)
        fields = [field for arg in node.args if (field := self._field(arg)) is not None]
        if key == "jsonformat" and len(fields) == len(node.args) == 1:
            return Call(node.name, [Column(JSON_VIEW + fields[0].name, is_quoted=True)])
        if key in _ORDERED and len(fields) == len(node.args) > 1:
            raise SqlValidationError(f"nothing says which type is compared; CAST the fields: {node_text(node)}")
        return self._with_types(node) if fields else node

    def _with_types(self, node: Call | Case) -> Node:
        """Leave fields as texts where a node accepts them; otherwise cast them to the first type that it accepts."""
        if not any(self._field(result) is not None for result in _results(node)):
            return node
        try:
            self._bind(node)
        except SqlValidationError:
            for type_ in _OTHER_TYPES:
                candidate = self._results_cast(node, type_)
                if self._is_taken(candidate):
                    return candidate
            raise
        return node

    def _is_taken(self, node: Node) -> bool:
        try:
            self._bind(node)
        except SqlValidationError:
            return False
        return True

    def _results_cast(self, node: Call | Case, type_: str) -> Node:
        if isinstance(node, Call):
            return replace(node, args=[self.cast(arg, type_) for arg in node.args])
        default = None if node.default is None else self.cast(node.default, type_)
        return Case(node.subject, [(test, self.cast(value, type_)) for test, value in node.branches], default)


_SQL_NAMES: Final = {"LONG": "BIGINT", "BIG_DECIMAL": "DECIMAL"}


def _results(node: Call | Case) -> list[Node]:
    """Return the arguments of a function, or the values of a CASE's branches."""
    if isinstance(node, Call):
        return list(node.args)
    return [*(value for _, value in node.branches), *([] if node.default is None else [node.default])]


def _type_of_compared_fields(others: Sequence[Expr]) -> str | None:
    """Return the type of fields that are compared with other operands; None: text."""
    bound = [operand for operand in others if operand.type.base is not TypeName.UNKNOWN]
    if bound and all(operand.type.is_numeric for operand in bound):
        return "DOUBLE" if all(map(_is_exact_as_double, bound)) else "BIG_DECIMAL"
    kinds = {operand.type.base for operand in bound}
    for kind in (TypeName.BOOLEAN, TypeName.TIMESTAMP):
        if kinds == {kind}:
            return str(kind)
    return None


def _is_exact_as_double(other: Expr) -> bool:
    """Return True if comparing with `other` has the same result for doubles as for the numbers that messages write."""
    if isinstance(other, Literal) and isinstance(other.value, int):
        return abs(other.value) < _EXACT_DOUBLES
    return other.type.base in (TypeName.INT, TypeName.FLOAT, TypeName.DOUBLE)
