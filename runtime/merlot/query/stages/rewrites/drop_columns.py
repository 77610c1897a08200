"""Drop columns of subqueries that nothing reads, and the windows and subqueries that only those columns need. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from merlot.query.stages.replacing import Replacing
from merlot.query.stages.rewrites.walks import position_of
from merlot.query.stages.rewriting import is_grouped, map_derived, map_statement
from merlot.tree.nodes import Column, Expr, Output
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Named,
    Query,
    SetKind,
    SetOperation,
    Slot,
    Statement,
    Subquery,
    SubqueryKind,
    columns_in,
    conditions_in,
    queries_in,
    relations_in,
    slot_exprs,
    source_id,
)

NOTHING: frozenset[int] = frozenset()


def drop_columns(statement: Statement) -> Statement:
    """Rewrite `SELECT a FROM (SELECT a, b, ROW_NUMBER() OVER (…) FROM t LIMIT 9) AS v` without b and without the
    window."""
    return _Dropping(statement).statement()


class _Dropping:
    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._read: dict[str, set[int]] = {}
        """Positions of the columns that are read, by relation; for a query of WITH, by its own id."""
        self._moved: dict[str, Expr] = {}
        self._names = dict(statement.names)
        blocks = [query for query in queries_in(statement) if isinstance(query, Block)]
        for block in blocks:
            self._note(block)
        for relation in (relation for block in blocks for relation in relations_in(block.source)):
            if isinstance(relation, Named):
                self._read.setdefault(relation.common, set()).update(self._read.get(relation.id, NOTHING))

    def _note(self, block: Block) -> None:
        for expr in (*block.exprs, *conditions_in(block.source)):
            for column in columns_in(expr):
                owner = source_id(column)
                position = position_of(column.name, owner) if owner else None
                if position is not None:
                    self._read.setdefault(owner, set()).add(position)

    def statement(self) -> Statement:
        before = self._statement
        commons = dict(before.common)
        for query in queries_in(before):
            for relation in relations_in(query.source) if isinstance(query, Block) else ():
                if isinstance(relation, Named):
                    inner = commons[relation.common]
                    self._move(relation.id, inner, _remaining(inner, self._read[relation.common]))
        common = tuple((id_, self._narrowed(query, self._read.get(id_, NOTHING))) for id_, query in before.common)
        query = self._narrowed(before.query, None)
        if query is before.query and all(a[1] is b[1] for a, b in zip(common, before.common, strict=True)):
            return before
        narrowed = replace(before, query=query, common=common, names=self._names)
        return map_statement(narrowed, Replacing(self._moved)) if self._moved else narrowed

    def _narrowed(self, query: Query, wanted: Set[int] | None) -> Query:
        """Return the query without columns beyond the wanted ones. None: all columns are wanted."""
        remaining = range(len(query.outputs)) if wanted is None else _remaining(query, wanted)
        if len(remaining) < len(query.outputs):
            query = _selected(query, remaining)
        if isinstance(query, SetOperation):
            left, right = self._narrowed(query.left, None), self._narrowed(query.right, None)
            return query if left is query.left and right is query.right else replace(query, left=left, right=right)
        return self._narrowed_inside(query)

    def _narrowed_inside(self, block: Block) -> Block:
        used = _used_slots(block)
        slots = {name: self._slot(slot) for name, slot in block.slots.items() if name in used}
        if len(slots) < len(block.slots) or any(slot is not block.slots[name] for name, slot in slots.items()):
            block = replace(block, slots=slots)
        derived = [relation for relation in relations_in(block.source) if isinstance(relation, DerivedTable)]
        for relation in derived:
            self._move(relation.id, relation.query, _remaining(relation.query, self._read.get(relation.id, NOTHING)))
        if block.source is None:
            return block
        reads = {id(relation.query): relation.id for relation in derived}
        source = map_derived(
            block.source, lambda inner: self._narrowed(inner, self._read.get(reads[id(inner)], NOTHING))
        )
        return block if source is block.source else replace(block, source=source)

    def _slot(self, slot: Slot) -> Slot:
        if not isinstance(slot, Subquery):
            return slot
        query = self._narrowed(slot.query, NOTHING if slot.kind is SubqueryKind.EXISTS else None)
        return slot if query is slot.query else replace(slot, query=query)

    def _move(self, relation: str, query: Query, remaining: Sequence[int]) -> None:
        """Note the new positions and names of the columns of a relation."""
        if len(remaining) == len(query.outputs):
            return
        names = self._statement.names
        for old in range(len(query.outputs)):
            self._names.pop(f"{relation}.c{old}", None)
        for new, old in enumerate(remaining):
            label, type_ = query.outputs[old].label, query.outputs[old].expr.type
            name = names.get(f"{relation}.c{old}")
            if name is None and label[:1] == "n" and label[1:].isdigit():  # a null bit, see `null_bits`
                name = f"{names.get(f'{relation}.c{label[1:]}', label)} IS NULL"
            self._moved[f"{relation}.c{old}"] = Column(f"{relation}.c{new}", type_)
            if name is not None:
                self._names[f"{relation}.c{new}"] = name


def _remaining(query: Query, wanted: Set[int]) -> Sequence[int]:
    """Return the positions of the columns that stay: the wanted ones, and those that the rows depend on; at least
    one."""
    return sorted(wanted | _needed(query) or {0})


def _needed(query: Query) -> frozenset[int]:
    """Return the positions of the columns without which the query would return other rows."""
    everything = frozenset(range(len(query.outputs)))
    if isinstance(query, SetOperation):
        if query.kind is not SetKind.UNION or not query.is_all:
            return everything
        return _needed(query.left) | _needed(query.right) | frozenset(_positions(key.expr for key in query.order_by))
    if query.is_distinct:
        return everything
    if not is_grouped(query) or is_grouped(_selecting(query, [])):
        return NOTHING
    return frozenset({next(position for position in sorted(everything) if is_grouped(_selecting(query, [position])))})


def _selecting(block: Block, positions: Sequence[int]) -> Block:
    return replace(block, outputs=tuple(block.outputs[position] for position in positions))


def _selected(query: Query, positions: Sequence[int]) -> Query:
    if isinstance(query, Block):
        return _selecting(query, positions)
    moved: Mapping[str, Expr] = {
        f"c{old}": Column(f"c{new}", query.outputs[old].expr.type) for new, old in enumerate(positions)
    }
    over = Replacing(moved)
    return replace(
        query,
        left=_selected(query.left, positions),
        right=_selected(query.right, positions),
        outputs=tuple(
            Output(query.outputs[position].label, over(query.outputs[position].expr)) for position in positions
        ),
        order_by=tuple(replace(key, expr=over(key.expr)) for key in query.order_by),
    )


def _positions(exprs: Iterator[Expr]) -> Iterator[int]:
    """Return the positions of a set operation's own columns that expressions read."""
    return (int(column.name[1:]) for expr in exprs for column in columns_in(expr))


def _used_slots(block: Block) -> frozenset[str]:
    """Return the slots that a SELECT reads, if only for another slot."""
    own = [block.where, block.having, block.qualify, *block.group_by]
    own += [output.expr for output in block.outputs] + [key.expr for key in block.order_by]
    pending = [*(expr for expr in own if expr is not None), *conditions_in(block.source)]
    used: set[str] = set()
    while pending:
        for column in columns_in(pending.pop()):
            slot = block.slots.get(column.name)
            if slot is not None and column.name not in used:
                used.add(column.name)
                pending += slot_exprs(slot)
    return frozenset(used)
