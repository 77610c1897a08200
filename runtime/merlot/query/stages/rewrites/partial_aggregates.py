"""Aggregate each side of UNION ALL by itself, and merge the results: servers send groups, not rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from merlot.query.plan.expressions import replace as rewrite_expr
from merlot.query.stages.groupings import aggregates_in
from merlot.query.stages.replacing import Replacing, UnsoundError
from merlot.query.stages.rewrites.merging import merged
from merlot.query.stages.rewrites.walks import has_windows, is_plain, map_queries, slot_columns
from merlot.query.stages.rewriting import is_grouped
from merlot.tree.nodes import Aggregate, Column, Expr, Literal, Output
from merlot.tree.relations import Block, DerivedTable, Query, SetKind, SetOperation, Statement, Subquery
from merlot.tree.types import DOUBLE, FLOAT


def partial_aggregates(statement: Statement) -> Statement:
    """Rewrite `SELECT a, COUNT(*) FROM (t UNION ALL u) GROUP BY a` so that it adds up the counts of t and of u."""
    return map_queries(statement, lambda query: _made(query) if isinstance(query, Block) else query)


def _made(block: Block) -> Block:
    source = block.source
    if not isinstance(source, DerivedTable) or not isinstance(source.query, SetOperation) or block.grouping_sets:
        return block
    if not _is_union_all(source.query):
        return block
    if block.where is not None or has_windows(block) or not is_grouped(block):
        return block
    if any(isinstance(slot, Subquery) for slot in block.slots.values()) or any(map(_is_inexact, block.group_by)):
        return block
    aggregates = aggregates_in(block)
    partial = _Partial(source.id, block.group_by)
    if not (aggregates or block.group_by) or not all(map(partial.add, aggregates)):
        return block
    try:
        query = _grouped(source.query, source.id, block.group_by, tuple(partial.outputs))
    except UnsoundError:
        return block
    over = partial.over
    return replace(
        block,
        source=replace(source, query=query),
        group_by=tuple(over(key) for key in block.group_by),
        outputs=tuple(Output(output.label, over(output.expr)) for output in block.outputs),
        having=None if block.having is None else over(block.having),
        order_by=tuple(replace(key, expr=over(key.expr)) for key in block.order_by),
    )


def _is_inexact(key: Expr) -> bool:
    """Return whether a key is a constant, or of a type whose equal values may be written in two ways."""
    return isinstance(key, Literal) or key.type in (FLOAT, DOUBLE)


def _is_union_all(query: Query) -> bool:
    """Return whether a query is a UNION ALL of plain queries."""
    if isinstance(query, Block):
        return is_plain(query) and query.source is not None and not query.slots and not query.order_by
    is_all = query.kind is SetKind.UNION and query.is_all and query.limit is None and not query.offset
    return is_all and not query.order_by and _is_union_all(query.left) and _is_union_all(query.right)


@dataclass(slots=True)
class _Partial:
    """Outputs of each side, and the expressions that replace keys and aggregates above."""

    _id: str
    _keys: tuple[Expr, ...]
    outputs: list[Expr] = field(default_factory=list)
    _slots: dict[Expr, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self._keys:
            self._slots[key] = self._output(key)

    def over(self, expr: Expr) -> Expr:
        """Return an expression over groups as one over groups of groups."""
        return rewrite_expr(expr, self._slots.get)

    def add(self, aggregate: Aggregate) -> bool:
        """Have the sides compute an aggregate. Return False if its results cannot be merged."""
        slot = None if any(True for _ in slot_columns(aggregate)) else merged(aggregate, self._output)
        if slot is not None:
            self._slots[aggregate] = slot
        return slot is not None

    def _output(self, expr: Expr) -> Column:
        self.outputs.append(expr)
        return Column(f"{self._id}.c{len(self.outputs) - 1}", expr.type)


def _grouped(query: Query, id_: str, keys: tuple[Expr, ...], outputs: tuple[Expr, ...]) -> Query:
    """Return the query with each side grouped."""
    if isinstance(query, SetOperation):
        return replace(
            query,
            left=_grouped(query.left, id_, keys, outputs),
            right=_grouped(query.right, id_, keys, outputs),
            outputs=tuple(Output(f"c{at}", Column(f"c{at}", expr.type)) for at, expr in enumerate(outputs)),
        )
    over = Replacing({f"{id_}.c{position}": output.expr for position, output in enumerate(query.outputs)})
    made = tuple(Output(f"c{position}", over(expr)) for position, expr in enumerate(outputs))
    groups = tuple(dict.fromkeys(over(key) for key in keys))
    return replace(query, outputs=made, group_by=groups)
