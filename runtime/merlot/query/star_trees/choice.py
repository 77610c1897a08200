"""Which star-tree of a segment answers a query: of those that fit, the one with the fewest documents to read.

A tree fits if every column that the query filters or groups by is one of its dimensions, it keeps what aggregates are
made of, every doc of the segment is a row, and no null matters. Finding the documents takes microseconds, so they are
found before trees are compared. Where none fits, the segment's rows are read. Segments that were asked for together
before answer as one, by a joined tree.
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
from merlot.query.star_trees.documents import DictionaryDocs, Dimensions, TreeDocs
from merlot.query.star_trees.joined import TREES, JoinedColumns
from merlot.query.star_trees.question import Question, question
from merlot.query.targets import Source
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import EVERY_DOC
from merlot.segment.startree.tree import Marks, Tree, Use
from merlot.spec.star_tree import StarTreeChoice, StoredFunction
from merlot.tree.nodes import Expr
from merlot.vectors.errors import QueryArithmeticError

Docs = NDArray[np.uint32]


def instead(
    leaf: Leaf, sources: Sequence[Source], context: ExecutionContext, resolver: Callable[..., Resolver] = Resolver
) -> Sequence[Source]:
    """The sources, with documents of star-trees in the place of segments of which trees answer the query."""
    if context.indexing is not None and not context.indexing.has_star_trees:
        return sources
    if not any(isinstance(source.columns, SegmentColumns) for source in sources):
        return sources  # joined segments have no trees
    # Trees know a derived column as a dimension, others its column: each form of the query is asked for.
    forms = {id(form): form for form in (*(source.leaf for source in sources), leaf) if form is not None}
    for form in forms.values():
        sources = _instead(form, form is leaf, sources, context, resolver)
    return sources


def _instead(
    leaf: Leaf, is_every: bool, sources: Sequence[Source], context: ExecutionContext, resolver: Callable[..., Resolver]
) -> Sequence[Source]:
    """By the trees that answer one form of the query, in the place of the sources that have it."""
    asked = question(leaf)
    if asked is None or _is_answered_by_counts(leaf):
        return sources
    have_trees = [(is_every or source.leaf is leaf) and _has_trees(source) for source in sources]
    with_trees = list(compress(sources, have_trees))
    if not with_trees:
        return sources
    chooser = _Chooser(asked, leaf, context, resolver)
    joined = chooser.joined([source.columns for source in with_trees]) if len(with_trees) > 1 else None
    pairs = zip(sources, have_trees, strict=True)
    if joined is not None:
        return [joined, *(source for source, has_trees in pairs if not has_trees)]
    return [(chooser.of_segment(source.columns) if has_trees else None) or source for source, has_trees in pairs]


def _is_answered_by_counts(leaf: Leaf) -> bool:
    """Whether the number of rows is all that is asked for, which every segment knows."""
    return leaf.filter is None and not leaf.work.columns_after_filter and not leaf.work.keys


def _has_trees(source: Source) -> bool:
    """Whether it is a sealed segment with star-trees of which every doc is a row."""
    columns = source.columns
    if not isinstance(columns, SegmentColumns) or not isinstance(columns.segment, ImmutableSegment):
        return False
    return columns.segment.valid_docs is EVERY_DOC and bool(columns.segment.star_trees)


@dataclass(frozen=True, slots=True)
class _Found:
    tree: Tree
    docs: Docs


@dataclass(frozen=True, slots=True)
class _Chooser:
    """One query's choice."""

    asked: Question
    leaf: Leaf
    context: ExecutionContext
    resolver: Callable[..., Resolver]
    """Of predicates that are looked at document by document."""

    def of_segment(self, columns: object) -> Source | None:
        """The documents that answer for a segment with trees; None if none does."""
        assert isinstance(columns, SegmentColumns)
        assert isinstance(columns.segment, ImmutableSegment)
        fitting = [tree for tree in columns.segment.star_trees if self._fits(tree)]
        if not fitting or self._touches_nulls(lambda name: columns.reader(name).nulls is not None):
            return None
        return self._answer(fitting, columns, columns.segment.num_docs)

    def joined(self, columns: Sequence[object]) -> Source | None:
        """The documents of a joined tree that answer for all of these segments; None if none does."""
        parts = [one for one in columns if isinstance(one, SegmentColumns)]
        group = TREES.group(parts, self.context)
        if group is None or group.trees is None:
            return None
        fitting = [tree for tree in group.trees if self._fits(tree)]
        if not fitting or self._touches_nulls(lambda name: group.has_nulls(name, parts)):
            return None
        num_docs = sum(part.num_docs for part in parts)
        answers = [self._answer([tree], JoinedColumns(tree, parts), num_docs) for tree in fitting]
        known = [one for one in answers if one is not None]
        if len(known) < len(answers):
            return None
        best = min(known, key=_num_documents)
        return Source(best.columns, live=best.live, num_joined=len(parts), leaf=self.leaf)

    def _fits(self, tree: Tree) -> bool:
        asked, schema = self.asked, self.context.schema
        if not asked.columns <= set(tree.dimensions) or not self._is_declared(tree):
            return False
        for aggregation, stored in zip(self.leaf.work.aggregations, asked.work.states, strict=True):
            if not tree.functions.issuperset(stored):
                return False
            # A column whose type was widened since may have sums of another kind.
            declared = [schema.field(one.column) for one in stored if one.column]
            kept = [tree.type_of(one) for one in stored if one.column]
            if [None if field is None else field.type for field in declared] != kept:
                return False
            types = [type_ for one in stored for type_ in tree.state_types(one)]
            if types != [field.type for field in aggregation.fields]:
                return False
        return True

    def _is_declared(self, tree: Tree) -> bool:
        """Whether the table still asks for the tree: one that was taken out finds nothing any more."""
        indexing = self.context.indexing
        if indexing is None or (tree.is_automatic and indexing.star_tree is StarTreeChoice.AUTO):
            return True
        return any(spec.dimensions_split_order == tree.dimensions for spec in indexing.star_tree_index_configs)

    def _touches_nulls(self, has_nulls: Callable[[str], bool]) -> bool:
        asked = self.asked
        names: Iterable[str] = asked.null_aware
        if self.leaf.work.null_handling:
            names = asked.columns | asked.work.arguments
        return any(has_nulls(name) for name in names)

    def _answer(self, fitting: Sequence[Tree], columns: Dimensions, num_docs: int) -> Source | None:
        try:
            marks = {name: self._matching(columns, name, exprs) for name, exprs in self.asked.of_columns}
        except QueryArithmeticError:
            # An error of a value may be of none of the rows.
            return None
        found = min((self._find(tree, marks) for tree in fitting), key=lambda one: len(one.docs))
        return None if len(found.docs) > num_docs else self._source(found, columns)

    def _matching(self, columns: Dimensions, name: str, exprs: Sequence[Expr]) -> Marks | None:
        """Which dict ids all predicates of a column take; None if they take every one."""
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

    def _find(self, tree: Tree, marks: dict[str, Marks | None]) -> _Found:
        kept = self.asked.kept
        uses = [Use(marks.get(name), name in kept) for name in tree.dimensions]
        if any(use.matching is not None and not use.matching.any() for use in uses):
            return _Found(tree, np.zeros(0, np.uint32))
        return _Found(tree, tree.find(uses))

    def _source(self, found: _Found, columns: Dimensions) -> Source:
        tree, asked = found.tree, self.asked
        documents = TreeDocs(tree, columns, [partial(_states, tree, stored) for stored in asked.work.states])
        if not len(found.docs):
            return Source(documents, live=Live(NOTHING), leaf=self.leaf)
        share = len(found.docs) / tree.num_docs
        resolver = self.resolver(documents, null_handling=self.leaf.work.null_handling, indexing=None)
        nodes = [resolver.resolve(expr) for expr in asked.others]
        if any(isinstance(node, Nothing) for node in nodes):
            return Source(documents, live=Live(NOTHING), leaf=self.leaf)
        chosen: Node = TreeMatch(found.docs, share, "startree", dimensions=tree.dimensions)
        left = [node for node in nodes if not isinstance(node, All)]
        return Source(documents, live=Live(And((chosen, *left)) if left else chosen), leaf=self.leaf)


def _num_documents(source: Source) -> int:
    assert source.live is not None
    node = source.live.node
    chosen = node.children[0] if isinstance(node, And) else node
    return len(chosen.docs) if isinstance(chosen, TreeMatch) else 0


def _states(tree: Tree, stored: Sequence[StoredFunction], docs: Docs) -> list[pa.Array]:
    return [column for one in stored for column in tree.states(one, docs)]
