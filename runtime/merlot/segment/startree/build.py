"""The tree over documents, made level by level: every node of a level is split at once.

Below the root, which is always split, a node of more documents than `maxLeafRecords` is. Its children have a value of
the level's dimension each; a star child, before them, has the documents without that dimension, aggregated anew, unless
there is one value or the table wants none. At last each node gets the document that aggregates all of its own: a leaf
of one document and a node with a star child or a single child use the one that is there.
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
class Nodes:
    """Nodes by number, level by level from the root; children of node n are [children[n], children[n + 1])."""

    values: Numbers
    """Dict id of the dimension that the parent is split by, or STAR."""
    children: Numbers
    starts: Numbers
    ends: Numbers
    """Documents [start, end)."""
    aggregated: Numbers
    """The document that stands for all of a node's."""


@dataclass(frozen=True, slots=True)
class BuiltTree:
    """A tree to be written."""

    spec: StarTreeSpec
    documents: Documents
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class _Level:
    values: Numbers
    starts: Numbers
    ends: Numbers
    num_children: Numbers
    """Known once the level is split."""


def build(spec: StarTreeSpec, columns: Mapping[str, SourceColumn], num_rows: int) -> BuiltTree:
    """The tree of rows, at least one. Raises TooManyDocumentsError."""
    dimensions = [columns[name].coded for name in spec.dimensions_split_order]
    coded = [one for one in dimensions if one is not None]
    assert len(coded) == len(dimensions), "dimensions have dictionaries"
    sources = [columns[stored.column] if stored.column else None for stored in spec.stored]
    functions = [
        Function.of(stored, None if source is None else source.type)
        for stored, source in zip(spec.stored, sources, strict=True)
    ]
    documents = Documents([one.cardinality for one in coded], functions, spec.max_documents)
    documents.add_rows([one.ids for one in coded], sources, num_rows)
    return grow(spec, documents)


def grow(spec: StarTreeSpec, documents: Documents) -> BuiltTree:
    """The tree over documents of all dimensions. Raises TooManyDocumentsError."""
    levels = _levels(spec, documents)
    return BuiltTree(spec, documents, _nodes(documents, levels))


def _levels(spec: StarTreeSpec, documents: Documents) -> list[_Level]:
    levels: list[_Level] = []
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
        levels.append(_Level(values, starts, ends, num_children))
        values, starts, ends = below
    return levels


def _split(
    documents: Documents, starts: Numbers, ends: Numbers, depth: int, *, has_star: bool
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Children of the nodes with these documents, in order: numbers of their parents, values, starts and ends."""
    rows, parents = spread(starts, ends)
    ids = documents.ids[depth][rows]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (parents[1:] != parents[:-1]) | (ids[1:] != ids[:-1])
    firsts = np.flatnonzero(is_first)
    lasts = np.append(firsts[1:], len(rows)) - 1
    found = parents[firsts], ids[firsts].astype(np.int64), rows[firsts], rows[lasts] + 1
    is_starred = np.bincount(found[0], minlength=len(starts)) > 1
    if not has_star or not is_starred.any():
        return found
    inside = is_starred[parents]
    base = documents.count
    keeps = range(depth + 1, len(documents.ids))
    owners = documents.fold(rows[inside], parents[inside], len(starts), depth, keeps=keeps)
    starred = np.flatnonzero(is_starred)
    star_starts = base + np.searchsorted(owners, starred)
    star_ends = base + np.searchsorted(owners, starred, side="right")
    stars = starred, np.full(len(starred), int(STAR)), star_starts, star_ends
    joined = [np.concatenate([star, child]) for star, child in zip(stars, found, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return joined[0][order], joined[1][order], joined[2][order], joined[3][order]


def _nodes(documents: Documents, levels: list[_Level]) -> Nodes:
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
        _aggregate(documents, Nodes(values, children, starts, ends, aggregated), nodes, depth)
    return Nodes(values, children, starts, ends, aggregated)


def _aggregate(documents: Documents, tree: Nodes, nodes: Numbers, depth: int) -> None:
    """Give the nodes of a level their aggregated documents; those below have theirs."""
    first, number = tree.children[nodes], tree.children[nodes + 1] - tree.children[nodes]
    is_leaf = number == 0
    is_single = is_leaf & (tree.ends[nodes] - tree.starts[nodes] == 1)
    tree.aggregated[nodes[is_single]] = tree.starts[nodes[is_single]]
    # A leaf's first child is the one of whoever comes next; the root's may be none.
    of_child = ~is_leaf
    of_child[of_child] = (tree.values[first[of_child]] == int(STAR)) | (number[of_child] == 1)
    tree.aggregated[nodes[of_child]] = tree.aggregated[first[of_child]]
    left = ~is_single & ~of_child
    if not left.any():
        return
    places = np.flatnonzero(left)
    leaves, inner = places[is_leaf[places]], places[~is_leaf[places]]
    rows, owners = spread(tree.starts[nodes[leaves]], tree.ends[nodes[leaves]])
    below, parents = spread(first[inner], first[inner] + number[inner])
    rows = np.concatenate([rows, tree.aggregated[below]])
    owners = np.concatenate([leaves[owners], inner[parents]])
    base = documents.count
    made = documents.fold(rows, owners, len(nodes), depth, keeps=())
    tree.aggregated[nodes[made]] = base + np.arange(len(made))


def spread(starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Every number of the ranges [start, end), one range after another, and which range each is of."""
    lengths = ends - starts
    owners = np.repeat(np.arange(len(starts)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - (before - starts)[owners], owners
