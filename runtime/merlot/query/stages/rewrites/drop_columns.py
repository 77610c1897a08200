"""Drop the columns of subqueries that nobody reads, and the windows and subqueries that only they need. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from merlot.query.stages.replacing import Replacing
from merlot.query.stages.rewrites.walks import place_of
from merlot.query.stages.rewriting import is_grouped, map_derived, map_statement
from merlot.tree.nodes import Column, Expr, Output
from merlot.tree.relations import (
    Block,
    Derived,
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
    """`SELECT a FROM (SELECT a, b, ROW_NUMBER() OVER (…) FROM t LIMIT 9) AS v` needs no b and no window."""
    return _Dropping(statement).statement()


class _Dropping:
    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._read: dict[str, frozenset[int]] = {}
        """Places that are read, by relation; of a query of WITH by its own id."""
        self._moved: dict[str, Expr] = {}
        self._names = dict(statement.names)
        blocks = [query for query in queries_in(statement) if isinstance(query, Block)]
        for block in blocks:
            self._note(block)
        for one in (one for block in blocks for one in relations_in(block.source)):
            if isinstance(one, Named):
                self._read[one.common] = self._read.get(one.common, NOTHING) | self._read.get(one.id, NOTHING)

    def _note(self, block: Block) -> None:
        for expr in (*block.exprs, *conditions_in(block.source)):
            for column in columns_in(expr):
                owner = source_id(column)
                place = place_of(column.name, owner) if owner else None
                if place is not None:
                    self._read[owner] = self._read.get(owner, NOTHING) | {place}

    def statement(self) -> Statement:
        before = self._statement
        commons = dict(before.common)
        for query in queries_in(before):
            for one in relations_in(query.source) if isinstance(query, Block) else ():
                if isinstance(one, Named):
                    self._move(one.id, commons[one.common], _kept(commons[one.common], self._read[one.common]))
        common = tuple((id_, self._narrowed(query, self._read.get(id_, NOTHING))) for id_, query in before.common)
        query = self._narrowed(before.query, None)
        if query is before.query and all(a[1] is b[1] for a, b in zip(common, before.common, strict=True)):
            return before
        made = replace(before, query=query, common=common, names=self._names)
        return map_statement(made, Replacing(self._moved)) if self._moved else made

    def _narrowed(self, query: Query, wanted: frozenset[int] | None) -> Query:
        """The query without columns beyond those that are wanted; None: all are."""
        kept = range(len(query.outputs)) if wanted is None else _kept(query, wanted)
        if len(kept) < len(query.outputs):
            query = _taken(query, kept)
        if isinstance(query, SetOperation):
            left, right = self._narrowed(query.left, None), self._narrowed(query.right, None)
            return query if left is query.left and right is query.right else replace(query, left=left, right=right)
        return self._narrowed_inside(query)

    def _narrowed_inside(self, block: Block) -> Block:
        used = _used_slots(block)
        slots = {name: self._slot(slot) for name, slot in block.slots.items() if name in used}
        if len(slots) < len(block.slots) or any(slot is not block.slots[name] for name, slot in slots.items()):
            block = replace(block, slots=slots)
        for one in relations_in(block.source):
            if isinstance(one, Derived):
                self._move(one.id, one.query, _kept(one.query, self._read.get(one.id, NOTHING)))
        if block.source is None:
            return block
        reads = {id(one.query): one.id for one in relations_in(block.source) if isinstance(one, Derived)}
        source = map_derived(
            block.source, lambda inner: self._narrowed(inner, self._read.get(reads[id(inner)], NOTHING))
        )
        return block if source is block.source else replace(block, source=source)

    def _slot(self, slot: Slot) -> Slot:
        if not isinstance(slot, Subquery):
            return slot
        query = self._narrowed(slot.query, NOTHING if slot.kind is SubqueryKind.EXISTS else None)
        return slot if query is slot.query else replace(slot, query=query)

    def _move(self, relation: str, query: Query, kept: Sequence[int]) -> None:
        """Note what the columns of a relation are called from now on."""
        if len(kept) == len(query.outputs):
            return
        known = self._statement.names
        for old in range(len(query.outputs)):
            self._names.pop(f"{relation}.c{old}", None)
        for new, old in enumerate(kept):
            label, type_ = query.outputs[old].label, query.outputs[old].expr.type
            name = known.get(f"{relation}.c{old}")
            if name is None and label[:1] == "n" and label[1:].isdigit():  # a null bit, see `null_bits`
                name = f"{known.get(f'{relation}.c{label[1:]}', label)} IS NULL"
            self._moved[f"{relation}.c{old}"] = Column(f"{relation}.c{new}", type_)
            if name is not None:
                self._names[f"{relation}.c{new}"] = name


def _kept(query: Query, wanted: frozenset[int]) -> Sequence[int]:
    """Places of the columns that stay: those that are wanted, and those that the rows depend on; at least one."""
    return sorted(wanted | _needed(query) or {0})


def _needed(query: Query) -> frozenset[int]:
    """Places of the columns without which the rows would be others."""
    everything = frozenset(range(len(query.outputs)))
    if isinstance(query, SetOperation):
        if query.kind is not SetKind.UNION or not query.is_all:
            return everything
        return _needed(query.left) | _needed(query.right) | frozenset(_places(key.expr for key in query.order_by))
    if query.is_distinct:
        return everything
    if not is_grouped(query) or is_grouped(_selecting(query, [])):
        return NOTHING
    return frozenset({next(place for place in sorted(everything) if is_grouped(_selecting(query, [place])))})


def _selecting(block: Block, kept: Sequence[int]) -> Block:
    return replace(block, outputs=tuple(block.outputs[place] for place in kept))


def _taken(query: Query, kept: Sequence[int]) -> Query:
    if isinstance(query, Block):
        return _selecting(query, kept)
    moved: Mapping[str, Expr] = {
        f"c{old}": Column(f"c{new}", query.outputs[old].expr.type) for new, old in enumerate(kept)
    }
    over = Replacing(moved)
    return replace(
        query,
        left=_taken(query.left, kept),
        right=_taken(query.right, kept),
        outputs=tuple(Output(query.outputs[place].label, over(query.outputs[place].expr)) for place in kept),
        order_by=tuple(replace(key, expr=over(key.expr)) for key in query.order_by),
    )


def _places(exprs: Iterator[Expr]) -> Iterator[int]:
    """Places of a set operation's own columns."""
    return (int(column.name[1:]) for expr in exprs for column in columns_in(expr))


def _used_slots(block: Block) -> frozenset[str]:
    """Slots that a SELECT reads, if only for another slot."""
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
