"""Walk through a star-tree: which of its nodes hold the documents of a query.

Nodes are numbered level by level from the root, 0. Children of node n are [children[n], children[n + 1]), the star
child first, the others by ascending value. All this was checked when the tree was opened.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Nodes = NDArray[np.uint32]

STAR = np.uint32(0xFFFFFFFF)
"""Value of a star child, which aggregates all values of its dimension."""
FREE = 0
"""Use of a dimension by a query: none."""
FILTERED = 1
"""Use of a dimension by a query: a predicate."""
KEPT = 2
"""Use of a dimension by a query: its values are wanted. With a predicate it is KEPT | FILTERED."""


@kernel
def walk(
    values: Nodes,
    children: Nodes,
    uses: NDArray[np.uint8],
    matching: NDArray[np.uint8],
    starts: NDArray[np.int64],
    nodes: Nodes,
    bounds: NDArray[np.int64],
) -> int:
    """Collect the nodes whose documents answer a query, level by level.

    values (N,), children (N + 1,). uses (D,): how the query uses each level's dimension, FREE, FILTERED and KEPT.
    matching: 1 for each dict id that matches the predicate on its level's dimension; those of level d begin at
    starts[d].

    nodes (N,), written: first nodes whose aggregated document is enough, then leaves. bounds (D + 2,), written: leaves
    of depth d are nodes[bounds[d]:bounds[d + 1]], and bounds[0] is the number of nodes before the leaves. Returns the
    number of collected nodes."""
    depth_needed = 0
    for level in range(uses.shape[0]):
        if uses[level] != FREE:
            depth_needed = level + 1
    queue = np.empty(values.shape[0], np.uint32)
    leaves = np.empty(values.shape[0], np.uint32)
    ends = np.zeros(bounds.shape[0], np.int64)
    queue[0] = 0
    head, tail, num_whole, num_leaves, depth = 0, 1, 0, 0, 0
    while head < tail:
        stop = tail
        for place in range(head, stop):
            node = queue[place]
            first, last = np.int64(children[node]), np.int64(children[node + 1])
            if depth >= depth_needed:
                nodes[num_whole] = node
                num_whole += 1
            elif first == last:
                leaves[num_leaves] = node
                num_leaves += 1
            else:
                has_star = values[first] == STAR
                inner = first + 1 if has_star else first
                use = uses[depth]
                if use == FREE:
                    if has_star:
                        queue[tail] = first
                        tail += 1
                    else:
                        for child in range(inner, last):
                            queue[tail] = child
                            tail += 1
                elif use == KEPT:
                    for child in range(inner, last):
                        queue[tail] = child
                        tail += 1
                else:
                    before = tail
                    for child in range(inner, last):
                        if matching[starts[depth] + np.int64(values[child])] != 0:
                            queue[tail] = child
                            tail += 1
                    if has_star and use == FILTERED and tail - before == last - inner:
                        # Every value that occurs here matches: the star child stands for all other children.
                        queue[before] = first
                        tail = before + 1
        head = stop
        depth += 1
        if depth < ends.shape[0]:
            ends[depth] = num_leaves
    for level in range(depth, ends.shape[0]):
        ends[level] = num_leaves
    for place in range(num_leaves):
        nodes[num_whole + place] = leaves[place]
    for level in range(bounds.shape[0]):
        bounds[level] = num_whole + ends[level]
    return num_whole + num_leaves


@kernel
def take_matching(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ids: NDArray[Any],
    matching: NDArray[np.uint8],
    docs: NDArray[np.uint32],
) -> int:
    """Collect the docs of the ranges [start, end) whose id is marked.

    ids (D,): the id of every doc. matching: 1 for each wanted id, else 0. docs, written: as long as all ranges
    together; its first elements are used. Returns their number."""
    number = 0
    for place in range(starts.shape[0]):
        for doc in range(starts[place], ends[place]):
            docs[number] = doc
            if matching[ids[doc]] != 0:
                number += 1
    return number
