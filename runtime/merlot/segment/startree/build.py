"""Build the tree over documents level by level; all nodes of a level are split at once.

The root is always split. Below it, a node is split if it has more documents than `maxLeafRecords`. Its children have
one value of the level's dimension each. A star child comes before them and has the documents without that dimension,
aggregated anew; it is left out if there is only one value, or if the table skips star nodes of that dimension. Finally
each node gets the document that aggregates all of its own. A leaf of one document uses that document. A node with a
star child or a single child uses the document of that child.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.star_tree import STAR
from merlot.segment.startree.documents import Documents, Function, SourceColumn
from merlot.spec.star_tree import StarTreeSpec

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BuiltNodes:
    """Nodes by number, level by level from the root; children of node n are [children[n], children[n + 1])."""

    values: Numbers
    """Dict id in the dimension that the parent is split by, or STAR."""
    children: Numbers
    starts: Numbers
    ends: Numbers
    """Documents [start, end)."""
    aggregated: Numbers
    """Number of the document that aggregates all documents of the node."""


@dataclass(frozen=True, slots=True)
class BuiltTree:
    """A tree that is ready to be written."""

    spec: StarTreeSpec
    documents: Documents
    nodes: BuiltNodes


@dataclass(frozen=True, slots=True)
class _TreeLevel:
    values: Numbers
    starts: Numbers
    ends: Numbers
    num_children: Numbers
    """Number of children of each node."""


def build(spec: StarTreeSpec, columns: Mapping[str, SourceColumn], num_rows: int) -> BuiltTree:
    """Build the tree over one or more rows. Raises TooManyDocumentsError, and QueryArithmeticError if a function has no
    state for some value."""
    dimensions = [columns[name].coded for name in spec.dimensions_split_order]
    coded = [column for column in dimensions if column is not None]
    assert len(coded) == len(dimensions), "dimensions have dictionaries"
    sources = [columns[stored.column] if stored.column else None for stored in spec.stored]
    functions = [
        Function.of(stored, None if source is None else source.type)
        for stored, source in zip(spec.stored, sources, strict=True)
    ]
    documents = Documents([column.cardinality for column in coded], functions, spec.max_documents)
    documents.add_rows([column.ids for column in coded], sources, num_rows)
    return grow(spec, documents)


def grow(spec: StarTreeSpec, documents: Documents) -> BuiltTree:
    """Build the tree over documents that have all dimensions. Raises TooManyDocumentsError."""
    levels = _levels(spec, documents)
    return BuiltTree(spec, documents, _nodes(documents, levels))


def _levels(spec: StarTreeSpec, documents: Documents) -> list[_TreeLevel]:
    levels: list[_TreeLevel] = []
    values, starts, ends = np.array([int(STAR)]), np.zeros(1, np.int64), np.array([documents.count])
    while len(values):
        depth = len(levels)
        num_children = np.zeros(len(values), np.int64)
        below = [np.zeros(0, np.int64)] * 3
        if depth < len(spec.dimensions_split_order):
            is_split = (ends - starts > spec.max_leaf_records) | (depth == 0)
            name = spec.dimensions_split_order[depth]
            has_star = name not in spec.skip_star_node_creation_for_dimensions
            parents = np.flatnonzero(is_split)
            if len(parents):
                owners, *below = _split(documents, starts[parents], ends[parents], depth, has_star=has_star)
                num_children[parents] = np.bincount(owners, minlength=len(parents))
        levels.append(_TreeLevel(values, starts, ends, num_children))
        values, starts, ends = below
    return levels


def _split(
    documents: Documents, starts: Numbers, ends: Numbers, depth: int, *, has_star: bool
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return the children of the nodes with these documents, in order: numbers of their parents, values, starts and
    ends."""
    rows, parents = spread(starts, ends)
    ids = documents.ids[depth][rows]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (parents[1:] != parents[:-1]) | (ids[1:] != ids[:-1])
    firsts = np.flatnonzero(is_first)
    lasts = np.append(firsts[1:], len(rows)) - 1
    children = parents[firsts], ids[firsts].astype(np.int64), rows[firsts], rows[lasts] + 1
    is_starred = np.bincount(children[0], minlength=len(starts)) > 1
    if not has_star or not is_starred.any():
        return children
    inside = is_starred[parents]
    base = documents.count
    keeps = range(depth + 1, len(documents.ids))
    owners = documents.fold(rows[inside], parents[inside], len(starts), depth, keeps=keeps)
    starred = np.flatnonzero(is_starred)
    star_starts = base + np.searchsorted(owners, starred)
    star_ends = base + np.searchsorted(owners, starred, side="right")
    stars = starred, np.full(len(starred), int(STAR)), star_starts, star_ends
    joined = [np.concatenate([star, child]) for star, child in zip(stars, children, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return joined[0][order], joined[1][order], joined[2][order], joined[3][order]


def _nodes(documents: Documents, levels: list[_TreeLevel]) -> BuiltNodes:
    values = np.concatenate([level.values for level in levels])
    num_children = np.concatenate([level.num_children for level in levels])
    starts = np.concatenate([level.starts for level in levels])
    ends = np.concatenate([level.ends for level in levels])
    children = np.concatenate([[1], 1 + np.cumsum(num_children)])
    aggregated = np.zeros(len(values), np.int64)
    stop = len(values)
    for depth in range(len(levels) - 1, -1, -1):
        nodes = np.arange(stop - len(levels[depth].values), stop)
        stop = int(nodes[0])
        _aggregate(documents, BuiltNodes(values, children, starts, ends, aggregated), nodes, depth)
    return BuiltNodes(values, children, starts, ends, aggregated)


def _aggregate(documents: Documents, tree: BuiltNodes, nodes: Numbers, depth: int) -> None:
    """Set the aggregated documents of a level's nodes. Nodes of deeper levels have theirs already."""
    first, number = tree.children[nodes], tree.children[nodes + 1] - tree.children[nodes]
    is_leaf = number == 0
    is_single = is_leaf & (tree.ends[nodes] - tree.starts[nodes] == 1)
    tree.aggregated[nodes[is_single]] = tree.starts[nodes[is_single]]
    # For a leaf, `first` is a child of a later node, or out of range.
    of_child = ~is_leaf
    of_child[of_child] = (tree.values[first[of_child]] == int(STAR)) | (number[of_child] == 1)
    tree.aggregated[nodes[of_child]] = tree.aggregated[first[of_child]]
    left = ~is_single & ~of_child
    if not left.any():
        return
    positions = np.flatnonzero(left)
    leaves, inner = positions[is_leaf[positions]], positions[~is_leaf[positions]]
    rows, owners = spread(tree.starts[nodes[leaves]], tree.ends[nodes[leaves]])
    below, parents = spread(first[inner], first[inner] + number[inner])
    rows = np.concatenate([rows, tree.aggregated[below]])
    owners = np.concatenate([leaves[owners], inner[parents]])
    base = documents.count
    folded = documents.fold(rows, owners, len(nodes), depth, keeps=())
    tree.aggregated[nodes[folded]] = base + np.arange(len(folded))


def spread(starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Return every number of the ranges [start, end), one range after another, and the range that each belongs to."""
    lengths = ends - starts
    owners = np.repeat(np.arange(len(starts)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - (before - starts)[owners], owners
