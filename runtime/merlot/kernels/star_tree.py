"""The walk through a star-tree: which of its nodes hold the documents of a query.

Nodes are numbered level by level from the root, 0; children of node n are [children[n], children[n + 1]), the star
child first, the others by ascending value. What is said of nodes here was looked at when the tree was opened.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel

Nodes = NDArray[np.uint32]

STAR = np.uint32(0xFFFFFFFF)
"""The value of a star child: of its dimension nothing is known."""
FREE = 0
"""How a query uses a dimension: not at all,"""
FILTERED = 1
"""by a predicate,"""
KEPT = 2
"""or its values are wanted, with a predicate (3) or without."""


@kernel
def walk(
    values: Nodes,
    children: Nodes,
    uses: NDArray[np.uint8],
    matching: NDArray[np.uint8],
    starts: NDArray[np.int64],
    found: Nodes,
    bounds: NDArray[np.int64],
) -> int:
    """Collect the nodes whose documents answer a query, level by level.

    values (N,), children (N + 1,); uses (D,): FREE, FILTERED and KEPT, by level; matching: 1 for each dict id that a
    predicate of the level's dimension takes, level d's from starts[d] on.
    found (N,), written: first nodes of which the aggregated document is enough, then leaves. bounds (D + 2,), written:
    leaves of depth d are found[bounds[d]:bounds[d + 1]], and bounds[0] is the number of the others. Returns how many
    nodes were found."""
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
                found[num_whole] = node
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
                        # Every value that occurs here matches, as in a range that takes all: one node stands for them.
                        queue[before] = first
                        tail = before + 1
        head = stop
        depth += 1
        if depth < ends.shape[0]:
            ends[depth] = num_leaves
    for level in range(depth, ends.shape[0]):
        ends[level] = num_leaves
    for place in range(num_leaves):
        found[num_whole + place] = leaves[place]
    for level in range(bounds.shape[0]):
        bounds[level] = num_whole + ends[level]
    return num_whole + num_leaves


@kernel
def take_matching(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ids: NDArray[Any],
    matching: NDArray[np.uint8],
    found: NDArray[np.uint32],
) -> int:
    """Collect the docs of the ranges [start, end) whose id is marked.

    ids (D,): of every doc; matching: 1 for each id that is taken, 0 for others. found, written: as many slots as the
    ranges have docs, of which the first ones are used; returns how many."""
    number = 0
    for place in range(starts.shape[0]):
        for doc in range(starts[place], ends[place]):
            found[number] = doc
            if matching[ids[doc]] != 0:
                number += 1
    return number
