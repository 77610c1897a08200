"""Null bits: columns that say, for IS NULL, which stored values are null, where leaves return default values for nulls.

With null handling off, a leaf's column has no nulls, yet `IS NULL` sees them, and so does `COALESCE`, which becomes
such tests. So each query between such a test and the table of its column returns one more column, its null bit. The
test of a table's own column stays as it is: `leaves` has the leaf compute it.

A group's key, and a value in a row of DISTINCT or UNION, is null if it is null in all rows that it stands for. In
columns of INTERSECT and EXCEPT, and in computed expressions, a default value counts as a value. Pure.
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
    DerivedTable,
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
    source_position,
)
from merlot.tree.types import BOOLEAN, INT

NULL_TESTS = frozenset({"is_null", "is_not_null"})


def with_null_bits(statement: Statement) -> Statement:
    """Return the statement with null tests that know the nulls of tables; unchanged with null handling on."""
    return statement if statement.null_handling else _NullBitRewriter(statement).statement()


def null_test(call: Call, bit: Expr) -> Call:
    """Return IS [NOT] NULL in terms of a bit, which itself is NULL in rows that an outer join has added."""
    is_null = Call("coalesce", (bit, TRUE), BOOLEAN)
    return is_null if call.function == "is_null" else Call("not", (is_null,), BOOLEAN)


def _tested_columns(statement: Statement) -> Iterator[Column]:
    """Return the columns that a statement tests for null."""
    columns: list[Column] = []

    def collect(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and expr.function in NULL_TESTS and isinstance(expr.args[0], Column):
            columns.append(expr.args[0])
        return None

    for query in queries_in(statement):
        if isinstance(query, Block):
            for expr in (*query.exprs, *conditions_in(query.source)):
                substituted(expr, collect)
    return iter(columns)


@dataclass(frozen=True, slots=True)
class _Bit:
    """Null bit of a query's column."""

    position: int
    """Position among the query's columns."""
    is_known: bool
    """True if the query knows where the column is null. If not, the bit is there because the other side of a UNION
    knows it."""
    is_value: bool = False
    """True if the bit is the constant FALSE: here the column's default values count as values, not as nulls."""


class _NullBitRewriter:
    """Rewriter of one statement. It first finds the bits that null tests need, then adds them to the queries."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._common = dict(statement.common)
        self._sources: dict[str, Source] = {}
        self._bits: dict[int, dict[int, _Bit]] = {}
        """Bits by the identity of a query and the position of its column, in the order of their positions."""
        self._unknown: set[tuple[int, int]] = set()
        """Identities of queries, and positions of their columns, whose nulls are not known."""
        self._sides: set[int] = set()
        """Identities of queries that are a side of a set operation."""
        self._num_derived = 0
        for query in queries_in(statement):
            if isinstance(query, SetOperation):
                self._sides |= {id(query.left), id(query.right)}
            else:
                self._sources |= {relation.id: relation for relation in relations_in(query.source)}

    def statement(self) -> Statement:
        for column in _tested_columns(self._statement):
            self._request_bit(column)
        if not self._bits and not any(map(is_grouped, self._blocks())):
            return self._statement
        common = tuple((id_, self._rewritten(query)) for id_, query in self._statement.common)
        return replace(self._statement, query=self._rewritten(self._statement.query), common=common)

    def _blocks(self) -> Iterator[Block]:
        return (query for query in queries_in(self._statement) if isinstance(query, Block))

    def _request_bit(self, column: Column) -> bool:
        """Have the queries that a column comes through return its bit. Return True if they know it."""
        source = self._sources.get(source_id(column))
        query = self._query_of(source)
        return isinstance(source, Scan) if query is None else self._request_query_bit(query, source_position(column))

    def _query_of(self, source: Source | None) -> Query | None:
        if isinstance(source, DerivedTable):
            return source.query
        return self._common[source.common] if isinstance(source, Named) else None

    def _request_query_bit(self, query: Query, position: int) -> bool:
        bit = self._bits.get(id(query), {}).get(position)
        if bit is not None:
            return bit.is_known
        if (id(query), position) in self._unknown:
            return False
        if not self._is_known_of(query, position):
            self._unknown.add((id(query), position))
            return False
        self._add_bit(query, position, is_known=True)
        return True

    def _is_known_of(self, query: Query, position: int) -> bool:
        """Return True if a query knows where a column is null. The sides of a UNION then return bits, both of them."""
        if not isinstance(query, SetOperation):
            return self._is_known(query, self._output(query, position))
        if query.kind is not SetKind.UNION:
            return False
        sides = [(side, self._request_query_bit(side, position)) for side in (query.left, query.right)]
        if not any(is_known for _, is_known in sides):
            return False
        for side in (side for side, is_known in sides if not is_known):
            self._add_unknown_bit(side, position)
        return True

    def _add_unknown_bit(self, query: Query, position: int) -> None:
        """Have a query return a bit that it does not know, since the other side of its UNION returns one."""
        if isinstance(query, SetOperation):
            self._add_bit(query, position, is_known=False)
            self._add_unknown_bit(query.left, position)
            self._add_unknown_bit(query.right, position)
            return
        expr = self._output(query, position)
        self._add_bit(query, position, is_known=False, is_value=isinstance(expr, Column) and self._request_bit(expr))

    def _add_bit(self, query: Query, position: int, *, is_known: bool, is_value: bool = False) -> None:
        bits = self._bits.setdefault(id(query), {})
        bits[position] = _Bit(len(query.outputs) + len(bits), is_known, is_value)

    def _is_known(self, block: Block, expr: Expr) -> bool:
        """Return True if a SELECT knows where an output is null. The output has to be a column; of groups or distinct
        rows it has to be a key."""
        if not isinstance(expr, Column) or (is_grouped(block) and expr not in block.group_by):
            return False
        if block.is_distinct and (is_grouped(block) or block.slots):
            return False
        return self._request_bit(expr)

    def _rewritten(self, query: Query) -> Query:
        if isinstance(query, SetOperation):
            return self._set_operation(query)
        bits = [Output(f"n{position}", self._bit(query, position)) for position in self._bits.get(id(query), ())]
        block = map_inner(query, self._rewritten)
        block = replace(block, source=map_conditions(block.source, self._by_row))
        if is_grouped(query):
            changed = map_block(block, lambda expr: self._by_group(query, expr))
            where = None if query.where is None else self._by_row(query.where)
            keys = tuple(map(self._by_row, query.group_by))
            return replace(changed, outputs=(*changed.outputs, *bits), where=where, group_by=keys)
        changed = map_block(block, self._by_row)
        if query.is_distinct and bits:
            values = tuple(dict.fromkeys(output.expr for output in changed.outputs))
            bits = [replace(bit, expr=_is_null_in_all_rows(bit.expr)) for bit in bits]
            changed = replace(changed, group_by=values, is_distinct=False)
        return replace(changed, outputs=(*changed.outputs, *bits))

    def _output(self, block: Block, position: int) -> Expr:
        """Return the expression of an output, without the cast to the common type of both sides of a set operation."""
        expr = block.outputs[position].expr
        if id(block) in self._sides and isinstance(expr, Call) and expr.function == "cast":
            return expr.args[0]
        return expr

    def _bit(self, block: Block, position: int) -> Expr:
        """Return the expression of an output's bit."""
        if self._bits[id(block)][position].is_value:
            return FALSE
        test = Call("is_null", (self._output(block, position),), BOOLEAN)
        return self._by_group(block, test) if is_grouped(block) else self._by_row(test)

    def _set_operation(self, query: SetOperation) -> Query:
        bits = self._bits.get(id(query), {})
        outputs = [Output(f"n{position}", Column(f"c{bit.position}", BOOLEAN)) for position, bit in bits.items()]
        left, right = self._rewritten(query.left), self._rewritten(query.right)
        with_bits = replace(query, left=left, right=right, outputs=(*query.outputs, *outputs))
        if query.is_all or not any(bit.is_known for bit in bits.values()):
            return with_bits
        return self._distinct(query, replace(with_bits, is_all=True, order_by=(), limit=None, offset=0))

    def _distinct(self, query: SetOperation, union_all: SetOperation) -> Block:
        """Return a UNION as groups of the rows of UNION ALL. A group's bit is true if those of all its rows are."""
        id_ = f"s{self._num_derived}"
        self._num_derived += 1

        def column(output: Output) -> Column:
            assert isinstance(output.expr, Column)
            return Column(f"{id_}.{output.expr.name}", output.expr.type)

        values, bits = union_all.outputs[: len(query.outputs)], union_all.outputs[len(query.outputs) :]
        return Block(
            source=DerivedTable(id_, union_all),
            outputs=(
                *(Output(output.label, column(output)) for output in values),
                *(Output(output.label, _is_null_in_all_rows(column(output))) for output in bits),
            ),
            group_by=tuple(map(column, values)),
            order_by=tuple(replace(key, expr=column(Output("", key.expr))) for key in query.order_by),
            limit=query.limit,
            offset=query.offset,
        )

    def _by_row(self, expr: Expr) -> Expr:
        """Return an expression over rows, in which null tests of subqueries' columns read their bits."""
        return substituted(expr, self._test_by_bit)

    def _test_by_bit(self, expr: Expr) -> Expr | None:
        """Return a null test of a subquery's column in terms of the bit that the subquery returns; else None."""
        if not isinstance(expr, Call) or expr.function not in NULL_TESTS or not isinstance(expr.args[0], Column):
            return None
        column = expr.args[0]
        query = self._query_of(self._sources.get(source_id(column)))
        bit = None if query is None else self._bits.get(id(query), {}).get(source_position(column))
        if bit is None or not bit.is_known:
            return None
        return null_test(expr, Column(f"{source_id(column)}.c{bit.position}", BOOLEAN))

    def _by_group(self, block: Block, expr: Expr) -> Expr:
        """Return an expression over groups, in which a key is null if it is null in all rows of the group, or is left
        out of the group's set of keys."""

        def substitute(node: Expr) -> Expr | None:
            if isinstance(node, Aggregate) or node in block.group_by:
                return self._by_row(node)
            if not isinstance(node, Call) or node.function not in NULL_TESTS:
                return None
            key = node.args[0]
            if key not in block.group_by or not isinstance(key, Column) or not self._request_bit(key):
                return self._test_by_bit(node)
            is_null: Expr = _is_null_in_all_rows(self._by_row(Call("is_null", (key,), BOOLEAN)))
            if block.grouping_sets:
                is_left_out = Call("greater_than", (Call(GROUPING, (key,), INT), Literal(0, INT)), BOOLEAN)
                is_null = Call("or", (is_left_out, is_null), BOOLEAN)
            return is_null if node.function == "is_null" else Call("not", (is_null,), BOOLEAN)

        return rewrite_expr(expr, substitute)


def _is_null_in_all_rows(bit: Expr) -> Aggregate:
    return Aggregate("booland", (bit,), BOOLEAN)
