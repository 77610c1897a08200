"""Cut a statement into leaves, which servers answer, and the rest, which reads their answers.

A SELECT over one table that groups is a leaf as a whole but for HAVING, ORDER BY and LIMIT: servers aggregate. Of other
tables a leaf has the columns that are read, and the rows that filters of its own keep; the first rows, where a SELECT
wants no more. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from merlot.aggregates import registry
from merlot.functions.registry import BY_NAME
from merlot.query.aggregation import aggregation
from merlot.query.plan.expressions import replace as rewrite_expr
from merlot.query.stages.conjuncts import (
    all_of,
    conjuncts,
    implied,
    only_source,
    reachable,
    reachable_by_condition,
)
from merlot.query.stages.null_bits import NULL_TESTS, null_test, with_null_bits
from merlot.query.stages.rewriting import is_grouped, map_block, map_statement, substituted
from merlot.tree.literals import INT_MAX
from merlot.tree.nodes import Aggregate, BoundQuery, Call, Column, Expr, Literal, OrderKey, Output
from merlot.tree.relations import (
    Block,
    Derived,
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
from merlot.tree.types import BIG_DECIMAL, BOOLEAN, DOUBLE, LONG, STRING, SqlType
from merlot.values.types import TypeName


@dataclass(frozen=True, slots=True)
class StageLeaf:
    """What is asked of a table. Its answer has a column `c0`, `c1`, … for each of the query's outputs."""

    id: str
    query: BoundQuery
    types: tuple[SqlType, ...]
    """Of the columns, as stages read them: a sum of BIG_DECIMAL comes as text."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Leaves by relation id, and the statement over them: columns of a `Scan` are called `id.c0`, `id.c1`, …"""

    statement: Statement
    leaves: Mapping[str, StageLeaf]


def cut(statement: Statement) -> Cut:
    """The leaves of a statement, and the rest."""
    return _Cutter(with_null_bits(statement)).cut()


@dataclass(slots=True)
class _Wanted:
    """What a scan is to bring, while its readers are looked at."""

    table: str
    parts: list[Expr] = field(default_factory=list)
    """Conditions."""
    columns: dict[Expr, Expr] = field(default_factory=dict)
    """Columns of the table, and IS NULL of them, by what readers have."""
    order_by: tuple[OrderKey, ...] = ()
    limit: int = INT_MAX
    aggregated: StageLeaf | None = None


class _Cutter:
    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._nulls = statement.null_handling
        self._wanted = {id_: _Wanted(table) for id_, table in statement.tables.items()}
        self._correlated = _correlated(statement)

    def cut(self) -> Cut:
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
        return Cut(map_statement(rest, lambda expr: substituted(expr, lambda one: self._brought(one, brought))), leaves)

    def _brought(self, expr: Expr, brought: Mapping[Expr, Column]) -> Expr | None:
        """Name the column of a leaf that takes the place of what is read."""
        if self._is_null_test(expr):
            assert isinstance(expr, Call)
            is_null = brought.get(replace(expr, function="is_null"))
            return None if is_null is None else null_test(expr, is_null)
        return brought.get(expr) if isinstance(expr, Column) else None

    def _is_null_test(self, expr: Expr) -> bool:
        """Whether leaves alone know the answer: their columns are default values."""
        if self._nulls or not isinstance(expr, Call) or expr.function not in NULL_TESTS:
            return False
        column = expr.args[0]
        return isinstance(column, Column) and source_id(column) in self._wanted

    def _leaf(self, id_: str, wanted: _Wanted) -> StageLeaf:
        if wanted.aggregated is not None:
            return wanted.aggregated
        columns = list(wanted.columns.values())
        outputs = [Output(f"c{number}", column) for number, column in enumerate(columns)]
        if not outputs:
            outputs = [Output("c0", Literal(1, LONG))]
        query = BoundQuery(
            wanted.table,
            tuple(outputs),
            where=all_of([_own(part) for part in wanted.parts]),
            order_by=tuple(OrderKey(_own(key.expr), key.ascending, key.nulls_last) for key in wanted.order_by),
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
        """Bring a column, or where it is null; what it gives ends the walk there."""
        is_test = self._is_null_test(expr)
        if not is_test and not isinstance(expr, Column):
            return None
        read = replace(expr, function="is_null") if isinstance(expr, Call) else expr
        wanted = self._wanted.get(source_id(next(columns_in(expr))))
        if wanted is not None and wanted.aggregated is None:
            wanted.columns[read] = _own(read)
        return expr

    def _query(self, query: Query) -> Query:
        if isinstance(query, SetOperation):
            return replace(query, left=self._query(query.left), right=self._query(query.right))
        return self._block(query)

    def _block(self, block: Block) -> Block:
        slots = {name: self._slot(slot) for name, slot in block.slots.items()}
        kept = self._push(conjuncts(block.where), reachable(block.source))
        block = replace(block, source=self._relation(block.source), where=all_of(kept), slots=slots)
        scan = block.source
        if block.grouping_sets:
            return block
        if kept or not isinstance(scan, Scan) or scan.id in self._correlated:
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
        if isinstance(relation, Derived):
            return replace(relation, query=self._query(relation.query))
        if not isinstance(relation, Join):
            return relation
        left, right = self._relation(relation.left), self._relation(relation.right)
        assert left is not None
        assert right is not None
        kept = self._push(conjuncts(relation.condition), reachable_by_condition(relation))
        return replace(relation, left=left, right=right, condition=all_of(kept))

    def _push(self, parts: list[Expr], scans: frozenset[str]) -> list[Expr]:
        """Ask leaves what concerns them alone; returns the rest."""
        kept = []
        for part in parts:
            owner = only_source(part)
            if owner in scans and owner is not None:
                self._wanted[owner].parts.append(part)
                continue
            kept.append(part)
            for scan, weaker in implied(part, scans):
                self._wanted[scan].parts.append(weaker)
        return kept

    def _aggregated(self, block: Block, scan: Scan) -> Block | None:
        """The block over groups that servers made; None if they cannot."""
        keys = block.group_by
        if not is_grouped(block):
            keys = tuple(dict.fromkeys(output.expr for output in block.outputs))
        if any(source_id(column) != scan.id for key in keys for column in columns_in(key)):
            return None
        keys = tuple(key for key in keys if not isinstance(key, Literal))
        found = _aggregates(block)
        if (block.group_by and not keys) or not (keys or found) or not all(map(_is_leaf_aggregate, found)):
            return None
        if any(source_id(column) != scan.id for one in found for column in columns_in(one)):
            return None
        made = _Grouping(scan.id, keys, nulls=self._nulls, is_whole=not block.group_by and bool(found))
        for one in found:
            made.add(one)
        wanted = self._wanted[scan.id]
        query = BoundQuery(
            scan.table,
            tuple(made.outputs),
            where=all_of([_own(part) for part in wanted.parts]),
            group_by=tuple(_own(key) for key in keys),
            limit=INT_MAX,
            options=self._statement.options,
            explain=self._statement.explain,
        )
        wanted.aggregated = StageLeaf(scan.id, query, tuple(made.types))
        above = map_block(block, lambda expr: rewrite_expr(expr, made.slots.get))
        is_distinct = block.is_distinct and is_grouped(block)
        return replace(above, where=above.having, having=None, group_by=(), is_distinct=is_distinct)


class _Grouping:
    """Outputs of a leaf that aggregates, and what readers have instead of keys and aggregates."""

    def __init__(self, scan: str, keys: tuple[Expr, ...], *, nulls: bool, is_whole: bool) -> None:
        self._scan = scan
        self._nulls = nulls
        self._is_whole = is_whole
        self.outputs: list[Output] = []
        self.types: list[SqlType] = []
        self.slots: dict[Expr, Expr] = {}
        for key in keys:
            self.slots[key] = self._output(_own(key), key.type)

    def add(self, aggregate: Aggregate) -> None:
        own = _own(aggregate)
        assert isinstance(own, Aggregate)
        asked, type_ = _asked(own if self._nulls or own.function != "count" else _count_of(own))
        slot: Expr = self._output(asked, type_)
        if slot.type != aggregate.type:
            slot = Call("cast", (slot,), aggregate.type)
        flattens = registry.named(own.function).flattens
        may_be_empty = self._is_whole or aggregate.filter is not None or flattens or any(map(_may_be_null, own.args))
        if may_be_empty and not self._nulls and _needs_count(asked):
            count = Aggregate("countmv", own.args[:1], LONG, own.filter) if flattens else _count_of(own)
            counted = self._output(count, LONG)
            some = Call("greater_than", (counted, Literal(0, LONG)), BOOLEAN)
            slot = Call("case", (some, slot, Literal(None, aggregate.type)), aggregate.type)
        self.slots[aggregate] = slot

    def _output(self, expr: Expr, type_: SqlType) -> Column:
        number = next((at for at, one in enumerate(self.outputs) if one.expr == expr), len(self.outputs))
        if number == len(self.outputs):
            self.outputs.append(Output(f"c{number}", expr))
            self.types.append(type_)
        return Column(f"{self._scan}.c{number}", type_)


def _asked(aggregate: Aggregate) -> tuple[Aggregate, SqlType]:
    """The aggregate of one stage that gives the value exactly, and the type to read it as."""
    name, type_ = aggregate.function, aggregate.type
    if name == "sum" and type_ == LONG:
        return replace(aggregate, function="sumlong"), LONG
    if name == "sum" and type_ == BIG_DECIMAL:
        return replace(aggregate, function="sumprecision", type=STRING), BIG_DECIMAL
    if name in ("min", "max") and type_.base in _WHOLE:
        return replace(aggregate, function=f"{name}long", type=LONG), LONG
    if name in ("min", "max"):
        return replace(aggregate, type=DOUBLE), DOUBLE
    if name == "distinctcount":
        return replace(aggregate, type=SqlType(TypeName.INT)), SqlType(TypeName.INT)
    return aggregate, type_


def _count_of(aggregate: Aggregate) -> Aggregate:
    """How many rows have a value of every argument: without null handling COUNT(x) of one stage counts all rows."""
    known = [Call("is_not_null", (arg,), BOOLEAN) for arg in aggregate.args if _may_be_null(arg)]
    condition = all_of([*conjuncts(aggregate.filter), *known])
    args = aggregate.args if aggregate.function == "count" else ()
    return Aggregate("count", () if known else args, LONG, condition)


def _may_be_null(expr: Expr) -> bool:
    """Whether an expression has NULLs of its own, where columns are their default values."""
    if isinstance(expr, Call):
        function = BY_NAME[expr.function]
        return function.lazy is not None or any(map(_may_be_null, expr.args))
    return isinstance(expr, Literal) and expr.value is None


def _needs_count(aggregate: Aggregate) -> bool:
    """Whether it is NULL of no values, and its state does not tell that without null handling."""
    one = aggregation(aggregate, nulls=False)
    if one.tells_nothing:
        return False
    call = replace(one.call, nulls=True)
    return bool(one.function.finish(call, one.function.identity(call)).to_arrow(1).null_count)


def _is_leaf_aggregate(aggregate: Aggregate) -> bool:
    return not (aggregate.function in ("min", "max") and aggregate.type == BIG_DECIMAL)


def _aggregates(block: Block) -> list[Aggregate]:
    found: dict[Aggregate, None] = {}
    for expr in block.exprs:
        _collect(expr, found)
    return list(found)


def _collect(expr: Expr, found: dict[Aggregate, None]) -> None:
    if isinstance(expr, Aggregate):
        found[expr] = None
    elif isinstance(expr, Call):
        for arg in expr.args:
            _collect(arg, found)


def _is_ordered_by(scan: Scan, block: Block) -> bool:
    """Whether the order of the rows is one of the scan's columns alone: a correlated query has others in sight."""
    return all(source_id(column) == scan.id for key in block.order_by for column in columns_in(key.expr))


def _own(expr: Expr) -> Expr:
    """An expression of a scan's columns as one of the table's."""

    def own(one: Expr) -> Expr | None:
        return Column(one.name.partition(".")[2], one.type) if isinstance(one, Column) else None

    return substituted(expr, own)


def _correlated(statement: Statement) -> frozenset[str]:
    """Scans that queries other than their own SELECT read."""
    found: set[str] = set()
    for query in queries_in(statement):
        if isinstance(query, Block):
            own = {relation.id for relation in relations_in(query.source)}
            exprs = [*query.exprs, *conditions_in(query.source)]
            read = {source_id(column) for expr in exprs for column in columns_in(expr)}
            found |= read - own
    return frozenset(found)


_WHOLE = frozenset({TypeName.INT, TypeName.LONG, TypeName.BOOLEAN, TypeName.TIMESTAMP})
