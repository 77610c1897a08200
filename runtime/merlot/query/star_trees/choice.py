"""Choice of the star-tree that answers a query: of the trees that fit, the one with the fewest documents to read.

A tree fits if every column that the query filters or groups by is one of its dimensions, it stores the states of the
aggregates, every doc of the segment is a row, and no null matters. Finding the documents takes microseconds, so it is
done before trees are compared. If no tree fits, the segment's rows are read. Segments that were queried together before
answer as one, by a coalesced tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.context import ExecutionContext
from merlot.query.filter.predicates import TreeMatch
from merlot.query.filter.resolve import NOTHING, All, And, Live, Node, Nothing, Resolver
from merlot.query.filter.run import FilterRun
from merlot.query.plan.nodes import Leaf
from merlot.query.read.columns import SegmentColumns
from merlot.query.star_trees.coalesced import TREES, CoalescedDimensions
from merlot.query.star_trees.documents import DictionaryDocs, Dimensions, TreeDocs
from merlot.query.star_trees.requirements import TreeRequirements, requirements
from merlot.query.targets import LeafSource
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import EVERY_DOC
from merlot.segment.startree.tree import DimensionUse, Marks, Tree
from merlot.spec.star_tree import StarTreeChoice, StoredFunction
from merlot.tree.nodes import Expr
from merlot.vectors.errors import QueryArithmeticError

Docs = NDArray[np.uint32]


def replace_with_trees(
    leaf: Leaf, sources: Sequence[LeafSource], context: ExecutionContext, resolver: Callable[..., Resolver] = Resolver
) -> Sequence[LeafSource]:
    """Return the sources, with documents of star-trees in place of the segments whose trees answer the query."""
    if context.indexing is not None and not context.indexing.has_star_trees:
        return sources
    if not any(isinstance(source.columns, SegmentColumns) for source in sources):
        return sources  # coalesced segments have no trees
    # A tree has a derived column as a dimension, or the column it is derived from: try each form of the query.
    forms = {id(form): form for form in (*(source.leaf for source in sources), leaf) if form is not None}
    for form in forms.values():
        sources = _with_trees(form, form is leaf, sources, context, resolver)
    return sources


def _with_trees(
    leaf: Leaf,
    is_whole_query: bool,
    sources: Sequence[LeafSource],
    context: ExecutionContext,
    resolver: Callable[..., Resolver],
) -> Sequence[LeafSource]:
    """Return the sources, with trees that answer this form of the query in place of the sources that have the form.

    is_whole_query: every source has the form, because it is the query itself."""
    tree_needs = requirements(leaf)
    if tree_needs is None or _is_answered_by_counts(leaf):
        return sources
    have_trees = [(is_whole_query or source.leaf is leaf) and _has_trees(source) for source in sources]
    with_trees = list(compress(sources, have_trees))
    if not with_trees:
        return sources
    chooser = _Chooser(tree_needs, leaf, context, resolver)
    coalesced = chooser.coalesced([source.columns for source in with_trees]) if len(with_trees) > 1 else None
    pairs = zip(sources, have_trees, strict=True)
    if coalesced is not None:
        return [coalesced, *(source for source, has_trees in pairs if not has_trees)]
    return [(chooser.of_segment(source.columns) if has_trees else None) or source for source, has_trees in pairs]


def _is_answered_by_counts(leaf: Leaf) -> bool:
    """Return whether the query needs only the number of rows, which every segment knows."""
    return leaf.filter is None and not leaf.work.columns_after_filter and not leaf.work.keys


def _has_trees(source: LeafSource) -> bool:
    """Return whether the source is a sealed segment that has star-trees and whose every doc is a row."""
    columns = source.columns
    if not isinstance(columns, SegmentColumns) or not isinstance(columns.segment, ImmutableSegment):
        return False
    return columns.segment.valid_docs is EVERY_DOC and bool(columns.segment.star_trees)


@dataclass(frozen=True, slots=True)
class _MatchingDocuments:
    tree: Tree
    docs: Docs


@dataclass(frozen=True, slots=True)
class _Chooser:
    """Choice of trees for one query."""

    tree_needs: TreeRequirements
    leaf: Leaf
    context: ExecutionContext
    resolver: Callable[..., Resolver]
    """Class that resolves predicates which have to be evaluated document by document."""

    def of_segment(self, columns: object) -> LeafSource | None:
        """Return the documents that answer for a segment with trees; None if no tree answers."""
        assert isinstance(columns, SegmentColumns)
        assert isinstance(columns.segment, ImmutableSegment)
        fitting = [tree for tree in columns.segment.star_trees if self._fits(tree)]
        if not fitting or self._touches_nulls(lambda name: columns.reader(name).nulls is not None):
            return None
        return self._answer(fitting, columns, columns.segment.num_docs)

    def coalesced(self, columns: Sequence[object]) -> LeafSource | None:
        """Return the documents of a coalesced tree that answer for all of these segments; None if no tree answers."""
        parts = [part for part in columns if isinstance(part, SegmentColumns)]
        group = TREES.group(parts, self.context)
        if group is None or group.trees is None:
            return None
        fitting = [tree for tree in group.trees if self._fits(tree)]
        if not fitting or self._touches_nulls(lambda name: group.has_nulls(name, parts)):
            return None
        num_docs = sum(part.num_docs for part in parts)
        answers = [self._answer([tree], CoalescedDimensions(tree, parts), num_docs) for tree in fitting]
        complete = [source for source in answers if source is not None]
        if len(complete) < len(answers):
            return None
        best = min(complete, key=_num_documents)
        return LeafSource(best.columns, live=best.live, num_coalesced=len(parts), leaf=self.leaf)

    def _fits(self, tree: Tree) -> bool:
        tree_needs, schema = self.tree_needs, self.context.schema
        if not tree_needs.columns <= set(tree.dimensions) or not self._is_declared(tree):
            return False
        for aggregation, stored in zip(self.leaf.work.aggregations, tree_needs.work.states, strict=True):
            if not tree.functions.issuperset(stored):
                return False
            # If the column's type was widened since, its sums may be of another type.
            declared = [schema.field(function.column) for function in stored if function.column]
            stored_types = [tree.type_of(function) for function in stored if function.column]
            if [None if field is None else field.type for field in declared] != stored_types:
                return False
            types = [type_ for function in stored for type_ in tree.state_types(function)]
            if types != [field.type for field in aggregation.fields]:
                return False
        return True

    def _is_declared(self, tree: Tree) -> bool:
        """Return whether the table still declares the tree. A tree that was removed from the table answers no more
        queries."""
        indexing = self.context.indexing
        if indexing is None or (tree.is_automatic and indexing.star_tree is StarTreeChoice.AUTO):
            return True
        return any(spec.dimensions_split_order == tree.dimensions for spec in indexing.star_tree_index_configs)

    def _touches_nulls(self, has_nulls: Callable[[str], bool]) -> bool:
        tree_needs = self.tree_needs
        names: Iterable[str] = tree_needs.null_aware
        if self.leaf.work.null_handling:
            names = tree_needs.columns | tree_needs.work.arguments
        return any(has_nulls(name) for name in names)

    def _answer(self, fitting: Sequence[Tree], columns: Dimensions, num_docs: int) -> LeafSource | None:
        try:
            marks = {name: self._matching(columns, name, exprs) for name, exprs in self.tree_needs.of_columns}
        except QueryArithmeticError:
            # The value that raised may belong to no row.
            return None
        fewest = min((self._find(tree, marks) for tree in fitting), key=lambda candidate: len(candidate.docs))
        return None if len(fewest.docs) > num_docs else self._source(fewest, columns)

    def _matching(self, columns: Dimensions, name: str, exprs: Sequence[Expr]) -> Marks | None:
        """Return a mark for each dict id: 1 if it passes all predicates of a column, else 0. None if all ids pass."""
        values = DictionaryDocs(columns.reader(name))
        resolver = Resolver(values, null_handling=self.leaf.work.null_handling)
        marks: Marks | None = None
        for expr in exprs:
            run = FilterRun(values, self.leaf.work.null_handling, self.context.cancel)
            matches = np.zeros(values.num_docs, np.uint8)
            for piece in run.select(resolver.live(expr), 0, values.num_docs).pieces:
                matches[slice(piece.start, piece.stop) if piece.is_span else piece.docs()] = 1
            marks = matches if marks is None else marks & matches
        return None if marks is None or marks.all() else marks

    def _find(self, tree: Tree, marks: dict[str, Marks | None]) -> _MatchingDocuments:
        needed = self.tree_needs.value_columns
        uses = [DimensionUse(marks.get(name), name in needed) for name in tree.dimensions]
        if any(use.matching is not None and not use.matching.any() for use in uses):
            return _MatchingDocuments(tree, np.zeros(0, np.uint32))
        return _MatchingDocuments(tree, tree.find(uses))

    def _source(self, matches: _MatchingDocuments, columns: Dimensions) -> LeafSource:
        tree, tree_needs = matches.tree, self.tree_needs
        documents = TreeDocs(tree, columns, [partial(_states, tree, stored) for stored in tree_needs.work.states])
        if not len(matches.docs):
            return LeafSource(documents, live=Live(NOTHING), leaf=self.leaf)
        share = len(matches.docs) / tree.num_docs
        resolver = self.resolver(documents, null_handling=self.leaf.work.null_handling, indexing=None)
        nodes = [resolver.resolve(expr) for expr in tree_needs.others]
        if any(isinstance(node, Nothing) for node in nodes):
            return LeafSource(documents, live=Live(NOTHING), leaf=self.leaf)
        chosen: Node = TreeMatch(matches.docs, share, "startree", dimensions=tree.dimensions)
        remaining = [node for node in nodes if not isinstance(node, All)]
        return LeafSource(documents, live=Live(And((chosen, *remaining)) if remaining else chosen), leaf=self.leaf)


def _num_documents(source: LeafSource) -> int:
    assert source.live is not None
    node = source.live.node
    chosen = node.children[0] if isinstance(node, And) else node
    return len(chosen.docs) if isinstance(chosen, TreeMatch) else 0


def _states(tree: Tree, stored: Sequence[StoredFunction], docs: Docs) -> list[pa.Array]:
    return [column for function in stored for column in tree.states(function, docs)]
