"""Ask leaves for distinct rows where it does not matter how often a row occurs: below EXISTS, IN, ANY and ALL, on the
right of semi and anti joins, and below DISTINCT. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from merlot.query.stages.replacing import UnsoundError
from merlot.query.stages.rewrites.scan_groups import TESTED, ScanGroups, largest_first, scans_of
from merlot.query.stages.rewrites.walks import has_windows, is_limited, map_queries
from merlot.query.stages.rewriting import is_grouped, map_block, substituted
from merlot.query.stages.sizes import TableSizes
from merlot.tree.nodes import Literal, Output
from merlot.tree.relations import (
    Block,
    Join,
    Relation,
    Scan,
    Slot,
    Statement,
    Subquery,
    SubqueryKind,
)
from merlot.tree.types import LONG


def distinct_below_joins(statement: Statement, sizes: TableSizes) -> Statement:
    """Rewrite `… WHERE EXISTS (SELECT 1 FROM a WHERE a.j = b.j AND a.v > 1)` so that the leaf of a has its distinct
    j."""
    return _Rewriting(statement, sizes).statement()


class _Rewriting:
    def __init__(self, statement: Statement, sizes: TableSizes) -> None:
        self._statement = statement
        self._sizes = sizes
        self._names: dict[str, str] = {}

    def statement(self) -> Statement:
        made = map_queries(self._statement, lambda query: self._block(query) if isinstance(query, Block) else query)
        return made if made is self._statement else replace(made, names={**made.names, **self._names})

    def _block(self, block: Block) -> Block:
        slots = {name: self._slot(slot) for name, slot in block.slots.items()}
        if any(slot is not block.slots[name] for name, slot in slots.items()):
            block = replace(block, slots=slots)
        scans: dict[Scan, bool] = {}
        if block.is_distinct and _is_bare(block):
            scans |= scans_of(block.source, is_counted=False)
        scans |= dict(_tested(block.source))
        return self._grouped(block, scans)

    def _slot(self, slot: Slot) -> Slot:
        if not isinstance(slot, Subquery) or slot.kind is SubqueryKind.SCALAR:
            return slot
        query = slot.query
        if not isinstance(query, Block) or not _is_bare(query) or is_limited(query):
            return slot
        if slot.kind is SubqueryKind.EXISTS:
            query = replace(query, outputs=(Output("c0", Literal(1, LONG)),), order_by=())
        made = self._grouped(query, scans_of(query.source, is_counted=False))
        return slot if made is query else replace(slot, query=made)

    def _grouped(self, block: Block, scans: Mapping[Scan, bool]) -> Block:
        """Return the SELECT over distinct rows of scans, where that pays."""
        for scan, is_nullable in largest_first(scans, self._sizes):
            try:
                nulls = self._statement.null_handling
                groups = ScanGroups(block, scan, is_nullable=is_nullable, nulls=nulls)
                made = _made(block, groups)
            except UnsoundError:
                continue
            if made is not None and groups.pays(self._sizes):
                self._names.update(groups.names({**self._statement.names, **self._names}))
                block = made
        return block


def _made(block: Block, groups: ScanGroups) -> Block | None:
    """Return the SELECT over the distinct rows of a scan. None if servers return those anyway. Raise UnsoundError."""
    if block.is_distinct and not isinstance(block.source, Join) and not groups.has_rest:
        return None
    made = map_block(replace(block, where=None), lambda expr: substituted(expr, groups.key_of))
    return replace(made, where=groups.where(), source=groups.source())


def _is_bare(block: Block) -> bool:
    """Return whether a SELECT has a row for each joined row that meets its conditions, but for DISTINCT."""
    return not (has_windows(block) or is_grouped(block) or block.qualify is not None)


def _tested(relation: Relation | None) -> Iterator[tuple[Scan, bool]]:
    """Yield the scans on the right of semi and anti joins."""
    if not isinstance(relation, Join):
        return
    if relation.kind in TESTED:
        yield from scans_of(relation.right, is_counted=False).items()
    yield from _tested(relation.left)
    yield from _tested(relation.right)
