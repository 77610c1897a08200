"""Aggregate each side of UNION ALL by itself, and merge the results: servers send groups, not rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from merlot.query.plan.expressions import replace as rewrite_expr
from merlot.query.stages.groupings import aggregates_in
from merlot.query.stages.replacing import Replacing, UnsoundError
from merlot.query.stages.rewrites.walks import has_windows, is_plain, map_queries, slot_columns
from merlot.query.stages.rewriting import is_grouped
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal, Output
from merlot.tree.relations import Block, DerivedTable, Query, SetKind, SetOperation, Statement, Subquery
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, FLOAT, INT, LONG

_SAME = frozenset({"sum", "min", "max", "booland", "boolor"})
"""Aggregates that merge their own results for parts of the rows."""
_AVERAGED = frozenset({INT, LONG, FLOAT, DOUBLE})


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
        if BIG_DECIMAL in (aggregate.type, *(arg.type for arg in aggregate.args)):
            return False
        if any(True for _ in slot_columns(aggregate)):
            return False
        if aggregate.function == "count":
            self._slots[aggregate] = Aggregate("sum", (self._output(aggregate),), LONG)
            return True
        if aggregate.function == "avg" and aggregate.args[0].type in _AVERAGED:
            self._slots[aggregate] = self._mean(aggregate)
            return True
        if aggregate.function not in _SAME:
            return False
        self._slots[aggregate] = Aggregate(aggregate.function, (self._output(aggregate),), aggregate.type)
        return True

    def _mean(self, aggregate: Aggregate) -> Expr:
        """Return the sum of sums divided by the sum of counts; NULL for no values."""
        value = aggregate.args[0]
        type_ = LONG if value.type == INT else DOUBLE  # a sum of INTs is exact; one of LONGs may be no LONG
        summed = Call("cast", (value,), DOUBLE) if value.type == LONG else value
        sums = self._output(replace(aggregate, function="sum", args=(summed,), type=type_))
        counts = self._output(replace(aggregate, function="count", args=(value,), type=LONG))
        count = Aggregate("sum", (counts,), LONG)
        mean = Call("divide", (Aggregate("sum", (sums,), type_), count), DOUBLE)
        some = Call("greater_than", (count, Literal(0, LONG)), BOOLEAN)
        return Call("case", (some, mean, Literal(None, DOUBLE)), DOUBLE)

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
