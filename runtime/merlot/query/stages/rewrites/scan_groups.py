"""Groups of a scan in place of its rows: a subquery that groups the scan by all that is read of it. Pure.

Rows of a scan that agree in all that conditions and keys read of them meet the same conditions and belong to the same
groups. So servers may send one row for them, with their count and their aggregates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from merlot.query.plan.expressions import has_aggregate
from merlot.query.plan.text import text_of
from merlot.query.stages.conjuncts import all_of, conjuncts, implied, only_source, reachable, reachable_by_condition
from merlot.query.stages.failures import may_fail
from merlot.query.stages.null_bits import NULL_TESTS, null_test
from merlot.query.stages.replacing import UnsoundError, is_strict
from merlot.query.stages.rewrites.walks import exprs_of
from merlot.query.stages.rewriting import map_conditions, map_sources, substituted
from merlot.query.stages.sizes import TableSizes, grouping_pays
from merlot.tree.nodes import TRUE, Call, Column, Expr, Literal, Output
from merlot.tree.relations import (
    Block,
    DerivedTable,
    Join,
    JoinKind,
    Relation,
    Scan,
    Source,
    Subquery,
    columns_in,
    relations_in,
    source_id,
)
from merlot.tree.types import BOOLEAN
from merlot.values.types import TypeName

_KEYS: Final = frozenset({TypeName.INT, TypeName.LONG, TypeName.TIMESTAMP, TypeName.STRING, TypeName.BOOLEAN})
"""Types whose equal values are the same in every respect, unlike zeros of both signs."""
_NEAREST: Final = frozenset({JoinKind.ASOF, JoinKind.LEFT_ASOF})
TESTED: Final = frozenset({JoinKind.SEMI, JoinKind.ANTI})
"""Joins that only test whether the right side has a matching row."""
_LEFT_IS_NULLABLE: Final = frozenset({JoinKind.RIGHT, JoinKind.FULL})
_RIGHT_IS_NULLABLE: Final = frozenset({JoinKind.LEFT, JoinKind.FULL})


def scans_of(relation: Relation | None, *, is_counted: bool, is_nullable: bool = False) -> Mapping[Scan, bool]:
    """Return the scans of a FROM whose equal rows meet equal rows of the other relations, and whether a join may make
    up a row of NULLs for each.

    is_counted: only those for which each of several equal rows makes a joined row of its own."""
    if isinstance(relation, Scan):
        return {relation: is_nullable}
    if not isinstance(relation, Join):
        return {}
    kind = relation.kind
    left = scans_of(relation.left, is_counted=is_counted, is_nullable=is_nullable or kind in _LEFT_IS_NULLABLE)
    if kind in _NEAREST or (is_counted and kind in TESTED):
        return left
    is_nullable = is_nullable or kind in _RIGHT_IS_NULLABLE
    return {**left, **scans_of(relation.right, is_counted=is_counted, is_nullable=is_nullable)}


def largest_first(scans: Mapping[Scan, bool], sizes: TableSizes) -> list[tuple[Scan, bool]]:
    """Return scans by their rows. Once the aggregates of one are merged, they may no longer be those of another."""
    return sorted(scans.items(), key=lambda item: -(sizes.num_rows(item[0].table) or 0))


class ScanGroups:
    """Groups of one scan of a SELECT. Its methods raise UnsoundError where rows cannot be grouped."""

    def __init__(self, block: Block, scan: Scan, *, is_nullable: bool, nulls: bool) -> None:
        """is_nullable: a join may make up a row of NULLs for the scan; nulls: null handling is on."""
        self.scan = scan
        self.is_nullable = is_nullable
        self.id = f"{scan.id}g"
        self._nulls = nulls
        self._keys: dict[Expr, Column] = {}
        self._outputs: list[Expr] = []
        self._where: list[Expr] = []
        self._source = None if block.source is None else self._without_conditions(block.source)
        self._rest = self._take(conjuncts(block.where), reachable(block.source))
        if _is_read_inside(block, scan.id):
            raise UnsoundError

    @property
    def has_rest(self) -> bool:
        """True if the SELECT has conditions that the scan alone does not answer."""
        return bool(self._rest)

    def owns(self, expr: Expr) -> bool:
        """Return whether an expression reads the scan alone."""
        return only_source(expr) == self.scan.id

    def output(self, expr: Expr) -> Column:
        """Return the column of the groups that an expression over the scan's rows becomes."""
        if expr in self._keys:
            return self._keys[expr]
        if expr not in self._outputs:
            self._outputs.append(expr)
        return Column(f"{self.id}.c{self._outputs.index(expr)}", expr.type)

    def over(self, expr: Expr) -> Expr:
        """Return an expression over rows as one over groups: what it reads of the scan becomes keys."""
        return substituted(expr, self.key_of)

    def key_of(self, expr: Expr) -> Expr | None:
        """Return the key that replaces an expression, or NULL test; None if its parts have to be looked at."""
        if isinstance(expr, Column):
            return self._key(expr) if self.owns(expr) else None
        if not isinstance(expr, Call) or not self.owns(expr) or has_aggregate(expr):
            return None
        if expr.function in NULL_TESTS and isinstance(expr.args[0], Column) and not self._nulls:
            return null_test(expr, self._key(replace(expr, function="is_null")))
        is_value = expr.type != BOOLEAN and _may_be_key(expr) and not may_fail(expr)
        if not self._nulls and _has_null(expr):
            return None  # leaves group by default values, not NULL
        return self._key(expr) if is_value and (is_strict(expr) or not self.is_nullable) else None

    def _key(self, expr: Expr) -> Column:
        if not _may_be_key(expr):
            raise UnsoundError
        column = self.output(expr)
        self._keys[expr] = column
        return column

    def pays(self, sizes: TableSizes) -> bool:
        """Return whether servers should send these groups."""
        names = {column.name.partition(".")[2] for key in self._keys for column in columns_in(key)}
        return bool(names) and grouping_pays(sizes, self.scan.table, names, all_of(self._where))

    def source(self) -> Relation:
        """Return the FROM of the SELECT with the groups in place of the scan."""
        assert self._source is not None
        source = map_conditions(self._source, self.over)
        assert source is not None
        grouped = DerivedTable(self.id, self._query())

        def changed(relation: Source) -> Source:
            return grouped if isinstance(relation, Scan) and relation.id == self.scan.id else relation

        return map_sources(source, changed)

    def where(self) -> Expr | None:
        """Return the conditions of WHERE that the groups do not answer themselves."""
        return all_of([self.over(part) for part in self._rest])

    def names(self, names: Mapping[str, str]) -> Mapping[str, str]:
        """Return the names of the groups' columns, given the query's own names."""

        def named(expr: Expr) -> Expr | None:
            return Column(names.get(expr.name, expr.name), expr.type) if isinstance(expr, Column) else None

        columns = {
            f"{self.id}.c{number}": text_of(substituted(expr, named)) for number, expr in enumerate(self._outputs)
        }
        return {self.id: names.get(self.scan.id, self.scan.table), **columns}

    def _query(self) -> Block:
        return Block(
            source=self.scan,
            outputs=tuple(Output(f"c{number}", expr) for number, expr in enumerate(self._outputs)),
            where=all_of(self._where),
            group_by=tuple(self._keys),
        )

    def _without_conditions(self, relation: Relation) -> Relation:
        """Return a FROM without the conditions on the scan alone, which are kept for the scan's own WHERE."""
        if not isinstance(relation, Join):
            return relation
        left, right = self._without_conditions(relation.left), self._without_conditions(relation.right)
        before = conjuncts(relation.condition)
        rest = self._take(before, reachable_by_condition(relation))
        if len(rest) == len(before):
            return replace(relation, left=left, right=right)
        if not rest and relation.kind is JoinKind.INNER:
            return replace(relation, left=left, right=right, kind=JoinKind.CROSS, condition=None)
        return replace(relation, left=left, right=right, condition=all_of(rest) or TRUE)

    def _take(self, parts: list[Expr], scans: frozenset[str]) -> list[Expr]:
        """Keep the conditions that the scan answers. Return the others."""
        if self.scan.id not in scans:
            return parts
        rest = []
        for part in parts:
            if self.owns(part):
                self._where.append(part)
                continue
            rest.append(part)
            weaker = (condition for _, condition in implied(part, frozenset({self.scan.id})))
            self._where += [condition for condition in weaker if not may_fail(condition)]
        return rest


def _has_null(expr: Expr) -> bool:
    """Return whether an expression names NULL, as CASE without ELSE does."""
    if isinstance(expr, Literal):
        return expr.value is None
    return isinstance(expr, Call) and any(map(_has_null, expr.args))


def _may_be_key(expr: Expr) -> bool:
    return expr.type.base in _KEYS and not expr.type.is_array


def _is_read_inside(block: Block, scan: str) -> bool:
    """Return whether subqueries of a SELECT read its scan."""
    inner = [slot.query for slot in block.slots.values() if isinstance(slot, Subquery)]
    inner += [relation.query for relation in relations_in(block.source) if isinstance(relation, DerivedTable)]
    return any(source_id(column) == scan for query in inner for expr in exprs_of(query) for column in columns_in(expr))
