"""Which star-tree of a segment answers a query: of those that fit, the one with the fewest documents to read.

A tree fits if every column that the query filters or groups by is one of its dimensions, it keeps what aggregates are
made of, every doc of the segment is a row, and no null matters. Finding the documents takes microseconds, so they are
found before trees are compared. Where none fits, the segment's rows are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.context import ExecutionContext
from merlot.query.filter.predicates import TreeMatch
from merlot.query.filter.resolve import NOTHING, All, And, Live, Node, Nothing, Resolver
from merlot.query.filter.run import FilterRun
from merlot.query.plan.nodes import Leaf
from merlot.query.read.columns import Columns, SegmentColumns
from merlot.query.star_trees.documents import DictionaryDocs, TreeDocs
from merlot.query.star_trees.question import Question, question
from merlot.query.targets import Source
from merlot.segment.immutable import ImmutableSegment
from merlot.segment.reader import EVERY_DOC
from merlot.segment.startree.tree import Marks, StarTree, Use
from merlot.spec.star_tree import StoredFunction
from merlot.tree.nodes import Expr
from merlot.vectors.errors import QueryArithmeticError

Docs = NDArray[np.uint32]


def instead(leaf: Leaf, sources: Sequence[Source], context: ExecutionContext) -> Sequence[Source]:
    """The sources, with documents of a star-tree in the place of each segment of which one answers the query."""
    if context.indexing is not None and not context.indexing.star_tree_index_configs:
        return sources
    asked = question(leaf)
    if asked is None or _is_answered_by_counts(leaf):
        return sources
    return [_documents_of(asked, leaf, source, context) or source for source in sources]


def _is_answered_by_counts(leaf: Leaf) -> bool:
    """Whether the number of rows is all that is asked for, which every segment knows."""
    return leaf.filter is None and not leaf.work.columns_after_filter and not leaf.work.keys


@dataclass(frozen=True, slots=True)
class _Found:
    tree: StarTree
    docs: Docs


def _documents_of(asked: Question, leaf: Leaf, source: Source, context: ExecutionContext) -> Source | None:
    columns = source.columns
    if not isinstance(columns, SegmentColumns) or not isinstance(columns.segment, ImmutableSegment):
        return None
    segment = columns.segment
    if segment.valid_docs is not EVERY_DOC:
        return None
    fitting = [tree for tree in segment.star_trees if _fits(tree, asked, leaf, columns, context)]
    if not fitting or not _nulls_do_not_matter(asked, leaf, columns):
        return None
    try:
        marks = {name: _matching(columns, name, exprs, leaf, context) for name, exprs in asked.of_columns}
    except QueryArithmeticError:
        # An error of a value may be of none of the rows.
        return None
    found = min((_find(tree, asked, marks) for tree in fitting), key=lambda one: len(one.docs))
    if len(found.docs) > segment.num_docs:
        return None
    return _source(found, asked, leaf, columns)


def _fits(tree: StarTree, asked: Question, leaf: Leaf, columns: SegmentColumns, context: ExecutionContext) -> bool:
    if not asked.columns <= set(tree.dimensions) or not _is_declared(tree, context):
        return False
    for aggregation, stored in zip(leaf.work.aggregations, asked.work.states, strict=True):
        if not tree.functions.issuperset(stored):
            return False
        # A column whose type was widened since may have sums of another kind.
        if any(one.column and tree.type_of(one) is not columns.reader(one.column).type for one in stored):
            return False
        types = [type_ for one in stored for type_ in tree.state_types(one)]
        if types != [field.type for field in aggregation.fields]:
            return False
    return True


def _is_declared(tree: StarTree, context: ExecutionContext) -> bool:
    """Whether the table still asks for the tree: one that was taken out finds nothing any more."""
    return context.indexing is None or any(
        spec.dimensions_split_order == tree.dimensions for spec in context.indexing.star_tree_index_configs
    )


def _nulls_do_not_matter(asked: Question, leaf: Leaf, columns: Columns) -> bool:
    names = asked.columns | asked.work.arguments if leaf.work.null_handling else asked.null_aware
    return all(columns.reader(name).nulls is None for name in names)


def _matching(
    columns: Columns, name: str, exprs: Sequence[Expr], leaf: Leaf, context: ExecutionContext
) -> Marks | None:
    """Which dict ids all predicates of a column take; None if they take every one."""
    values = DictionaryDocs(columns.reader(name))
    resolver = Resolver(values, null_handling=leaf.work.null_handling)
    nodes = [resolver.live(expr) for expr in exprs]
    marks = np.ones(values.num_docs, np.uint8)
    for node in nodes:
        run = FilterRun(values, leaf.work.null_handling, context.cancel)
        matches = np.zeros(values.num_docs, np.uint8)
        for piece in run.select(node, 0, values.num_docs).pieces:
            matches[slice(piece.start, piece.stop) if piece.is_span else piece.docs()] = 1
        marks &= matches
    return None if marks.all() else marks


def _find(tree: StarTree, asked: Question, marks: dict[str, Marks | None]) -> _Found:
    uses = [Use(marks.get(name), name in asked.kept) for name in tree.dimensions]
    if any(use.matching is not None and not use.matching.any() for use in uses):
        return _Found(tree, np.zeros(0, np.uint32))
    return _Found(tree, tree.find(uses))


def _source(found: _Found, asked: Question, leaf: Leaf, columns: SegmentColumns) -> Source:
    tree = found.tree
    states = [partial(_states, tree, stored) for stored in asked.work.states]
    documents = TreeDocs(tree, columns, states)
    if not len(found.docs):
        return Source(documents, live=Live(NOTHING))
    share = len(found.docs) / tree.num_docs
    resolver = Resolver(documents, null_handling=leaf.work.null_handling)
    nodes = [resolver.resolve(expr) for expr in asked.others]
    if any(isinstance(node, Nothing) for node in nodes):
        return Source(documents, live=Live(NOTHING))
    chosen: Node = TreeMatch(found.docs, share, "startree", dimensions=tree.dimensions)
    left = [node for node in nodes if not isinstance(node, All)]
    return Source(documents, live=Live(And((chosen, *left)) if left else chosen))


def _states(tree: StarTree, stored: Sequence[StoredFunction], docs: Docs) -> list[pa.Array]:
    return [column for one in stored for column in tree.states(one, docs)]
