"""Steps that every way of grouping shares: accumulators, packed keys, and the columns of the groups at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.accumulators import Accumulator, StateAccumulator
from merlot.query.constant_sums import SumPlusConstant, accumulators
from merlot.query.context import ExecutionContext, check_groups
from merlot.query.operators.grouping.keys import GroupKey
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns
from merlot.vectors import account
from merlot.vectors.groups import Packing

HASH_CHUNK_DOCS = 16_384


def accumulators_of(
    work: LeafWork, columns: Columns, num_groups: int
) -> Sequence[Accumulator | SumPlusConstant | StateAccumulator]:
    stored = columns.stored_states
    if stored is None:
        return accumulators(work, num_groups, columns)
    pairs = zip(work.aggregations, stored, strict=True)
    return [StateAccumulator(aggregation, num_groups, states_of) for aggregation, states_of in pairs]


def pack(keys: Sequence[GroupKey], packing: Packing, chunk: Chunk, out: NDArray[Any]) -> NDArray[Any]:
    """Pack the keys of each row into words (W, N) of out's dtype. `out` is scratch memory with room for them."""
    words = out[: packing.width * chunk.num_rows].reshape(packing.width, chunk.num_rows)
    for key, (word, radix) in zip(keys, packing.places, strict=True):
        key.append(chunk, radix, words[word])
    return words


def finish(
    keys: Sequence[GroupKey],
    packing: Packing,
    packed: NDArray[np.uint64],
    accumulators: Sequence[Accumulator | SumPlusConstant | StateAccumulator],
    groups: NDArray[np.int64],
    context: ExecutionContext,
) -> list[pa.Array]:
    """Return the key columns of packed keys (G, W), then the state columns of their groups."""
    check_groups(context.limits, len(groups))
    values = [key.values(codes) for key, codes in zip(keys, packing.codes(packed), strict=True)]
    account.current().hold("keys of groups", packed.nbytes + sum([column.nbytes for column in values]))
    return values + [state for accumulator in accumulators for state in accumulator.states(groups)]
