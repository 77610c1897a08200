"""Null bits: columns that tell every IS NULL which stored values are null, where leaves return default values for
nulls.

With null handling off, a leaf's column has no nulls, yet `IS NULL`, and `COALESCE`, which is bound to it, see them. So
each query between such a test and the table of its column returns one more column, its null bit. The test of a table's
own column stays as it is: `leaves` has the leaf compute it.

A group, and a row of DISTINCT or UNION, is null if all its rows are null. Rows of INTERSECT and EXCEPT, and computed
expressions, are values. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from merlot.query.plan.expressions import replace as rewrite_expr
from merlot.query.stages.rewriting import is_grouped, map_block, map_conditions, map_inner, substituted
from merlot.tree.nodes import FALSE, TRUE, Aggregate, Call, Column, Expr, Literal, Output
from merlot.tree.relations import (
    GROUPING,
    Block,
    Derived,
    Named,
    Query,
    Scan,
    SetKind,
    SetOperation,
    Source,
    Statement,
    conditions_in,
    queries_in,
    relations_in,
    source_id,
)
from merlot.tree.types import BOOLEAN, INT

NULL_TESTS = frozenset({"is_null", "is_not_null"})


def with_null_bits(statement: Statement) -> Statement:
    """Return the statement with null tests that know the nulls of tables; unchanged with null handling on."""
    return statement if statement.null_handling else _Tracer(statement).statement()


def null_test(call: Call, bit: Expr) -> Call:
    """Return IS [NOT] NULL in terms of a bit, which itself is NULL in rows that an outer join has made up."""
    is_null = Call("coalesce", (bit, TRUE), BOOLEAN)
    return is_null if call.function == "is_null" else Call("not", (is_null,), BOOLEAN)


def _tests_in(statement: Statement) -> Iterator[Column]:
    """Return the columns that a statement tests for null."""
    columns: list[Column] = []

    def note(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and expr.function in NULL_TESTS and isinstance(expr.args[0], Column):
            columns.append(expr.args[0])
        return None

    for query in queries_in(statement):
        if isinstance(query, Block):
            for expr in (*query.exprs, *conditions_in(query.source)):
                substituted(expr, note)
    return iter(columns)


@dataclass(frozen=True, slots=True)
class _Bit:
    """Null bit of a query's column."""

    place: int
    """Position among the query's columns."""
    is_known: bool
    """True if the query knows the bit. If not, it is there because the other side of a UNION knows it."""
    is_value: bool = False
    """True if the bit is FALSE: the column has bits, but its rows here are values."""


class _Tracer:
    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._common = dict(statement.common)
        self._sources: dict[str, Source] = {}
        self._bits: dict[int, dict[int, _Bit]] = {}
        """Bits by the identity of a query and the position of its column, in the order of their positions."""
        self._sides: set[int] = set()
        """Identities of queries that are a side of a set operation."""
        self._num_made = 0
        for query in queries_in(statement):
            if isinstance(query, SetOperation):
                self._sides |= {id(query.left), id(query.right)}
            else:
                self._sources |= {relation.id: relation for relation in relations_in(query.source)}

    def statement(self) -> Statement:
        for column in _tests_in(self._statement):
            self._ask(column)
        if not self._bits and not any(map(is_grouped, self._blocks())):
            return self._statement
        common = tuple((id_, self._query(query)) for id_, query in self._statement.common)
        return replace(self._statement, query=self._query(self._statement.query), common=common)

    def _blocks(self) -> Iterator[Block]:
        return (query for query in queries_in(self._statement) if isinstance(query, Block))

    def _ask(self, column: Column) -> bool:
        """Have the queries that a column comes through return its bit. Return whether they know it."""
        source = self._sources.get(source_id(column))
        query = self._query_of(source)
        return isinstance(source, Scan) if query is None else self._ask_query(query, _place(column))

    def _query_of(self, source: Source | None) -> Query | None:
        if isinstance(source, Derived):
            return source.query
        return self._common[source.common] if isinstance(source, Named) else None

    def _ask_query(self, query: Query, place: int) -> bool:
        bit = self._bits.get(id(query), {}).get(place)
        if bit is not None:
            return bit.is_known
        if isinstance(query, SetOperation):
            if query.kind is not SetKind.UNION:
                return False
            sides = {side: self._ask_query(side, place) for side in (query.left, query.right)}
            if not any(sides.values()):
                return False
            for side in (side for side, is_known in sides.items() if not is_known):
                self._deny(side, place)
        elif not self._knows(query, self._output(query, place)):
            return False
        self._note(query, place, is_known=True)
        return True

    def _deny(self, query: Query, place: int) -> None:
        if isinstance(query, SetOperation):
            self._note(query, place, is_known=False)
            self._deny(query.left, place)
            self._deny(query.right, place)
            return
        expr = self._output(query, place)
        self._note(query, place, is_known=False, is_value=isinstance(expr, Column) and self._ask(expr))

    def _note(self, query: Query, place: int, *, is_known: bool, is_value: bool = False) -> None:
        bits = self._bits.setdefault(id(query), {})
        bits[place] = _Bit(len(query.outputs) + len(bits), is_known, is_value)

    def _knows(self, block: Block, expr: Expr) -> bool:
        """Return whether a SELECT knows where an output is null: it is a column, or a key of groups or of distinct
        rows."""
        if not isinstance(expr, Column) or (is_grouped(block) and expr not in block.group_by):
            return False
        if block.is_distinct and (is_grouped(block) or block.slots):
            return False
        return self._ask(expr)

    def _query(self, query: Query) -> Query:
        if isinstance(query, SetOperation):
            return self._set_operation(query)
        bits = [Output(f"n{place}", self._bit(query, place)) for place in self._bits.get(id(query), ())]
        block = map_inner(query, self._query)
        block = replace(block, source=map_conditions(block.source, self._by_row))
        if is_grouped(query):
            changed = map_block(block, lambda expr: self._by_group(query, expr))
            where = None if query.where is None else self._by_row(query.where)
            keys = tuple(map(self._by_row, query.group_by))
            return replace(changed, outputs=(*changed.outputs, *bits), where=where, group_by=keys)
        changed = map_block(block, self._by_row)
        if query.is_distinct and bits:
            values = tuple(dict.fromkeys(output.expr for output in changed.outputs))
            bits = [replace(bit, expr=_of_group(bit.expr)) for bit in bits]
            changed = replace(changed, group_by=values, is_distinct=False)
        return replace(changed, outputs=(*changed.outputs, *bits))

    def _output(self, block: Block, place: int) -> Expr:
        """Return a column's expression without the cast to the common type of both sides of a set operation."""
        expr = block.outputs[place].expr
        if id(block) in self._sides and isinstance(expr, Call) and expr.function == "cast":
            return expr.args[0]
        return expr

    def _bit(self, block: Block, place: int) -> Expr:
        if self._bits[id(block)][place].is_value:
            return FALSE
        test = Call("is_null", (self._output(block, place),), BOOLEAN)
        return self._by_group(block, test) if is_grouped(block) else self._by_row(test)

    def _set_operation(self, query: SetOperation) -> Query:
        bits = self._bits.get(id(query), {})
        outputs = [Output(f"n{place}", Column(f"c{bit.place}", BOOLEAN)) for place, bit in bits.items()]
        left, right = self._query(query.left), self._query(query.right)
        every = replace(query, left=left, right=right, outputs=(*query.outputs, *outputs))
        if query.is_all or not any(bit.is_known for bit in bits.values()):
            return every
        return self._distinct(query, replace(every, is_all=True, order_by=(), limit=None, offset=0))

    def _distinct(self, query: SetOperation, every: SetOperation) -> Block:
        """Return a UNION as groups of the rows of UNION ALL."""
        id_ = f"s{self._num_made}"
        self._num_made += 1

        def column(output: Output) -> Column:
            assert isinstance(output.expr, Column)
            return Column(f"{id_}.{output.expr.name}", output.expr.type)

        values, bits = every.outputs[: len(query.outputs)], every.outputs[len(query.outputs) :]
        return Block(
            source=Derived(id_, every),
            outputs=(
                *(Output(output.label, column(output)) for output in values),
                *(Output(output.label, _of_group(column(output))) for output in bits),
            ),
            group_by=tuple(map(column, values)),
            order_by=tuple(replace(key, expr=column(Output("", key.expr))) for key in query.order_by),
            limit=query.limit,
            offset=query.offset,
        )

    def _by_row(self, expr: Expr) -> Expr:
        return substituted(expr, self._tested)

    def _tested(self, expr: Expr) -> Expr | None:
        """Return a null test of a subquery's column in terms of the bit that the subquery returns."""
        if not isinstance(expr, Call) or expr.function not in NULL_TESTS or not isinstance(expr.args[0], Column):
            return None
        column = expr.args[0]
        query = self._query_of(self._sources.get(source_id(column)))
        bit = None if query is None else self._bits.get(id(query), {}).get(_place(column))
        if bit is None or not bit.is_known:
            return None
        return null_test(expr, Column(f"{source_id(column)}.c{bit.place}", BOOLEAN))

    def _by_group(self, block: Block, expr: Expr) -> Expr:
        """Return an expression over groups, in which the null test of a key is that of the group."""

        def substitute(node: Expr) -> Expr | None:
            if isinstance(node, Aggregate) or node in block.group_by:
                return self._by_row(node)
            if not isinstance(node, Call) or node.function not in NULL_TESTS:
                return None
            key = node.args[0]
            if key not in block.group_by or not isinstance(key, Column) or not self._ask(key):
                return self._tested(node)
            is_null: Expr = _of_group(self._by_row(Call("is_null", (key,), BOOLEAN)))
            if block.grouping_sets:
                lacks = Call("greater_than", (Call(GROUPING, (key,), INT), Literal(0, INT)), BOOLEAN)
                is_null = Call("or", (lacks, is_null), BOOLEAN)
            return is_null if node.function == "is_null" else Call("not", (is_null,), BOOLEAN)

        return rewrite_expr(expr, substitute)


def _of_group(bit: Expr) -> Aggregate:
    return Aggregate("booland", (bit,), BOOLEAN)


def _place(column: Column) -> int:
    return int(column.name.partition(".c")[2])
