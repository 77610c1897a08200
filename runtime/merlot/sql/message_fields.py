"""Types for fields of a message that are no columns: nothing declares them, so each use says what it reads them as.

Beside a number a field is a number, beside a truth or as a condition it is a truth, in JSONFORMAT it is JSON as the
message has it, elsewhere it is text. A comparison that would set a text against a number is refused. Works on the
syntax tree before it is bound: fields get the CAST that their use implies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from sqlglot import exp

from merlot.tree.errors import SqlValidationError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Expr, Literal
from merlot.values.types import TypeName

JSON_VIEW: Final = "json of "
"""Before a field's name: the same field, as JSON. No column has a blank in its name."""
_EXACT_DOUBLES: Final = 2**53
_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg)
_COMPARISONS: Final = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
    *(exp.In, exp.Between, exp.NullSafeEQ, exp.NullSafeNEQ),
)
_ORDERED: Final = frozenset({"greatest", "least"})
_TEXTS: Final = (TypeName.STRING, TypeName.JSON)
_OTHER_TYPES: Final = ("DOUBLE", "LONG", "BOOLEAN", "TIMESTAMP")
"""Types that fields are tried as where a function does not take text."""

Bind = Callable[[exp.Expr], Expr]


def typed(node: exp.Expr, fields: frozenset[str], bind: Bind, *, is_predicate: bool) -> exp.Expr:
    """The same expression, in which the fields have types; the node itself is changed. Raises SqlValidationError where
    no type can be told, and what `bind` raises."""
    root: Any = exp.Paren(this=node)
    types = _Types(fields, bind)
    # From the leaves up: an operand has its types before what it is an operand of.
    for one in reversed(list(root.walk())):
        types.visit(one)
    if is_predicate:
        types.cast([root.this], "BOOLEAN")
    found: exp.Expr = root.this
    return found


class _Types:
    def __init__(self, fields: frozenset[str], bind: Bind) -> None:
        self._fields = fields
        self._bind = bind

    def visit(self, node: Any) -> None:
        """Give the fields that are operands of a node their types."""
        match node:
            case exp.Case():
                self._case(node)
            case exp.Anonymous():
                self._call(node)
            case exp.And() | exp.Or() | exp.Not():
                self.cast(_operands(node), "BOOLEAN")
            case exp.Is() if isinstance(node.args["expression"], exp.Boolean):
                self.cast([node.this], "BOOLEAN")
            case _ if isinstance(node, _ARITHMETIC):
                self.cast(_operands(node), "DOUBLE")
            case _ if isinstance(node, _COMPARISONS):
                self._compare(_operands(node), node)

    def cast(self, nodes: Iterable[exp.Expr], type_: str) -> None:
        """Cast those of the nodes that are fields."""
        for node in nodes:
            field = self._field(node)
            if field is not None:
                field.replace(exp.Cast(this=field.copy(), to=exp.DataType.build(_SQL_NAMES.get(type_, type_))))

    def _field(self, node: exp.Expr) -> exp.Column | None:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Column) and not node.table and node.name in self._fields:
            return node
        return None

    def _compare(self, operands: Sequence[exp.Expr], node: exp.Expr) -> None:
        fields = [one for one in operands if self._field(one) is not None]
        others = [self._bind(one) for one in operands if self._field(one) is None and not isinstance(one, exp.Tuple)]
        if any(
            self._field(one) is not None for row in operands if isinstance(row, exp.Tuple) for one in row.expressions
        ):
            raise SqlValidationError(f"compare fields of a message one by one instead of as a row: {node.sql()}")
        if len(fields) > 1 and not others:
            raise SqlValidationError(f"nothing says which type is compared; CAST the fields: {node.sql()}")
        type_ = _beside(others) if fields else None
        if type_ is not None:
            self.cast(fields, type_)
            return
        kinds = {one.type.base for one in others if not isinstance(one, Literal)}
        is_text = bool(fields) or not kinds.isdisjoint(_TEXTS)
        if is_text and any(one.type.is_numeric for one in others):
            raise SqlValidationError(f"a text is compared with a number; CAST the text to a number: {node.sql()}")

    def _case(self, node: Any) -> None:
        branches = node.args["ifs"]
        if node.this is None:
            self.cast([one.this for one in branches], "BOOLEAN")
        else:
            self._compare([node.this, *(one.this for one in branches)], node)
        self._try_types(node)

    def _call(self, node: Any) -> None:
        key = canonical_key(node.this if isinstance(node.this, str) else node.this.name)
        fields = [found for one in node.expressions if (found := self._field(one)) is not None]
        if key == "jsonformat" and len(fields) == len(node.expressions) == 1:
            fields[0].replace(exp.Column(this=exp.Identifier(this=JSON_VIEW + fields[0].name, quoted=True)))
        elif key in _ORDERED and len(fields) == len(node.expressions) > 1:
            raise SqlValidationError(f"nothing says which type is compared; CAST the fields: {node.sql()}")
        elif fields:
            self._try_types(node)

    def _try_types(self, node: exp.Expr) -> None:
        """Leave fields texts where a node takes them; else cast them to the first type that it takes."""
        if not any(self._field(one) is not None for one in _results(node)):
            return
        try:
            self._bind(node)
        except SqlValidationError:
            type_ = next((one for one in _OTHER_TYPES if self._takes(node, one)), None)
            if type_ is None:
                raise
            self.cast(_results(node), type_)

    def _takes(self, node: exp.Expr, type_: str) -> bool:
        tried = node.copy()
        self.cast(_results(tried), type_)
        try:
            self._bind(tried)
        except SqlValidationError:
            return False
        return True


_SQL_NAMES: Final = {"LONG": "BIGINT", "BIG_DECIMAL": "DECIMAL"}


def _operands(node: Any) -> list[exp.Expr]:
    match node:
        case exp.In():
            return [node.this, *node.expressions]
        case exp.Between():
            return [node.this, node.args["low"], node.args["high"]]
        case exp.Not() | exp.Neg():
            return [node.this]
        case _:
            return [node.left, node.right]


def _results(node: Any) -> list[exp.Expr]:
    """The arguments of a function, or what the branches of a CASE give."""
    if not isinstance(node, exp.Case):
        return list(node.expressions)
    default = node.args.get("default")
    return [*(one.args["true"] for one in node.args["ifs"]), *([] if default is None else [default])]


def _beside(others: Sequence[Expr]) -> str | None:
    """The type of fields that are compared with other operands; None: text."""
    bound = [one for one in others if one.type.base is not TypeName.UNKNOWN]
    if bound and all(one.type.is_numeric for one in bound):
        return "DOUBLE" if all(map(_is_exact_as_double, bound)) else "BIG_DECIMAL"
    kinds = {one.type.base for one in bound}
    for kind in (TypeName.BOOLEAN, TypeName.TIMESTAMP):
        if kinds == {kind}:
            return str(kind)
    return None


def _is_exact_as_double(other: Expr) -> bool:
    """Whether a comparison with it says the same of doubles as of the numbers that messages write."""
    if isinstance(other, Literal) and isinstance(other.value, int):
        return abs(other.value) < _EXACT_DOUBLES
    return other.type.base in (TypeName.INT, TypeName.FLOAT, TypeName.DOUBLE)
