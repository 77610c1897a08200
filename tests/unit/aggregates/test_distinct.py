"""Distinct values by group, against Python's sets: as ids and as values, in one state and merged."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from tests.budget import count

from merlot.aggregates import distinct, pairs
from merlot.aggregates.distinct import DistinctState
from merlot.aggregates.function import State
from merlot.segment.index.dictionary import UnorderedDictionary
from merlot.tree.types import DOUBLE, LONG, STRING, SqlType

VALUES: dict[SqlType, list[object]] = {
    LONG: [0, 1, -1, 2**63 - 1, -(2**63), *range(50)],
    DOUBLE: [0.0, 1.5, float("inf"), -2.25, *map(float, range(50))],
    STRING: ["", "a", "Straße", *map(str, range(50))],
}


@pytest.mark.parametrize("seed", range(count("MERLOT_DISTINCT", quick=30, every=300)))
def test_each_group_has_the_values_that_it_met_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(distinct, "MAX_MARKED", random.choice((0, 100, 1 << 20)))
    monkeypatch.setattr(pairs, "LEAST_PENDING", random.choice((0, 50, 1 << 20)))
    type_ = random.choice(list(VALUES))
    wanted: dict[int, set[object]] = {}
    total = DistinctState(type_, random.choice((1, 12)))
    total.grow(12)
    for _ in range(random.randrange(4)):
        part = _part(random, type_, wanted)
        chosen = np.flatnonzero([random.random() < 0.9 for _ in range(12)])
        for group in set(range(12)) - set(chosen.tolist()):
            chosen = np.sort(np.append(chosen, group)) if wanted.get(group) else chosen
        total.merge(part.columns(chosen), chosen.astype(np.uint32))
    (lists,) = total.columns(np.arange(12))
    lists.validate(full=True)
    for group, values in enumerate(lists.to_pylist()):
        assert len(values) == len(set(values))
        assert set(values) == wanted.get(group, set())


def _part(random: Random, type_: SqlType, wanted: dict[int, set[object]]) -> State:
    """A state over some rows, which are entered into `wanted` too."""
    values = random.sample(VALUES[type_], random.randrange(1, 50))
    array = pa.array(values)
    dictionary = UnorderedDictionary(array if type_ == STRING else array.to_numpy())
    by_ids = random.random() < 0.7
    state = DistinctState(type_, 1, dictionary if by_ids else None)
    for num_groups in sorted(random.choices(range(1, 13), k=random.randrange(1, 5))):
        state.grow(num_groups)
        num_rows = random.choice((1, 20, 300))
        groups = np.array([random.randrange(num_groups) for _ in range(num_rows)], np.uint32)
        ids = np.array([random.randrange(len(values)) for _ in range(num_rows)], random.choice((np.uint8, np.uint32)))
        for group, place in zip(groups.tolist(), ids.tolist(), strict=True):
            wanted.setdefault(group, set()).add(values[place])
        if by_ids:
            state.add_ids(ids, groups)
        else:
            taken = array.take(pa.array(ids))
            state.add([taken if type_ == STRING else taken.to_numpy()], groups, num_rows)
    return state
