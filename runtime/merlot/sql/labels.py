"""Column labels of an answer, as Pinot prints expressions: `count(*)`, `sum(delay)`, `plus(a,'1')`.

Made from the text's own tree. Function names are lower case without underscores, but for those of predicates; operators
have their function's name; constants are quoted, and what has no column is the constant that it comes to. An aggregate
that is selected by itself is named otherwise than one inside of an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeGuard

from sqlglot import exp

from merlot.aggregates import registry as aggregates
from merlot.functions import registry as functions
from merlot.functions.function import ScalarFunction
from merlot.sql.aggregation import OF_LISTS
from merlot.sql.filter_labels import filter_text, flattened
from merlot.sql.lists import Constants
from merlot.tree import literals
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Literal
from merlot.tree.types import STRING
from merlot.values.number_text import java_text
from merlot.values.types import TypeName

OPERATOR_NAMES: dict[type[exp.Expr], str] = {
    exp.Add: "plus",
    exp.Sub: "minus",
    exp.Mul: "times",
    exp.Div: "divide",
    exp.Mod: "mod",
    exp.Neg: "negate",
    exp.EQ: "equals",
    exp.NEQ: "not_equals",
    exp.GT: "greater_than",
    exp.GTE: "greater_than_or_equal",
    exp.LT: "less_than",
    exp.LTE: "less_than_or_equal",
    exp.And: "and",
    exp.Or: "or",
    exp.Not: "not",
    exp.DPipe: "concat",
    exp.Like: "like",
    exp.NullSafeEQ: "is_not_distinct_from",
    exp.NullSafeNEQ: "is_distinct_from",
    exp.Between: "between",
    exp.In: "in",
    exp.Array: "arrayvalueconstructor",
    exp.Bracket: "item",
    exp.Cast: "cast",
    exp.Case: "case",
}

CAST_TYPES = {
    "INT": TypeName.INT,
    "INTEGER": TypeName.INT,
    "BIGINT": TypeName.LONG,
    "LONG": TypeName.LONG,
    "FLOAT": TypeName.FLOAT,
    "REAL": TypeName.FLOAT,
    "DOUBLE": TypeName.DOUBLE,
    "DECIMAL": TypeName.BIG_DECIMAL,
    "BIGDECIMAL": TypeName.BIG_DECIMAL,
    "BIG_DECIMAL": TypeName.BIG_DECIMAL,
    "BOOLEAN": TypeName.BOOLEAN,
    "TIMESTAMP": TypeName.TIMESTAMP,
    "VARCHAR": TypeName.STRING,
    "TEXT": TypeName.STRING,
    "CHAR": TypeName.STRING,
    "STRING": TypeName.STRING,
    "JSON": TypeName.JSON,
    "BYTES": TypeName.BYTES,
    "VARBINARY": TypeName.BYTES,
    "BINARY": TypeName.BYTES,
}
"""Names of types in CAST: Pinot's, and what other dialects call them."""

DISTINCT_FORMS: Final = {"count": "distinctcount", "sum": "distinctsum", "avg": "distinctavg"}
"""Aggregates of DISTINCT values that have a name of their own."""


def cast_type_name(node: exp.DataType) -> str:
    """The type of a CAST as Pinot names it; as written where it is no type of ours."""
    written = node.this.name if node.this.name != "USERDEFINED" else str(node.args.get("kind")).strip('"`').upper()
    base = CAST_TYPES.get(written)
    return str(base) if base is not None else written


_CAST_LABELS: Final = {"INT": "INTEGER", "VARCHAR": "VARCHAR", "DECIMAL": "DECIMAL"}
"""What Calcite calls types of SQL, by sqlglot's name; others are spelled as Pinot's."""
_SPELLED: Final = {
    "regexplike": "regexp_like",
    "textmatch": "text_match",
    "textcontains": "text_contains",
    "jsonmatch": "json_match",
    "ceiling": "ceil",
}
"""Functions whose names Pinot leaves as they are, or changes."""
_NAMED_BY_ALL_ARGUMENTS: Final = frozenset(
    {"covarpop", "covarsamp", "corr", "firstwithtime", "lastwithtime", "funnelcount", "exprmin", "exprmax"}
)
_USUAL_COMPRESSION: Final = "100"
_BLANK: Final = "' '"


@dataclass(frozen=True, slots=True)
class LabelNames:
    """What labels go by, beside the text."""

    column: Callable[[exp.Column], str]
    constant: Callable[[exp.Expr], Literal | None]
    """What an expression without columns is worth; None if it cannot be told."""
    is_list: Callable[[exp.Column], bool]
    nulls: bool


def label(node: exp.Expr, names: LabelNames) -> str:
    """The label of a SELECT item without alias."""
    node = _bare(node)
    labels = _Labels(names, _varying(node))
    if isinstance(node, exp.Filter):
        condition = filter_text(node.expression.this, labels.text, labels.constant)
        return f"{labels.aggregate(node.this)} FILTER(WHERE {condition})"
    return labels.aggregate(node) if _is_aggregate(node) else labels.text(node)


def literal_label(literal: Literal) -> str:
    """The label of a constant where a query selects nothing else: a text in quotes, any other without."""
    text = constant_text(literal)
    return f"'{text}'" if literal.type == STRING and literal.value is not None else text


def constant_text(literal: Literal) -> str:
    """A constant as Pinot prints its value, without quotes."""
    if literal.value is None:
        return "null"
    if isinstance(literal.value, str):
        return literal.value
    return str(literals.convert(literal, STRING).value)


@dataclass(frozen=True, slots=True)
class _Labels:
    names: LabelNames
    varying: frozenset[int]
    """Ids of the nodes that have a column or an aggregate below them; others are constants."""

    def text(self, part: exp.Expr) -> str:
        part = _bare(part)
        if isinstance(part, exp.Column):
            return "*" if isinstance(part.this, exp.Star) else self.names.column(part)
        if isinstance(part, exp.Star):
            return "*"
        if isinstance(part, Constants):
            return ",".join(f"'{one}'" for one in part.spelled)
        constant = self.constant(part)
        if constant is not None:
            return f"'{constant}'"
        if isinstance(part, exp.Filter):
            return f"filter({self.text(part.this)},{self.text(part.expression.this)})"
        if isinstance(part, exp.Anonymous):
            return self._call(part)
        name, shown = self._operator(part)
        return f"{name}({','.join(shown)})"

    def constant(self, part: exp.Expr) -> str | None:
        """What an expression without columns is worth, without quotes; None for any other."""
        part = _bare(part)
        if isinstance(part, exp.Literal) and (part.is_string or part.this.isdigit()):
            return str(part.this)
        if id(part) in self.varying or not _may_be_constant(part):
            return None
        found = self.names.constant(part)
        return None if found is None else constant_text(found)

    def aggregate(self, node: exp.Expr) -> str:
        """An aggregate that is selected by itself: most are named by their first argument alone."""
        node = _bare(node)
        if not isinstance(node, exp.Anonymous):
            return self.text(node)
        key = canonical_key(node.name)
        args = node.expressions
        if len(args) < 2 or key in _NAMED_BY_ALL_ARGUMENTS:
            return self.text(node)
        shown = [self.text(args[0])]
        key = self._of_list(key, args)
        if key.startswith("percentile"):
            shown += [java_text(repr(float(self.constant(args[1]) or 0)))]
            if len(args) > 2 and "tdigest" in key and self.constant(args[2]) != _USUAL_COMPRESSION:
                shown.append(self.text(args[2]).strip("'"))
        return f"{key}({', '.join(shown)})"

    def _operator(self, node: exp.Expr) -> tuple[str, Sequence[str]]:
        """The function that an operator is in Pinot, and its arguments. What is negated has some of its own."""
        if isinstance(node, exp.Case):
            return "case", self._branches(node)
        if isinstance(node, exp.And | exp.Or):
            return OPERATOR_NAMES[type(node)], [self.text(part) for part in flattened(node)]
        if isinstance(node, exp.Extract):
            return "extract", [f"'{node.this.name.upper()}'", self.text(node.expression)]
        if isinstance(node, exp.Cast):
            return "cast", [self.text(node.this), f"'{_CAST_LABELS.get(node.to.this.name) or cast_type_name(node.to)}'"]
        negated = _bare(node.this) if isinstance(node, exp.Not) else None
        if isinstance(negated, exp.In):
            return "not_in", self._parts(negated)
        if _is_null(negated):
            return "is_not_null", [self.text(negated.this)]
        if _is_null(node):
            return "is_null", [self.text(node.this)]
        if isinstance(node, exp.Like) and node.args.get("negate"):
            return "not", [f"like({','.join(self._parts(node))})"]
        return OPERATOR_NAMES.get(type(node), node.key), self._parts(node)

    def _parts(self, node: exp.Expr) -> list[str]:
        return [self.text(child) for child in node.iter_expressions() if not isinstance(child, exp.DataType)]

    def _branches(self, node: exp.Case) -> list[str]:
        """Conditions and values in turn, and what else is answered. `CASE x WHEN 1` asks whether `x = 1`."""
        shown: list[str] = []
        for branch in node.args.get("ifs") or ():
            asked = self.text(branch.this)
            shown.append(asked if node.this is None else f"equals({self.text(node.this)},{asked})")
            shown.append(self.text(branch.args["true"]))
        default = node.args.get("default")
        return [*shown, "'null'" if default is None else self.text(default)]

    def _call(self, node: exp.Anonymous) -> str:
        key = canonical_key(node.name)
        known = aggregates.find(key) or functions.find(key)
        # An alias of a function keeps its own name, as in Pinot: `arraysortstring` is no `arraysortint`.
        is_alias = known is not None and isinstance(known, ScalarFunction) and canonical_key(known.name) != key
        name = _SPELLED.get(key, key if known is None or is_alias else known.name)
        args = node.expressions
        if args and isinstance(args[0], exp.Distinct):
            args = args[0].expressions
            return f"{self._of_list(DISTINCT_FORMS.get(name, name), args)}({','.join(map(self.text, args))})"
        if name == "count" and not self.names.nulls:
            return "count(*)"
        if name == "trim":
            return f"trim('BOTH',{self.text(args[1]) if len(args) > 1 else _BLANK},{self.text(args[0])})"
        return f"{self._of_list(name, args)}({','.join(map(self.text, args))})"

    def _of_list(self, name: str, args: Sequence[exp.Expr]) -> str:
        """The name of an aggregate of distinct values, which is another one of a multi-value column."""
        first = _bare(args[0]) if args and name in OF_LISTS else None
        return OF_LISTS[name] if isinstance(first, exp.Column) and self.names.is_list(first) else name


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren | exp.WithinGroup):
        node = node.this
    return node


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and aggregates.find(canonical_key(node.name)) is not None


def _varying(item: exp.Expr) -> frozenset[int]:
    found: set[int] = set()
    for node in item.find_all(exp.Column, exp.Star, exp.Anonymous, exp.Subquery):
        above: exp.Expr | None = node
        if isinstance(node, exp.Anonymous) and not _is_aggregate(node):
            continue
        while above is not None and id(above) not in found:
            found.add(id(above))
            above = None if above is item else above.parent
    return frozenset(found)


def _may_be_constant(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return functions.find(canonical_key(node.name)) is not None
    return type(node) in OPERATOR_NAMES or isinstance(node, exp.Literal | exp.Boolean | exp.Null | exp.Extract)


def _is_null(node: exp.Expr | None) -> TypeGuard[exp.Is]:
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)
