"""Valid docs as of a row a while ago are those that were valid then."""

from __future__ import annotations

import random

import pytest
from tests.unit.upsert.upsert_rows import Row, partition, rules, table, valid_places

from merlot.upsert.expiry import Watermark
from merlot.upsert.partition import PartitionUpserts

NUM_ROWS = 120
State = tuple[dict[int, bool], Watermark]
"""Valid docs, counted through the partition, with whether each deletes its key; and how far the partition had come."""


def drawn(draw: random.Random) -> list[Row]:
    steps = (0, 0, 2, -1, -4, -20)
    return [(draw.randrange(9), row + draw.choice(steps), draw.random() < 0.15) for row in range(NUM_ROWS)]


def one_by_one(rows: list[Row], options: dict[str, object]) -> list[State]:
    """The state of a partition of one segment when it had so many docs."""
    upserts = partition(**options)
    states: list[State] = [({}, upserts.watermark)]
    for row in rows:
        kept = upserts.add(table([row]), 0, len(states) - 1).rows.num_rows
        upserts.publish()
        state = {doc: gone for (_, doc), gone in valid_places(upserts.cut).items()}, upserts.watermark
        states[len(states) if kept else -1 :] = [state]
    return states


@pytest.mark.parametrize("seed", range(12))
def test_valid_docs_at_an_end_that_lies_behind_are_those_of_then(seed: int) -> None:
    """Whatever the batches, with rows that are dropped, deletions and expiry, and tails that have moved."""
    draw = random.Random(seed)
    options: dict[str, object] = {
        "dropOutOfOrderRecord": draw.random() < 0.5,
        "skipLateEvents": draw.random() < 0.5,
        "primaryKeyTtl": draw.choice(("8", "30")),
        "deletedKeysTtl": "5",
    }
    rows = drawn(draw)
    states = one_by_one(rows, options)
    upserts, bases, total, first = partition(**options), [0], 0, 0
    while first < NUM_ROWS:
        stop = min(NUM_ROWS, first + draw.randrange(1, 20))
        total += upserts.add(table(rows[first:stop]), len(bases) - 1, total - bases[-1]).rows.num_rows
        upserts.publish()
        first = stop
        for end in range(bases[-1], total + 1):
            found = upserts.cut_at(len(bases) - 1, end - bases[-1])
            assert found is not None
            valid = {bases[segment] + doc: gone for (segment, doc), gone in valid_places(found[0]).items()}
            assert (valid, found[1]) == states[end]
        if draw.random() < 0.4 and total > bases[-1]:
            end = draw.randrange(bases[-1] + 1, total + 1)
            upserts.move_tail(len(bases) - 1, end - bases[-1], len(bases))
            bases.append(end)
            upserts.committed()
    assert len(bases) > 1


def test_rows_of_long_ago_are_not_remembered() -> None:
    upserts = PartitionUpserts(rules(), remembered_rows=10)
    for doc in range(40):
        upserts.add(table([(doc % 7, doc, False)]), 0, doc)
        upserts.publish()
    assert upserts.cut_at(0, 20) is None
    assert upserts.cut_at(0, 35) is not None
    assert upserts.cut_at(0, 41) is None, "docs that have not come yet"
