"""Filters of leaves by the join keys of other leaves (semi-join reduction).

Where `a.k = b.k` must hold, the rows of `b` whose key no row of `a` has are of no use. So the smaller leaf is asked
first, and its keys filter the other one: servers prune segments by them, and ship only rows that may join. Pure.

A condition implies such a filter wherever a condition on that relation alone could be pushed (`conjuncts.reachable`).
The other side may be any leaf, also one of an outer query: its column holds values of the leaf's answer, or NULL, which
equals nothing. Either side may be the column of a subquery in FROM that passes a leaf's column on; the filtered one
must return the same rows for every other key, so it may group by the column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from merlot.query.stages.conjuncts import all_of, conjuncts, reachable, reachable_by_condition
from merlot.query.stages.rewriting import is_grouped
from merlot.tree.literals import INT_MAX
from merlot.tree.nodes import FALSE, TRUE, BoundQuery, Call, Column, Expr, Literal
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    Relation,
    Slot,
    Statement,
    Subquery,
    SubqueryKind,
    Window,
    queries_in,
    relations_in,
    source_id,
    source_position,
)
from merlot.tree.types import BOOLEAN
from merlot.values.types import TypeName

KEY_FILTERS: Final = "KeyFilters"
"""Name of this rewriting among the rules."""
MAX_KEYS: Final = 256
"""Most keys in a filter. With more keys, the filter is their range if they are numbers; STRING columns get none. A
thousand keys took 40 ms over twelve segments, more than the rows that they saved (EXISTS over 120,000 rows)."""
MIN_RATIO: Final = 4
"""Least ratio of estimated rows of two leaves at which the larger one waits for the keys of the smaller one."""
FILTERED: Final = 8
"""Ratio of rows to rows that pass a filter, as long as nothing better is known."""
_NUMBERS: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP})
_KEYS: Final = _NUMBERS | {TypeName.STRING}
"""Types whose values are equal in a filter of a leaf exactly if the engine joins them."""


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Filter of a leaf that holds for all of its rows that the statement needs."""

    leaf: str
    """Id of the leaf that is filtered."""
    column: Column
    """Column of the leaf's table."""
    source: str
    """Id of the leaf that has the keys."""
    position: int
    """Position of the keys among the columns of the source's answer."""


def key_filters(statement: Statement, queries: Mapping[str, BoundQuery]) -> tuple[KeyFilter, ...]:
    """Return the filters that a statement over leaves implies. `queries`: queries of the leaves, by id."""
    return tuple(dict.fromkeys(_Implying(statement, queries).filters()))


def worthwhile(filters: Sequence[KeyFilter], num_rows: Mapping[str, int]) -> Mapping[str, tuple[KeyFilter, ...]]:
    """Return the filters for which a leaf should wait, by leaf. `num_rows`: estimated rows of leaves. No two leaves
    wait for each other: the source of a filter has fewer rows than the leaf."""
    chosen: dict[str, tuple[KeyFilter, ...]] = {}
    for key_filter in filters:
        leaf = key_filter.leaf
        if max(num_rows[key_filter.source], 1) * MIN_RATIO <= num_rows[leaf]:
            chosen[leaf] = (*chosen.get(leaf, ()), key_filter)
    return chosen


def estimated_rows(num_docs: int, where: Expr | None) -> int:
    """Return the estimated rows of a leaf whose segments, after pruning, have `num_docs` rows."""
    return num_docs if where is None else num_docs // FILTERED


def narrowed(where: Expr | None, filters: Sequence[KeyFilter], keys: Sequence[pa.Array]) -> Expr | None:
    """Return a leaf's WHERE with filters added. `keys`: for each filter, the column at its position in the source's
    answer, in any order, with duplicates and nulls."""
    parts = conjuncts(where)
    for key_filter, values in zip(filters, keys, strict=True):
        parts += conjuncts(_condition(key_filter.column, values))
    return all_of(parts)


def _condition(column: Column, values: pa.Array) -> Expr | None:
    """Return the condition that a column has one of the values; a weaker condition, or None, if there are too many."""
    distinct = pc.drop_null(pc.unique(values))
    if len(distinct) > MAX_KEYS:
        if column.type.base not in _NUMBERS:
            return None
        bounds = pc.min_max(distinct).as_py()
        literals = [Literal(bounds[name], column.type) for name in ("min", "max")]
        return Call("between", (column, *literals), BOOLEAN)
    literals = [Literal(value, column.type) for value in sorted(distinct.to_pylist())]
    if not literals:
        return FALSE
    return Call("in" if len(literals) > 1 else "equals", (column, *literals), BOOLEAN)


class _Implying:
    """Search for the filters that the conditions of a statement imply."""

    def __init__(self, statement: Statement, queries: Mapping[str, BoundQuery]) -> None:
        self._queries = queries
        self._blocks = [query for query in queries_in(statement) if isinstance(query, Block)]
        self._derived = {
            relation.id: relation.query
            for block in self._blocks
            for relation in relations_in(block.source)
            if isinstance(relation, DerivedTable)
        }

    def filters(self) -> Iterator[KeyFilter]:
        for block in self._blocks:
            for part in conjuncts(block.where):
                yield from self._of_part(part, reachable(block.source), block.slots)
            yield from self._of_joins(block.source, block.slots)

    def _of_joins(self, relation: Relation | None, slots: Mapping[str, Slot]) -> Iterator[KeyFilter]:
        if not isinstance(relation, Join):
            return
        yield from self._of_joins(relation.left, slots)
        yield from self._of_joins(relation.right, slots)
        for part in conjuncts(relation.condition):
            yield from self._of_part(part, reachable_by_condition(relation), slots)

    def _of_part(self, part: Expr, scans: frozenset[str], slots: Mapping[str, Slot]) -> Iterator[KeyFilter]:
        """Yield the filters that follow from a condition that must hold. `scans`: relations that filters may be pushed
        to."""
        for left, right in _equal(part, slots):
            for filtered, keys in ((left, right), (right, left)):
                leaf = self._position(filtered, is_filtered=True) if source_id(filtered) in scans else None
                source = self._position(keys, is_filtered=False)
                if leaf is None or source is None or leaf[0] == source[0]:
                    continue
                query = self._queries[leaf[0]]
                column = query.select[leaf[1]].expr
                if isinstance(column, Column) and column.type == keys.type and _may_be_filtered(query, column):
                    yield KeyFilter(leaf[0], column, *source)

    def _position(self, column: Column, *, is_filtered: bool) -> tuple[str, int] | None:
        """Return the leaf that a column comes from, and its position there; None if it comes from no leaf, or if a
        filter of that leaf would change other rows of the column's relation."""
        id_ = source_id(column)
        if id_ in self._queries:
            return id_, source_position(column)
        query = self._derived.get(id_)
        if not isinstance(query, Block):
            return None
        inner = query.outputs[source_position(column)].expr
        if not isinstance(inner, Column) or (is_filtered and not _passes(query, inner)):
            return None
        return self._position(inner, is_filtered=is_filtered)


def _passes(block: Block, column: Column) -> bool:
    """Return whether a filter by one of its columns makes a SELECT lose the rows with other values, and no others."""
    is_limited = block.limit is not None or bool(block.offset) or block.qualify is not None
    has_windows = any(isinstance(slot, Window) for slot in block.slots.values())
    if is_limited or has_windows or block.grouping_sets or (is_grouped(block) and column not in block.group_by):
        return False
    return source_id(column) in reachable(block.source)


def _equal(part: Expr, slots: Mapping[str, Slot]) -> Iterator[tuple[Column, Column]]:
    """Yield the pairs of columns that are equal where a condition holds."""
    for left, right in _compared(part, slots):
        is_key = left.type == right.type and left.type.base in _KEYS and not left.type.is_array
        if is_key and isinstance(left, Column) and isinstance(right, Column):
            yield left, right


def _compared(part: Expr, slots: Mapping[str, Slot]) -> Iterator[tuple[Expr, Expr]]:
    """Yield the pairs of expressions that are equal where a condition holds."""
    if isinstance(part, Call) and part.function == "equals" and part.args[1] == TRUE:
        part = part.args[0]
    slot = slots.get(part.name) if isinstance(part, Column) else None
    if isinstance(slot, Subquery) and slot.kind is SubqueryKind.IN:
        yield from zip(slot.operands, (output.expr for output in slot.query.outputs), strict=True)
    elif isinstance(part, Call) and part.function == "equals":
        yield part.args[0], part.args[1]


def _may_be_filtered(query: BoundQuery, column: Column) -> bool:
    """Return whether a filter by one of its columns makes a leaf lose the rows with other values, and no others."""
    has_aggregates = any(not isinstance(output.expr, Column | Call | Literal) for output in query.select)
    has_groups = bool(query.group_by) or has_aggregates or query.distinct
    return query.limit == INT_MAX and (column in query.group_by or not has_groups)
