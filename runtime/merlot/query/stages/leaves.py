"""Cut a statement into leaves, which servers answer, and the rest, which reads the leaves' answers.

A SELECT over one table that groups is a leaf except for HAVING, ORDER BY and LIMIT: servers aggregate. Other leaves
return the columns that are read, of the rows that pass the filters over that table alone, and only the first rows if
the SELECT needs no more. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from merlot.query.plan.expressions import replace as rewrite_expr
from merlot.query.stages.conjuncts import (
    all_of,
    conjuncts,
    implied,
    only_source,
    reachable,
    reachable_by_condition,
)
from merlot.query.stages.direct import DIRECT, direct_query
from merlot.query.stages.failures import may_fail
from merlot.query.stages.groupings import Grouping, aggregates_in, is_leaf_aggregate, of_table
from merlot.query.stages.key_filters import KEY_FILTERS, KeyFilter, key_filters
from merlot.query.stages.null_bits import NULL_TESTS, null_test, with_null_bits
from merlot.query.stages.rewrites.rules import RULES, RewriteResult, rewritten, skipped_rules
from merlot.query.stages.rewriting import is_grouped, map_block, map_statement, substituted
from merlot.query.stages.sizes import TableSizes
from merlot.sql.budget import Budget
from merlot.tree.literals import INT_MAX
from merlot.tree.nodes import BoundQuery, Call, Column, Expr, Literal, OrderKey, Output
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    Query,
    Relation,
    Scan,
    SetOperation,
    Slot,
    Statement,
    Subquery,
    columns_in,
    conditions_in,
    queries_in,
    relations_in,
    source_id,
)
from merlot.tree.types import LONG, SqlType

RULE_NAMES: Final = (*(rule.name for rule in RULES), KEY_FILTERS, DIRECT)
"""Names that `skipPlannerRules` may list."""


@dataclass(frozen=True, slots=True)
class StageLeaf:
    """Query of one table. Its answer has a column `c0`, `c1`, … for each of the query's outputs."""

    id: str
    query: BoundQuery
    types: tuple[SqlType, ...]
    """Types of the columns as stages read them: a sum of BIG_DECIMAL arrives as text."""


@dataclass(frozen=True, slots=True)
class CutStatement:
    """Leaves by relation id, and the statement over them, in which columns of a `Scan` are called `id.c0`, `id.c1`,
    …"""

    statement: Statement
    leaves: Mapping[str, StageLeaf]
    rewrites: RewriteResult
    """Rewriting of the statement before it was cut."""
    direct: StageLeaf | None = None
    """Leaf that answers the whole statement, if there is one. It is then the only one of `leaves`."""
    filters: tuple[KeyFilter, ...] = ()
    """Filters of leaves by the join keys of other leaves, which have to be asked first."""


def cut(statement: Statement, budget: Budget | None = None, sizes: TableSizes | None = None) -> CutStatement:
    """Return the leaves of a statement, and the rest. Raise the errors of `budget`. `sizes`: estimates for its tables,
    if there are any."""
    rewrites = rewritten(with_null_bits(statement), budget, sizes)
    whole = None if DIRECT.lower() in skipped_rules(statement) else direct_query(rewrites.statement)
    if whole is None:
        return _Cutter(rewrites).cut()
    scan, query = whole
    leaf = StageLeaf(scan.id, query, tuple(output.expr.type for output in query.select))
    columns = tuple(
        Output(output.label, Column(f"{scan.id}.c{number}", output.expr.type))
        for number, output in enumerate(query.select)
    )
    rest = replace(rewrites.statement, query=Block(source=scan, outputs=columns), common=())
    rewrites = replace(rewrites, rules=(*rewrites.rules, DIRECT))
    return CutStatement(rest, {scan.id: leaf}, rewrites, leaf)


@dataclass(slots=True)
class _ScanNeeds:
    """Needs of a scan's readers, collected while the statement is walked."""

    table: str
    parts: list[Expr] = field(default_factory=list)
    """Conditions on the scan's columns."""
    columns: dict[Expr, Expr] = field(default_factory=dict)
    """Expressions of the table (columns, and IS NULL of columns), by the expressions of readers."""
    order_by: tuple[OrderKey, ...] = ()
    limit: int = INT_MAX
    aggregated: StageLeaf | None = None


class _Cutter:
    def __init__(self, rewrites: RewriteResult) -> None:
        self._rewrites = rewrites
        self._statement = statement = rewrites.statement
        self._nulls = statement.null_handling
        blocks = [query for query in queries_in(statement) if isinstance(query, Block)]
        relations = [relation for block in blocks for relation in relations_in(block.source)]
        scans = [relation for relation in relations if isinstance(relation, Scan)]
        self._wanted = {scan.id: _ScanNeeds(scan.table) for scan in scans}
        self._correlated = _correlated(statement)

    def cut(self) -> CutStatement:
        common = tuple((id_, self._query(query)) for id_, query in self._statement.common)
        rest = replace(self._statement, query=self._query(self._statement.query), common=common)
        for query in queries_in(rest):
            self._note_columns(query)
        brought = {
            read: Column(f"{id_}.c{number}", read.type)
            for id_, wanted in self._wanted.items()
            if wanted.aggregated is None
            for number, read in enumerate(wanted.columns)
        }
        leaves = {id_: self._leaf(id_, wanted) for id_, wanted in self._wanted.items()}
        above = map_statement(rest, lambda expr: substituted(expr, lambda part: self._brought(part, brought)))
        if KEY_FILTERS.lower() in skipped_rules(self._statement):
            return CutStatement(above, leaves, self._rewrites)
        filters = key_filters(above, {id_: leaf.query for id_, leaf in leaves.items()})
        rules = (*self._rewrites.rules, KEY_FILTERS) if filters else self._rewrites.rules
        return CutStatement(above, leaves, replace(self._rewrites, rules=rules), filters=filters)

    def _brought(self, expr: Expr, brought: Mapping[Expr, Column]) -> Expr | None:
        """Return the leaf's column that replaces an expression; None if the leaf has no such column."""
        if self._is_null_test(expr):
            assert isinstance(expr, Call)
            is_null = brought.get(replace(expr, function="is_null"))
            return None if is_null is None else null_test(expr, is_null)
        return brought.get(expr) if isinstance(expr, Column) else None

    def _is_null_test(self, expr: Expr) -> bool:
        """Return whether an expression is a null test that only a leaf can answer, because its columns hold default
        values."""
        if self._nulls or not isinstance(expr, Call) or expr.function not in NULL_TESTS:
            return False
        column = expr.args[0]
        return isinstance(column, Column) and source_id(column) in self._wanted

    def _leaf(self, id_: str, wanted: _ScanNeeds) -> StageLeaf:
        if wanted.aggregated is not None:
            return wanted.aggregated
        columns = list(wanted.columns.values())
        outputs = [Output(f"c{number}", column) for number, column in enumerate(columns)]
        if not outputs:
            outputs = [Output("c0", Literal(1, LONG))]
        query = BoundQuery(
            wanted.table,
            tuple(outputs),
            where=all_of([of_table(part) for part in wanted.parts]),
            order_by=tuple(OrderKey(of_table(key.expr), key.ascending, key.nulls_last) for key in wanted.order_by),
            limit=wanted.limit,
            options=self._statement.options,
            explain=self._statement.explain,
        )
        return StageLeaf(id_, query, tuple(output.expr.type for output in outputs))

    def _note_columns(self, query: Query) -> None:
        if isinstance(query, SetOperation):
            return
        exprs = list(query.exprs)
        exprs += conditions_in(query.source)
        for expr in exprs:
            substituted(expr, self._note)

    def _note(self, expr: Expr) -> Expr | None:
        """Note a column, or a null test of a column, as read. Returning the expression ends the walk there."""
        is_test = self._is_null_test(expr)
        if not is_test and not isinstance(expr, Column):
            return None
        read = replace(expr, function="is_null") if isinstance(expr, Call) else expr
        wanted = self._wanted.get(source_id(next(columns_in(expr))))
        if wanted is not None and wanted.aggregated is None:
            wanted.columns[read] = of_table(read)
        return expr

    def _query(self, query: Query) -> Query:
        if isinstance(query, SetOperation):
            return replace(query, left=self._query(query.left), right=self._query(query.right))
        return self._block(query)

    def _block(self, block: Block) -> Block:
        slots = {name: self._slot(slot) for name, slot in block.slots.items()}
        remaining = self._push(conjuncts(block.where), reachable(block.source))
        block = replace(block, source=self._relation(block.source), where=all_of(remaining), slots=slots)
        scan = block.source
        if block.grouping_sets:
            return block
        if remaining or not isinstance(scan, Scan) or scan.id in self._correlated:
            return block
        if is_grouped(block) or (block.is_distinct and not block.slots):
            return self._aggregated(block, scan) or block
        if block.limit is not None and not block.slots and not block.is_distinct and _is_ordered_by(scan, block):
            wanted = self._wanted[scan.id]
            wanted.order_by = block.order_by
            wanted.limit = min(block.limit + block.offset, INT_MAX)
        return block

    def _slot(self, slot: Slot) -> Slot:
        return replace(slot, query=self._query(slot.query)) if isinstance(slot, Subquery) else slot

    def _relation(self, relation: Relation | None) -> Relation | None:
        if isinstance(relation, DerivedTable):
            return replace(relation, query=self._query(relation.query))
        if not isinstance(relation, Join):
            return relation
        left, right = self._relation(relation.left), self._relation(relation.right)
        assert left is not None
        assert right is not None
        remaining = self._push(conjuncts(relation.condition), reachable_by_condition(relation))
        return replace(relation, left=left, right=right, condition=all_of(remaining))

    def _push(self, parts: list[Expr], scans: frozenset[str]) -> list[Expr]:
        """Push conditions that read one scan alone to its leaf. Return the other conditions."""
        scans &= self._wanted.keys()
        remaining = []
        for part in parts:
            owner = only_source(part)
            if owner in scans and owner is not None:
                self._wanted[owner].parts.append(part)
                continue
            remaining.append(part)
            for scan, weaker in implied(part, scans):
                if not may_fail(weaker):  # the conditions on other tables may guard it
                    self._wanted[scan].parts.append(weaker)
        return remaining

    def _aggregated(self, block: Block, scan: Scan) -> Block | None:
        """Return the block over groups that servers compute; None if they cannot."""
        keys = block.group_by
        if not is_grouped(block):
            keys = tuple(dict.fromkeys(output.expr for output in block.outputs))
        if any(source_id(column) != scan.id for key in keys for column in columns_in(key)):
            return None
        keys = tuple(key for key in keys if not isinstance(key, Literal))
        aggregates = aggregates_in(block)
        if (block.group_by and not keys) or not (keys or aggregates) or not all(map(is_leaf_aggregate, aggregates)):
            return None
        if any(source_id(column) != scan.id for aggregate in aggregates for column in columns_in(aggregate)):
            return None
        grouping = Grouping(scan.id, keys, nulls=self._nulls, is_whole=not block.group_by and bool(aggregates))
        for aggregate in aggregates:
            grouping.add(aggregate)
        wanted = self._wanted[scan.id]
        query = BoundQuery(
            scan.table,
            tuple(grouping.outputs),
            where=all_of([of_table(part) for part in wanted.parts]),
            group_by=tuple(of_table(key) for key in keys),
            limit=INT_MAX,
            options=self._statement.options,
            explain=self._statement.explain,
        )
        wanted.aggregated = StageLeaf(scan.id, query, tuple(grouping.types))
        above = map_block(block, lambda expr: rewrite_expr(expr, grouping.slots.get))
        is_distinct = block.is_distinct and is_grouped(block)
        return replace(above, where=above.having, having=None, group_by=(), is_distinct=is_distinct)


def _is_ordered_by(scan: Scan, block: Block) -> bool:
    """Return whether ORDER BY reads columns of the scan alone: a correlated query may read others."""
    return all(source_id(column) == scan.id for key in block.order_by for column in columns_in(key.expr))


def _correlated(statement: Statement) -> frozenset[str]:
    """Return the scans that queries other than their own SELECT read."""
    correlated: set[str] = set()
    for query in queries_in(statement):
        if isinstance(query, Block):
            own = {relation.id for relation in relations_in(query.source)}
            exprs = [*query.exprs, *conditions_in(query.source)]
            read = {source_id(column) for expr in exprs for column in columns_in(expr)}
            correlated |= read - own
    return frozenset(correlated)
