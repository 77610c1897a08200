"""The k smallest keys of a column, and their positions."""

import numpy as np
from numpy.typing import NDArray

from merlot.kernels.jit import kernel


@kernel
def smallest(keys: NDArray[np.int64], heap_keys: NDArray[np.int64], heap_positions: NDArray[np.int64]) -> int:
    """Fill the heaps (k,) with the k smallest keys and their positions, in no order; among equal keys the first win.

    A binary heap has the largest (key, position) at its root: almost every key is refused by one comparison. Returns
    the number of entries, min(k, len(keys))."""
    size = heap_keys.shape[0]
    used = 0
    for position in range(keys.shape[0]):
        key = keys[position]
        if used < size:
            node = used
            used += 1
            while node > 0:
                parent = (node - 1) >> 1
                if heap_keys[parent] > key:
                    break
                heap_keys[node] = heap_keys[parent]
                heap_positions[node] = heap_positions[parent]
                node = parent
        elif key < heap_keys[0]:
            node = 0
            while True:
                child = 2 * node + 1
                if child >= size:
                    break
                if child + 1 < size and (
                    heap_keys[child + 1] > heap_keys[child]
                    or (heap_keys[child + 1] == heap_keys[child] and heap_positions[child + 1] > heap_positions[child])
                ):
                    child += 1
                if heap_keys[child] <= key:
                    break
                heap_keys[node] = heap_keys[child]
                heap_positions[node] = heap_positions[child]
                node = child
        else:
            continue
        heap_keys[node] = key
        heap_positions[node] = position
    return used
