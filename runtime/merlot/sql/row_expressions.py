"""Expressions over single rows, outside of queries: the filter and the derived columns of a stream.

They are bound as a query's are, with null handling. `now()` and its kin are refused: a row would depend on when it is
looked at.
"""

from __future__ import annotations

from sqlglot import exp

from merlot.spec.schema import TableSchema
from merlot.sql import message_fields
from merlot.sql.expressions import Binder, Fold, has_aggregate
from merlot.sql.parse import parse
from merlot.sql.scope import Scope
from merlot.tree.errors import SqlParseError, SqlValidationError
from merlot.tree.nodes import Expr


def names(text: str) -> frozenset[str]:
    """Columns that an expression names, as they are written; raises errors of `tree.errors`."""
    return frozenset(column.name for column in _parsed(text).find_all(exp.Column))


def bind(
    text: str, schema: TableSchema, fold: Fold, *, fields: frozenset[str] = frozenset(), is_predicate: bool = False
) -> Expr:
    """The typed expression; raises errors of `tree.errors`. `fields`: those of the schema that no column declares, each
    under its own name as text and under `message_fields.JSON_VIEW` as JSON."""
    node = _parsed(text)
    binder = Binder(Scope(None, schema), fold, None, nulls=True, place="an expression", allows_aggregates=False)
    node = message_fields.typed(node, fields, binder.bind, is_predicate=is_predicate)
    bound = binder.condition(node) if is_predicate else binder.bind(node)
    if has_aggregate(bound):
        raise SqlValidationError(f"an expression over a row cannot use an aggregate expression={text}")
    return bound


def _parsed(text: str) -> exp.Expr:
    parsed = parse(f"SELECT {text}")
    nodes = parsed.select.expressions
    clauses = [name for name, value in parsed.select.args.items() if value and name not in ("expressions", "kind")]
    if len(nodes) != 1 or clauses or parsed.options or parsed.explain or isinstance(nodes[0], exp.Alias):
        raise SqlParseError(f"not one expression text={text}")
    node: exp.Expr = nodes[0]
    return node.transform(_whole)


def _whole(node: exp.Expr) -> exp.Expr:
    """A name with dots as the one name that it is: there are no tables here."""
    if not isinstance(node, exp.Column) or not node.table:
        return node
    name = ".".join(part.name for part in node.parts)
    return exp.Column(this=exp.Identifier(this=name, quoted=True))
