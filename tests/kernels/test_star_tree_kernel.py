"""The walk through a star-tree against a plain recursion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.kernels.jit import read_only
from merlot.kernels.star_tree import FILTERED, FREE, KEPT, STAR, take_matching, walk

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

CARDINALITY = 3
Tree = dict[Any, Any]
"""Children by value, None for a star child; empty for a leaf."""


def trees(depth: int) -> st.SearchStrategy[Tree]:
    if depth == 0:
        return st.just({})
    below = trees(depth - 1)
    values = st.dictionaries(st.integers(0, CARDINALITY - 1), below, max_size=CARDINALITY)
    return st.tuples(values, st.none() | below).map(
        lambda pair: pair[0] if pair[1] is None or not pair[0] else {None: pair[1], **pair[0]}
    )


def arrays(tree: Tree) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[Tree]]:
    """Values, children and the nodes themselves, level by level."""
    nodes, values, children = [tree], [int(STAR)], []
    for place in range(10_000):
        if place == len(nodes):
            break
        children.append(len(nodes))
        node = nodes[place]
        for value in sorted(node, key=lambda one: -1 if one is None else one):
            nodes.append(node[value])
            values.append(int(STAR) if value is None else value)
    return np.array(values, np.uint32), np.array([*children, len(nodes)], np.uint32), nodes


def collected(tree: Tree, uses: list[int], matching: list[list[int]], depth: int = 0) -> list[tuple[int, int]]:
    """Identities of nodes, and of leaves that documents are looked at in with their depth, else -1."""
    if not any(uses[depth:]):
        return [(id(tree), -1)]
    if not tree:
        return [(id(tree), depth)]
    plain = {value: child for value, child in tree.items() if value is not None}
    use = uses[depth]
    chosen = [child for value, child in plain.items() if not use & FILTERED or matching[depth][value]]
    may_take_star = not use & KEPT and len(chosen) == len(plain)
    if None in tree and may_take_star:
        chosen = [tree[None]]
    return [found for child in chosen for found in collected(child, uses, matching, depth + 1)]


@given(
    trees(3),
    st.lists(st.sampled_from([FREE, FILTERED, KEPT, FILTERED | KEPT]), min_size=3, max_size=3),
    st.lists(st.lists(st.integers(0, 1), min_size=CARDINALITY, max_size=CARDINALITY), min_size=3, max_size=3),
)
def test_the_walk_takes_what_a_recursion_takes(tree: Tree, uses: list[int], matching: list[list[int]]) -> None:
    values, children, nodes = arrays(tree)
    found, bounds = np.zeros(len(values), np.uint32), np.zeros(5, np.int64)
    starts = np.arange(3, dtype=np.int64) * CARDINALITY
    table = np.array(matching, np.uint8).reshape(-1)
    number = walk(values, children, np.array(uses, np.uint8), table, starts, found, bounds)
    assert number == bounds[-1]
    got = [(id(nodes[node]), -1) for node in found[: bounds[0]]]
    for depth in range(4):
        got += [(id(nodes[node]), depth) for node in found[bounds[depth] : bounds[depth + 1]]]
    assert sorted(got) == sorted(collected(tree, uses, matching))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@given(
    marks=st.lists(st.integers(0, 1), min_size=1, max_size=5),
    lengths=st.lists(st.integers(0, 4), max_size=8),
    seed=st.integers(0, 99),
)
def test_docs_of_ranges_are_those_whose_ids_are_marked(
    dtype: type, marks: list[int], lengths: list[int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    num_docs = sum(lengths) + 3
    ids = read_only(random.integers(0, len(marks), num_docs).astype(dtype))
    matching = np.array(marks, np.uint8)
    ends = np.cumsum(lengths, dtype=np.int64) + 2
    starts = ends - np.array(lengths, np.int64)
    order = random.permutation(len(lengths))
    starts, ends = starts[order], ends[order]
    found = np.empty(sum(lengths), np.uint32)
    number = take_matching(starts, ends, ids, matching, found)
    expected = [doc for start, end in zip(starts, ends, strict=True) for doc in range(start, end) if marks[ids[doc]]]
    assert found[:number].tolist() == expected
