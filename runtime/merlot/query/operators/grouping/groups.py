"""Steps that all strategies share: chunks of docs, accumulators, packed keys, and the columns of the groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from merlot.query.accumulators import Accumulator, StateAccumulator
from merlot.query.constant_sums import SumPlusConstant, accumulators
from merlot.query.context import ExecutionContext, check_groups
from merlot.query.filter.docset import CHUNK_DOCS, DocSet
from merlot.query.operators.grouping.choose import WorkFacts
from merlot.query.operators.grouping.keys import GroupKey
from merlot.query.plan.nodes import LeafWork
from merlot.query.read.chunk import Chunk
from merlot.query.read.columns import Columns
from merlot.values.types import TypeName
from merlot.vectors import account
from merlot.vectors.groups import Packing

HASH_CHUNK_DOCS: Final = 16_384
"""Rows that a hash table assigns groups to at once."""


_WIDE: Final = frozenset({TypeName.BIG_DECIMAL, TypeName.BYTES, TypeName.STRING, TypeName.JSON})


def facts_of(work: LeafWork) -> WorkFacts:
    """Return the facts of a GROUP BY."""
    arguments = [argument for aggregation in work.aggregations for argument in aggregation.arguments]
    return WorkFacts(
        num_states=len(work.aggregations),
        is_light=all(aggregation.function.is_light for aggregation in work.aggregations),
        is_narrow=not any(argument.type.base in _WIDE for argument in arguments),
        has_lists=any(key.type.is_array for key in work.keys),
    )


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Docs of one segment, or of coalesced segments, that one thread groups."""

    work: LeafWork
    columns: Columns
    docs: DocSet
    context: ExecutionContext

    def chunks(self, max_docs: int = CHUNK_DOCS) -> Iterator[Chunk]:
        """Yield all docs, at most `max_docs` at a time. Raises the errors of `CancelToken.check`."""
        work = self.work
        for chunk in self.docs.chunks(
            self.columns, null_handling=work.null_handling, max_docs=max_docs, shared=work.shared
        ):
            self.context.cancel.check()
            yield chunk

    def accumulators(self, num_groups: int) -> Sequence[Accumulator | SumPlusConstant | StateAccumulator]:
        """Return an accumulator with room for `num_groups` groups for each aggregate."""
        return accumulators_of(self.work, self.columns, num_groups)


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
