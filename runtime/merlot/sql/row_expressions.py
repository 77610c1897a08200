"""Expressions over single rows, outside of queries: the filter and the derived columns of a stream.

They are bound as a query's are, with null handling. `now()` and its kin are refused: a row would depend on when it is
looked at.
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
    """Columns that an expression names, as they are written; raises errors of `tree.errors`."""
    return frozenset(node.name for node in walk(_parsed(text)) if isinstance(node, Column))


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


def _parsed(text: str) -> Node:
    parsed = parse(f"SELECT {text}")
    node = parsed.select.items[0]
    if parsed.options or parsed.explain or isinstance(node, Alias) or not _is_alone(parsed.select):
        raise SqlParseError(f"not one expression text={text}")
    return transform(node, _whole)


def _is_alone(select: Select) -> bool:
    """Whether a SELECT has one expression and no other clause."""
    clauses = (select.source, select.where, select.group, select.having, select.order, select.offset)
    is_limited = select.limit is not None
    return len(select.items) == 1 and not select.is_distinct and not any(clauses) and not is_limited


def _whole(node: Node) -> Node:
    """A name with dots as the one name that it is: there are no tables here."""
    if not isinstance(node, Column) or not node.qualifier:
        return node
    return Column(f"{node.qualifier}.{node.name}", is_quoted=True)
