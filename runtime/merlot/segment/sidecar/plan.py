"""Plan a sidecar: everything that a table asks for and a segment lacks. Pure: footer and table's spec in, plan out."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from merlot.segment.derived import unit_of_column
from merlot.segment.index.registry import INDEXES, indexes_in
from merlot.segment.metadata import ColumnMetadata, SegmentMetadata, StarTreeMetadata
from merlot.segment.startree.automatic import widest
from merlot.spec.derived import DerivedColumn
from merlot.spec.indexing import INDEX_KINDS, IndexingSpec
from merlot.spec.star_tree import StarTreeChoice, StarTreeSpec, StoredFunction

SIDECAR_VERSION: Final = 1
"""Part of every digest, so that sidecars of another version are built again."""


class PlannedIndex(NamedTuple):
    """One index of one column."""

    column: str
    kind: str
    option: float | None = None
    """Option of the index: the false positive rate of a Bloom filter, None for other kinds."""


@dataclass(frozen=True)
class SidecarPlan:
    """Contents that the sidecar of one segment has to have."""

    recoded: tuple[str, ...] = ()
    """Columns that lack the dictionary that an index or a tree needs. They are stored anew, with all their indexes."""
    indexes: tuple[PlannedIndex, ...] = ()
    star_trees: tuple[StarTreeSpec, ...] = ()
    derived: tuple[str, ...] = ()
    """Names of derived columns."""
    automatic: StarTreeSpec | None = None
    """Widest star-tree from which the automatic one is narrowed; None if the plan asks for no automatic tree."""

    @property
    def is_empty(self) -> bool:
        return not self.indexes and not self.star_trees and not self.derived and not self.automatic

    @cached_property
    def digest(self) -> str:
        """Name of the configuration: equal for equal plans, in every process."""
        content: dict[str, Any] = {
            "version": SIDECAR_VERSION,
            "recoded": self.recoded,
            "indexes": [list(index) for index in self.indexes],
            "star_trees": [tree.model_dump(mode="json") for tree in self.star_trees],
        }
        if self.derived:
            content["derived"] = self.derived
        if self.automatic:
            content["automatic"] = self.automatic.model_dump(mode="json")
        return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are recoded or get an index, sorted."""
        return tuple(sorted({*self.recoded, *(index.column for index in self.indexes)}))

    def kinds_of(self, column: str) -> tuple[str, ...]:
        """Return the kinds of indexes that a column gets."""
        return tuple(index.kind for index in self.indexes if index.column == column)


NOTHING: Final = SidecarPlan()


def plan_of(segment: SegmentMetadata, indexing: IndexingSpec) -> SidecarPlan:
    """Return the plan of everything that the segment lacks.

    A column that the segment does not have gets nothing, because it has one value for all docs. A tree of such a column
    is left out."""
    if not segment.num_docs or not indexing.asks_for_indexes:
        return NOTHING
    columns = segment.columns
    wanted_dictionaries = indexing.tree_dimensions
    stored = {
        column.name: column.format
        for column in segment.derived
        if column.encoding.has_dictionary or column.name not in wanted_dictionaries
    }
    units = {spec.name: _unit(columns, spec) for spec in indexing.derived}
    derived = tuple(name for name, unit in units.items() if unit is not None and stored.get(name) != unit)
    available = {*columns, *stored, *derived}
    trees = tuple(
        tree
        for tree in indexing.star_tree_index_configs
        if available.issuperset(tree.columns) and not any(_has(existing, tree) for existing in segment.star_trees)
    )
    dimensions = frozenset(name for tree in trees for name in tree.dimensions_split_order if name in columns)
    wanted = dict.fromkeys(name for kind in INDEX_KINDS for name in indexing.columns_of(kind) if name in columns)
    recoded = tuple(sorted(name for name in {*wanted, *dimensions} if _is_recoded(columns[name], indexing, dimensions)))
    missing = [index for name in wanted for index in _missing(columns[name], indexing, is_recoded=name in recoded)]
    return SidecarPlan(recoded, tuple(sorted(missing)), trees, derived, _automatic(segment, indexing))


def _automatic(segment: SegmentMetadata, indexing: IndexingSpec) -> StarTreeSpec | None:
    """Return the widest tree over dimensions that have a dictionary in the segment's own file. Return None if the table
    asks for no automatic tree, if the segment's builder has decided already, or if no tree is possible."""
    is_decided = segment.lacks_automatic_tree or any(tree.is_automatic for tree in segment.star_trees)
    if indexing.star_tree is not StarTreeChoice.AUTO or is_decided:
        return None
    return widest([*segment.columns.values(), *segment.derived], segment.num_docs)


def _unit(columns: Mapping[str, ColumnMetadata], derived: DerivedColumn) -> str | None:
    source = columns.get(derived.column)
    return None if source is None else unit_of_column(source)


def _is_recoded(column: ColumnMetadata, indexing: IndexingSpec, dimensions: Collection[str]) -> bool:
    if column.encoding.has_dictionary:
        return False
    needs = (column.type not in INDEX_KINDS[kind].raw_types for kind in indexing.kinds_of(column.name))
    return column.name in dimensions or any(needs)


def _missing(column: ColumnMetadata, indexing: IndexingSpec, *, is_recoded: bool) -> list[PlannedIndex]:
    present = () if is_recoded else tuple(index.name for index in indexes_in(column))
    kinds = [kind for kind in indexing.kinds_of(column.name) if kind not in present and _takes(column, kind)]
    return [PlannedIndex(column.name, kind, _option(indexing, column.name, kind)) for kind in kinds]


def _takes(column: ColumnMetadata, kind: str) -> bool:
    """Return True if the segment's column can have the index. Its type may be narrower than the table's by now."""
    rule = INDEX_KINDS[kind]
    assert kind in INDEXES
    return column.type in rule.types and (rule.takes_lists or not column.multi_value)


def _option(indexing: IndexingSpec, column: str, kind: str) -> float | None:
    return indexing.bloom_fpp_of(column) if kind == "bloom" else None


def _has(stored: StarTreeMetadata, wanted: StarTreeSpec) -> bool:
    functions = {StoredFunction(function.function, function.column) for function in stored.functions}
    return (
        stored.dimensions == wanted.dimensions_split_order
        and frozenset(stored.skipped) == frozenset(wanted.skip_star_node_creation_for_dimensions)
        and stored.max_leaf_records == wanted.max_leaf_records
        and functions.issuperset(wanted.stored)
    )


def named(plan: SidecarPlan) -> Mapping[str, int]:
    """Count the parts of a plan by kind, for logs."""
    counts: dict[str, int] = {}
    for index in plan.indexes:
        counts[index.kind] = counts.get(index.kind, 0) + 1
    counts |= {"derived": len(plan.derived)} if plan.derived else {}
    trees = len(plan.star_trees) + (plan.automatic is not None)
    return {**counts, "star_tree": trees} if trees else counts
