"""Column labels of an answer, as Pinot prints expressions: `count(*)`, `sum(delay)`, `plus(a,'1')`.

Made from the text's own tree, before any rewriting. Constants are quoted, function names are lower case without
underscores, operators have their function's name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from merlot.aggregates import registry as aggregates
from merlot.functions import registry as functions
from merlot.functions.function import ScalarFunction
from merlot.sql.lists import Constants
from merlot.tree.names import canonical_key
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


def label(node: exp.Expr, column_name: Callable[[exp.Column], str], *, nulls: bool) -> str:
    """The label of a SELECT item without alias."""

    def text(part: exp.Expr) -> str:
        if isinstance(part, exp.Paren | exp.WithinGroup):
            return text(part.this)
        if isinstance(part, exp.Column):
            return "*" if isinstance(part.this, exp.Star) else column_name(part)
        if isinstance(part, exp.Star):
            return "*"
        constant = _constant_label(part)
        if constant is not None:
            return constant
        if isinstance(part, exp.Is) and isinstance(part.expression, exp.Null):
            return f"is_null({text(part.this)})"
        if isinstance(part, exp.Filter):
            return f"{text(part.this)} FILTER(WHERE {text(part.expression.this)})"
        if isinstance(part, exp.Anonymous):
            return _function_label(part, text, nulls=nulls)
        name = OPERATOR_NAMES.get(type(part), part.key)
        return f"{name}({','.join(text(child) for child in _operands(part))})"

    return text(node)


def _constant_label(node: exp.Expr) -> str | None:
    if isinstance(node, exp.Literal):
        return f"'{node.this}'"
    if isinstance(node, exp.Boolean):
        return f"'{str(node.this).lower()}'"
    if isinstance(node, exp.Null):
        return "'null'"
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        return f"'-{node.this.this}'"
    return ",".join(f"'{one}'" for one in node.spelled) if isinstance(node, Constants) else None


def cast_type_name(node: exp.DataType) -> str:
    """The type of a CAST as Pinot names it; as written where it is no type of ours."""
    written = node.this.name if node.this.name != "USERDEFINED" else str(node.args.get("kind")).strip('"`').upper()
    base = CAST_TYPES.get(written)
    return str(base) if base is not None else written


def _function_label(node: exp.Anonymous, text: Callable[[exp.Expr], str], *, nulls: bool) -> str:
    key = canonical_key(node.name)
    known = aggregates.find(key) or functions.find(key)
    # An alias of a function keeps its own name, as in Pinot: `arraysortstring` is no `arraysortint`.
    is_alias = known is not None and isinstance(known, ScalarFunction) and canonical_key(known.name) != key
    name = key if known is None or is_alias else known.name
    args = node.expressions
    if args and isinstance(args[0], exp.Distinct):
        return f"{DISTINCT_FORMS.get(name, name)}({','.join(text(part) for part in args[0].expressions)})"
    if name == "count" and not nulls:
        return "count(*)"
    return f"{name}({','.join(text(part) for part in args)})"


def _operands(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Case):
        branches = [part for branch in node.args.get("ifs") or () for part in (branch.this, branch.args["true"])]
        parts = (node.this, *branches, node.args.get("default"))
        return [part for part in parts if part is not None]
    if isinstance(node, exp.Extract):
        return [exp.Literal.string(node.this.name.upper()), node.expression]
    if isinstance(node, exp.Cast):
        return [node.this, exp.Literal.string(cast_type_name(node.to))]
    return [child for child in node.iter_expressions() if not isinstance(child, exp.DataType)]
