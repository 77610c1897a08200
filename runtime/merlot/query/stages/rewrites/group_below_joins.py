"""Group a leaf below the joins, or the correlation, of a SELECT that groups (eager aggregation). Pure.

W. P. Yan and P.-A. Larson: Eager Aggregation and Lazy Aggregation, VLDB 1995. The leaf is grouped by all that
conditions and keys read of it. Aggregates of its values are merged above the join; those of other relations' values
count each row as often as the group has rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from merlot.query.stages.failures import may_fail
from merlot.query.stages.groupings import aggregates_in
from merlot.query.stages.null_bits import NULL_TESTS
from merlot.query.stages.replacing import UnsoundError, is_strict
from merlot.query.stages.rewrites.merging import EXTREMES, is_averaged, is_small, mean, merged, sum_type, total
from merlot.query.stages.rewrites.scan_groups import ScanGroups, largest_first, scans_of
from merlot.query.stages.rewrites.walks import map_queries, slot_columns
from merlot.query.stages.rewriting import is_grouped, map_block, substituted
from merlot.query.stages.sizes import TableSizes
from merlot.tree.nodes import Aggregate, Call, Column, Expr, Literal
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    Query,
    Slot,
    Statement,
    Subquery,
    columns_in,
    relations_in,
    source_id,
    source_position,
)
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, FLOAT, LONG

_ONCE: Final = EXTREMES | {"minstring", "maxstring", "distinctcount"}
"""Aggregates whose result does not depend on how often a value occurs."""


def group_below_joins(statement: Statement, sizes: TableSizes) -> Statement:
    """Rewrite `SELECT b.k, SUM(a.v) FROM a JOIN b ON a.j = b.j GROUP BY b.k` so that it joins groups of a by j."""
    names: dict[str, str] = {}

    def change(query: Query) -> Query:
        if not isinstance(query, Block) or not is_grouped(query) or query.grouping_sets:
            return query
        for scan, is_nullable in largest_first(scans_of(query.source, is_counted=True), sizes):
            try:
                groups = ScanGroups(query, scan, is_nullable=is_nullable, nulls=statement.null_handling)
                made = _made(query, groups)
            except UnsoundError:
                continue
            if made is not None and groups.pays(sizes):
                names.update(groups.names({**statement.names, **names}))
                query = made
        return query

    made = map_queries(statement, change)
    return made if made is statement else replace(made, names={**made.names, **names})


def _made(block: Block, groups: ScanGroups) -> Block | None:
    """Return the SELECT over groups of a scan. None if servers group the scan by themselves. Raise UnsoundError."""
    if not isinstance(block.source, Join) and not groups.has_rest:
        return None
    slots: dict[Expr, Expr] = {key: groups.over(key) for key in block.group_by if not isinstance(key, Literal)}
    merging = _AggregateMerging(block, groups)
    slots |= {aggregate: merging.merged(aggregate) for aggregate in aggregates_in(block)}
    made = _over_groups(replace(block, where=None), slots, groups)
    return replace(made, where=groups.where(), source=groups.source())


def _over_groups(block: Block, slots: Mapping[Expr, Expr], groups: ScanGroups) -> Block:
    """Return a SELECT with its keys and aggregates replaced by `slots`. Operands of a subquery in WHERE are over rows:
    what they read of the scan becomes keys."""

    def over_groups(node: Expr) -> Expr | None:
        if node not in slots and isinstance(node, Column) and groups.owns(node):
            raise UnsoundError
        return slots.get(node)

    def operand(node: Expr) -> Expr | None:
        is_computed = isinstance(node, Call) and node.function not in NULL_TESTS
        return slots.get(node) or (None if is_computed else groups.key_of(node))

    def over_either(slot: Slot) -> Slot:
        if not isinstance(slot, Subquery):
            return slot
        return replace(slot, operands=tuple(substituted(expr, operand) for expr in slot.operands))

    windows = {name: slot for name, slot in block.slots.items() if not isinstance(slot, Subquery)}
    made = map_block(replace(block, slots=windows), lambda expr: substituted(expr, over_groups))
    return replace(made, slots={name: over_either(made.slots.get(name, slot)) for name, slot in block.slots.items()})


class _AggregateMerging:
    """Aggregates over joined rows as aggregates over joined rows of groups."""

    def __init__(self, block: Block, groups: ScanGroups) -> None:
        self._groups = groups
        self._parts: Mapping[str, DerivedTable] = {
            relation.id: relation for relation in relations_in(block.source) if isinstance(relation, DerivedTable)
        }

    def merged(self, aggregate: Aggregate) -> Expr:
        """Return the expression that replaces an aggregate. Raise UnsoundError."""
        if BIG_DECIMAL in (aggregate.type, *(arg.type for arg in aggregate.args)) or any(slot_columns(aggregate)):
            raise UnsoundError
        own = self._groups.scan.id
        of_values = {source_id(column) for arg in aggregate.args for column in columns_in(arg)}
        of_filter = set() if aggregate.filter is None else set(map(source_id, columns_in(aggregate.filter)))
        if own not in of_values | of_filter:
            return self._weighted(aggregate)
        is_filter_own, is_filter_other = of_filter == {own}, own not in of_filter
        if of_values <= {own} and (is_filter_own or is_filter_other):
            inner = aggregate if is_filter_own else replace(aggregate, filter=None)
            made = self._partial(inner)
            if made is not None:
                return made if is_filter_own or aggregate.filter is None else _filtered(made, aggregate.filter)
        if aggregate.function in _ONCE:
            return substituted(aggregate, self._groups.key_of)
        product = self._product(aggregate) if aggregate.function == "sum" else None
        if product is None:
            raise UnsoundError
        return product

    def _product(self, aggregate: Aggregate) -> Expr | None:
        """Return a sum of products of a value of the scan and a count of others, or of a count of others where a
        condition on the scan holds, over groups. `_weighted` makes such sums for another scan. None for other sums."""
        value, condition = aggregate.args[0], aggregate.filter
        values = value.args if isinstance(value, Call) and value.function == "times" else (value,)
        own = [part for part in values if self._groups.owns(part)]
        others = [part for part in values if not self._reads(part)]
        is_filter_own = condition is not None and self._groups.owns(condition)
        if len(own) + len(others) < len(values) or len(others) != 1 or not self._is_counted(others[0]):
            return None
        if condition is not None and not is_filter_own and self._reads(condition):
            return None
        if not own:
            return self._filtered_product(aggregate, others[0])
        if not self._is_made_of(others[0], ("count",)):
            return None
        part = replace(aggregate, args=(own[0],))
        if aggregate.type == DOUBLE:
            part = replace(part, type=sum_type(own[0]))
        made = self._partial(part if is_filter_own else replace(part, filter=None))
        if not isinstance(made, Aggregate):
            return None
        product = Call("times", (made.args[0], others[0]), aggregate.type)
        return replace(aggregate, args=(product,), filter=None if is_filter_own else condition)

    def _filtered_product(self, aggregate: Aggregate, value: Expr) -> Expr | None:
        """Return a sum of others' values, each as often as rows of the group meet the sum's filter."""
        condition = aggregate.filter
        if condition is None or may_fail(condition) or _reads_floats(condition):
            return None
        if self._groups.is_nullable and not is_strict(condition):
            return None
        count = self._groups.output(Aggregate("count", (), LONG, condition))
        some = Call("greater_than", (count, Literal(0, LONG)), BOOLEAN)
        return replace(aggregate, args=(Call("times", (value, count), aggregate.type),), filter=some)

    def _reads(self, expr: Expr) -> bool:
        return any(source_id(column) == self._groups.scan.id for column in columns_in(expr))

    def _partial(self, aggregate: Aggregate) -> Expr | None:
        """Return the merged aggregate of values of the scan; None if it cannot be computed for each group by itself."""
        exprs = [*aggregate.args, *([] if aggregate.filter is None else [aggregate.filter])]
        if any(map(may_fail, exprs)) or any(arg.type.is_array for arg in aggregate.args):
            return None
        if aggregate.filter is not None and _reads_floats(aggregate.filter):
            return None
        if self._groups.is_nullable and not any(map(is_strict, exprs)):
            return None  # it may have a value for a row that a join makes up
        if aggregate.function == "sum" and aggregate.type == LONG and not is_small(aggregate.args[0]):
            return None
        return merged(aggregate, self._groups.output)

    def _weighted(self, aggregate: Aggregate) -> Expr:
        """Return an aggregate of other relations' values that takes each row as often as its group has rows."""
        name, args = aggregate.function, aggregate.args
        if name in _ONCE:
            return aggregate
        if any(arg.type.is_array for arg in args):
            raise UnsoundError
        weight = self._weight()
        if name == "count":
            return total(weight, _with_values(aggregate))
        if name == "sum" and aggregate.type == DOUBLE:
            return replace(aggregate, args=(Call("times", (args[0], weight), DOUBLE),))
        if name == "sum" and aggregate.type == LONG and self._is_counted(args[0]):
            return replace(aggregate, args=(Call("times", (args[0], weight), LONG),))
        if name == "avg" and is_averaged(args[0]):
            type_ = sum_type(args[0])
            product = Call("times", (args[0], weight), type_)
            return mean(Aggregate("sum", (product,), type_, aggregate.filter), total(weight, _with_values(aggregate)))
        raise UnsoundError

    def _weight(self) -> Expr:
        """Return the rows of a group; one if a join makes up the row."""
        count = self._groups.output(Aggregate("count", (), LONG))
        return Call("coalesce", (count, Literal(1, LONG)), LONG) if self._groups.is_nullable else count

    def _is_counted(self, expr: Expr) -> bool:
        """Return whether a whole number is small, or a sum or count of small ones: then its products with counts are
        sums of no more than the joined rows."""
        return is_small(expr) or self._is_made_of(expr, ("count", "sum"))

    def _is_made_of(self, expr: Expr, functions: Sequence[str]) -> bool:
        """Return whether a number is a product of results of these aggregates, of small numbers, for groups in FROM."""
        if isinstance(expr, Call) and expr.function in ("times", "coalesce"):
            return all(isinstance(arg, Literal) or self._is_made_of(arg, functions) for arg in expr.args)
        part = self._parts.get(source_id(expr)) if isinstance(expr, Column) else None
        if part is None or not isinstance(part.query, Block):
            return False
        assert isinstance(expr, Column)
        computed = part.query.outputs[source_position(expr)].expr
        if not isinstance(computed, Aggregate) or computed.function not in functions:
            return False
        return computed.function == "count" or is_small(computed.args[0])


def _reads_floats(condition: Expr) -> bool:
    """Return whether a condition may compare a NaN, which `_with_values` takes to be equal to itself."""
    return any(column.type in (FLOAT, DOUBLE) for column in columns_in(condition))


def _with_values(aggregate: Aggregate) -> Expr | None:
    """Return the condition that an aggregate's arguments have values, and that its filter holds. `x = x` is NULL where
    x is, also where null tests ask for nulls of tables."""
    parts = [] if aggregate.filter is None else [aggregate.filter]
    for arg in aggregate.args:
        if isinstance(arg, Literal) and arg.value is None:
            raise UnsoundError
        if not isinstance(arg, Literal):
            parts.append(Call("equals", (arg, arg), BOOLEAN))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Call("and", tuple(parts), BOOLEAN)


def _filtered(expr: Expr, condition: Expr) -> Expr:
    """Return an expression whose aggregates have a filter."""

    def with_filter(node: Expr) -> Expr | None:
        return replace(node, filter=condition) if isinstance(node, Aggregate) else None

    return substituted(expr, with_filter)
