"""Label the columns of an answer as Pinot prints expressions: `count(*)`, `sum(delay)`, `plus(a,'1')`.

Labels are made from the syntax tree. Function names are in lower case without underscores, except those of predicates.
Operators have their function's name. Constants are quoted, and an expression without columns is printed as its value.
An aggregate that is selected by itself has another label than one inside an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from merlot.aggregates import registry as aggregates
from merlot.functions import registry as functions
from merlot.functions.function import ScalarFunction
from merlot.sql.aggregation import OF_LISTS
from merlot.sql.filter_labels import filter_text, flattened
from merlot.sql.syntax import (
    And,
    Array,
    Between,
    Boolean,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Constants,
    Distinct,
    Element,
    Extract,
    Filter,
    In,
    IsNull,
    IsTruth,
    Like,
    Negative,
    Node,
    Not,
    Null,
    Number,
    Operation,
    Or,
    Paren,
    Query,
    Star,
    Text,
    WithinGroup,
    children,
)
from merlot.tree import literals
from merlot.tree.errors import SqlValidationError
from merlot.tree.names import canonical_key
from merlot.tree.nodes import Literal
from merlot.tree.types import STRING
from merlot.values.number_text import java_text
from merlot.values.types import TypeName

_OPERATOR_NAMES: Final[dict[type[Node], str]] = {
    Negative: "negate",
    And: "and",
    Or: "or",
    Not: "not",
    Like: "like",
    Between: "between",
    In: "in",
    Array: "arrayvalueconstructor",
    Element: "item",
    Cast: "cast",
    Case: "case",
    IsTruth: "is",
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
"""Types by their names in CAST: Pinot's, and those of other dialects."""

DISTINCT_FORMS: Final = {"count": "distinctcount", "sum": "distinctsum", "avg": "distinctavg"}
"""Aggregates of DISTINCT values that have a name of their own."""


def cast_type_name(written: str) -> str:
    """Return Pinot's name of a type in CAST; the name as written if it is not in CAST_TYPES."""
    base = CAST_TYPES.get(written)
    return str(base) if base is not None else written


_CAST_LABELS: Final = {"INT": "INTEGER", "VARCHAR": "VARCHAR", "DECIMAL": "DECIMAL"}
"""Calcite's names of SQL types; other types have Pinot's names."""
_SPELLED: Final = {
    "regexplike": "regexp_like",
    "textmatch": "text_match",
    "textcontains": "text_contains",
    "jsonmatch": "json_match",
    "ceiling": "ceil",
}
"""Labels of functions that are not their canonical names: Pinot keeps the underscores, or has another name."""
_NAMED_BY_ALL_ARGUMENTS: Final = frozenset(
    {"covarpop", "covarsamp", "corr", "firstwithtime", "lastwithtime", "funnelcount", "exprmin", "exprmax"}
)
_USUAL_COMPRESSION: Final = "100"
_BLANK: Final = "' '"
MAX_REPEATED_CHARS: Final = 8 << 20
"""Most characters of a label by which it is longer than its text: a CASE repeats its subject in each branch."""


@dataclass(frozen=True, slots=True)
class LabelNames:
    """Inputs for labels other than the SQL text."""

    column: Callable[[Column], str]
    constant: Callable[[Node], Literal | None]
    """Returns the value of an expression without columns; None if it cannot be computed."""
    is_list: Callable[[Column], bool]
    nulls: bool


def label(node: Node, names: LabelNames) -> str:
    """Return the label of a SELECT item without alias."""
    node = _bare(node)
    labels = _Labels(names, _varying(node))
    if isinstance(node, Filter):
        condition = filter_text(node.condition, labels.text, labels.constant)
        return f"{labels.aggregate(node.call)} FILTER(WHERE {condition})"
    return labels.aggregate(node) if _is_aggregate(node) else labels.text(node)


def literal_label(literal: Literal) -> str:
    """Return the label of a constant where a query selects nothing else: a text has quotes, other constants have
    none."""
    text = constant_text(literal)
    return f"'{text}'" if literal.type == STRING and literal.value is not None else text


def constant_text(literal: Literal) -> str:
    """Return a constant as Pinot prints its value, without quotes."""
    if literal.value is None:
        return "null"
    if isinstance(literal.value, str):
        return literal.value
    return str(literals.convert(literal, STRING).value)


@dataclass(slots=True)
class _Labels:
    names: LabelNames
    varying: frozenset[int]
    """Ids of the nodes that are, or contain, a column or an aggregate; others are constants."""
    num_repeated: int = 0
    """Characters that CASEs have added by repeating their subjects."""

    def text(self, part: Node) -> str:
        part = _bare(part)
        if isinstance(part, Column):
            return self.names.column(part)
        if isinstance(part, Star):
            return "*"
        if isinstance(part, Constants):
            return ",".join(f"'{value}'" for value in part.spelled)
        constant = self.constant(part)
        if constant is not None:
            return f"'{constant}'"
        if isinstance(part, Filter):
            return f"filter({self.text(part.call)},{self.text(part.condition)})"
        if isinstance(part, Call):
            return self._call(part)
        name, shown = self._operator(part)
        return f"{name}({','.join(shown)})"

    def constant(self, part: Node) -> str | None:
        """Return the value of an expression without columns, without quotes; None for any other expression."""
        part = _bare(part)
        if isinstance(part, Text):
            return part.value
        if isinstance(part, Number) and part.text.isdigit():
            return part.text
        if id(part) in self.varying or not _may_be_constant(part):
            return None
        literal = self.names.constant(part)
        return None if literal is None else constant_text(literal)

    def aggregate(self, node: Node) -> str:
        """Return the label of an aggregate that is selected by itself: most name their first argument only."""
        node = _bare(node)
        if not isinstance(node, Call):
            return self.text(node)
        key = canonical_key(node.name)
        args = node.args
        if node.is_distinct or len(args) < 2 or key in _NAMED_BY_ALL_ARGUMENTS:
            return self.text(node)
        shown = [self.text(args[0])]
        key = self._of_list(key, args)
        if key.startswith("percentile"):
            shown += [java_text(repr(float(self.constant(args[1]) or 0)))]
            if len(args) > 2 and "tdigest" in key and self.constant(args[2]) != _USUAL_COMPRESSION:
                shown.append(self.text(args[2]).strip("'"))
        return f"{key}({', '.join(shown)})"

    def _operator(self, node: Node) -> tuple[str, Sequence[str]]:
        """Return Pinot's function for an operator, and its arguments. A negated operator may have a function of its
        own."""
        match node:
            case Case():
                return "case", self._branches(node)
            case And() | Or():
                return operator_name(node), [self.text(part) for part in flattened(node)]
            case Extract(field, operand):
                return "extract", [f"'{field.upper()}'", self.text(operand)]
            case Cast(operand, type_):
                return "cast", [self.text(operand), f"'{_CAST_LABELS.get(type_) or cast_type_name(type_)}'"]
            case IsNull(subject):
                return "is_null", [self.text(subject)]
            case IsTruth(subject, truth):
                return "is", [self.text(subject), f"'{str(truth).lower()}'"]
            case Not(inner):
                return self._negated(_bare(inner))
            case Like():
                return self._like(node)
        return operator_name(node), self._parts(node)

    def _negated(self, inner: Node) -> tuple[str, Sequence[str]]:
        if isinstance(inner, In):
            return "not_in", self._parts(inner)
        if isinstance(inner, IsNull):
            return "is_not_null", [self.text(inner.subject)]
        return "not", [self.text(inner)]

    def _like(self, node: Like) -> tuple[str, Sequence[str]]:
        name, shown = "like", [self.text(node.subject), self.text(node.pattern)]
        if node.is_negated:
            name, shown = "not", [f"like({','.join(shown)})"]
        if node.escape is not None:
            name, shown = "escape", [f"{name}({','.join(shown)})", self.text(node.escape)]
        return name, shown

    def _parts(self, node: Node) -> list[str]:
        return [self.text(child) for child in children(node)]

    def _branches(self, node: Case) -> list[str]:
        """Return conditions and values in turn, then the value of ELSE. `CASE x WHEN 1` tests `x = 1`."""
        shown: list[str] = []
        subject = None if node.subject is None else self.text(node.subject)
        self.num_repeated += len(subject or "") * len(node.branches)
        if self.num_repeated > MAX_REPEATED_CHARS:
            raise SqlValidationError("label of CASE is too long, name the expression with AS")
        for condition, value in node.branches:
            test = self.text(condition)
            shown.append(test if subject is None else f"equals({subject},{test})")
            shown.append(self.text(value))
        return [*shown, "'null'" if node.default is None else self.text(node.default)]

    def _call(self, node: Call) -> str:
        key = canonical_key(node.name)
        function = aggregates.find(key) or functions.find(key)
        # An alias of a function keeps its own name, as in Pinot: `arraysortstring` is no `arraysortint`.
        is_alias = function is not None and isinstance(function, ScalarFunction) and canonical_key(function.name) != key
        name = _SPELLED.get(key, key if function is None or is_alias else function.name)
        args = node.args
        if node.is_distinct:
            return f"{self._of_list(DISTINCT_FORMS.get(name, name), args)}({','.join(map(self.text, args))})"
        if name == "count" and not self.names.nulls:
            return "count(*)"
        if name == "trim":
            return f"trim('BOTH',{self.text(args[1]) if len(args) > 1 else _BLANK},{self.text(args[0])})"
        return f"{self._of_list(name, args)}({','.join(map(self.text, args))})"

    def _of_list(self, name: str, args: Sequence[Node]) -> str:
        """Return the name of an aggregate of distinct values; it differs for a multi-value column."""
        first = _bare(args[0]) if args and name in OF_LISTS else None
        return OF_LISTS[name] if isinstance(first, Column) and self.names.is_list(first) else name


def operator_name(node: Node) -> str:
    """Return the function of an operator."""
    if isinstance(node, Operation | Comparison):
        return node.function
    if isinstance(node, Distinct):
        return "is_not_distinct_from" if node.is_same else "is_distinct_from"
    return _OPERATOR_NAMES.get(type(node)) or type(node).__name__.lower()


def _bare(node: Node) -> Node:
    while isinstance(node, Paren | WithinGroup):
        node = node.inner if isinstance(node, Paren) else node.call
    return node


def _is_aggregate(node: Node) -> bool:
    return isinstance(node, Call) and aggregates.find(canonical_key(node.name)) is not None


def _varying(item: Node) -> frozenset[int]:
    ids: set[int] = set()
    _add_varying(item, ids)
    return frozenset(ids)


def _add_varying(node: Node, ids: set[int]) -> bool:
    """Add the ids of the nodes that are, or contain, a column or an aggregate; return True if `node` is one of them."""
    below = [_add_varying(child, ids) for child in children(node)]
    is_varying = any(below) or isinstance(node, Column | Star | Query) or _is_aggregate(node)
    if is_varying:
        ids.add(id(node))
    return is_varying


def _may_be_constant(node: Node) -> bool:
    if isinstance(node, Call):
        return functions.find(canonical_key(node.name)) is not None
    return isinstance(node, _CONSTANTS)


_CONSTANTS: Final = (Operation, Comparison, Distinct, *_OPERATOR_NAMES, Number, Text, Boolean, Null, Extract)
