"""Bind expressions over single rows, outside of queries: the filter and the derived columns of a stream.

They are bound like those of a query with null handling. `now()` and its like are refused: a row would depend on when it
is read.
"""

from __future__ import annotations

from merlot.spec.schema import TableSchema
from merlot.sql import message_fields
from merlot.sql.expressions import Binder, Fold, has_aggregate
from merlot.sql.parse import parse
from merlot.sql.scope import Scope
from merlot.sql.syntax import Alias, Column, Node, Select, transform, walk
from merlot.tree.errors import SqlParseError, SqlValidationError
from merlot.tree.nodes import Expr


def names(text: str) -> frozenset[str]:
    """Return the columns that an expression names, as written. Raise errors of `tree.errors`."""
    return frozenset(node.name for node in walk(_parsed(text)) if isinstance(node, Column))


def bind(
    text: str, schema: TableSchema, fold: Fold, *, fields: frozenset[str] = frozenset(), is_predicate: bool = False
) -> Expr:
    """Return the typed expression. Raise errors of `tree.errors`. `fields` are fields of `schema` that are no columns
    of the table: each as text under its own name, and as JSON under `message_fields.JSON_VIEW` and its name."""
    node = _parsed(text)
    binder = Binder(Scope(None, schema), fold, None, nulls=True, place="an expression", allows_aggregates=False)
    node = message_fields.typed(node, fields, binder.bind, is_predicate=is_predicate)
    bound = binder.condition(node) if is_predicate else binder.bind(node)
    if has_aggregate(bound):
        raise SqlValidationError(f"an expression over a row cannot use an aggregate expression={text}")
    return bound


def _parsed(text: str) -> Node:
    parsed = parse(f"SELECT {text}")
    node = parsed.select.items[0]
    if parsed.options or parsed.explain or isinstance(node, Alias) or not _is_alone(parsed.select):
        raise SqlParseError(f"not one expression text={text}")
    return transform(node, _whole)


def _is_alone(select: Select) -> bool:
    """Return True if a SELECT has one expression and no other clause."""
    clauses = (select.source, select.where, select.group, select.having, select.order, select.offset)
    is_limited = select.limit is not None
    return len(select.items) == 1 and not select.is_distinct and not any(clauses) and not is_limited


def _whole(node: Node) -> Node:
    """Read a name with dots as a single name: there are no tables here."""
    if not isinstance(node, Column) or not node.qualifier:
        return node
    return Column(f"{node.qualifier}.{node.name}", is_quoted=True)
