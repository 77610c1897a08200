"""FULL upserts of one partition: the time-to-live tables of the design document, and what one batch may hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.upsert.upsert_rows import Row, commit, ingest, partition, rules, table, valid_places

from merlot.errors import InvalidInputError
from merlot.upsert.partition import PartitionUpserts

PK1, PK2, PK3, PK4, PK5 = range(1, 6)
SEGMENTS: list[list[Row]] = [
    [(PK1, 0, False), (PK2, 0, False), (PK3, 0, False)],
    [(PK2, 10, False), (PK4, 10, False)],
    [(PK5, 30, False)],
    [(PK4, 40, False)],
]
"""What arrives at T0, T1, T2 and T3, a segment each."""
LOCATIONS = [
    {PK1: [0], PK2: [0], PK3: [0]},
    {PK1: [0], PK2: [1], PK3: [0], PK4: [1]},
    {PK1: [0], PK2: [1], PK3: [0], PK4: [1], PK5: [2]},
    {PK1: [0], PK2: [1], PK3: [0], PK4: [1, 3], PK5: [2]},
]
"""The segments in which each key is valid after T0, T1, T2 and T3, if pk4's first row expires between T2 and T3."""


def locations(upserts: PartitionUpserts) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for segment, doc in sorted(valid_places(upserts.cut)):
        found.setdefault(SEGMENTS[segment][doc][0], []).append(segment)
    return found


@pytest.mark.parametrize("pruning", ["COMMIT", "SCAN", "ROTATION"])
@pytest.mark.parametrize("is_committed", [True, False], ids=["removed from the index", "still in the index"])
def test_an_expired_key_is_a_new_one_whether_or_not_it_has_left_the_index(pruning: str, is_committed: bool) -> None:
    upserts = partition(primaryKeyTtl="15", pruning=pruning)
    for segment, rows in enumerate(SEGMENTS):
        ingest(upserts, rows, segment, 0)
        assert locations(upserts) == LOCATIONS[segment]
        if is_committed:
            commit(upserts)
            upserts.scan()


def test_a_key_within_its_time_to_live_has_one_row() -> None:
    upserts = partition(primaryKeyTtl="20")
    for segment, rows in enumerate(SEGMENTS):
        ingest(upserts, rows, segment, 0)
        commit(upserts)
    assert locations(upserts) == {**LOCATIONS[3], PK4: [3]}


def test_the_message_itself_does_not_expire_its_key() -> None:
    upserts = partition(primaryKeyTtl="15")
    ingest(upserts, [(PK1, 0, False)], 0, 0)
    ingest(upserts, [(PK1, 1000, False)], 0, 1)
    assert valid_places(upserts.cut) == {(0, 1): False}


def test_pruning_at_a_commit_takes_expired_keys_out() -> None:
    upserts = partition(primaryKeyTtl="15")
    for segment, rows in enumerate(SEGMENTS):
        ingest(upserts, rows, segment, 0)
        commit(upserts)
    assert (upserts.stats.keys, upserts.stats.expired) == (2, 4)
    assert (upserts.stats.valid, upserts.stats.invalid) == (6, 1)


def test_rows_of_one_key_in_one_batch_are_decided_in_order() -> None:
    upserts = partition()
    rows: list[Row] = [(1, 5, False), (1, 7, False), (1, 6, False), (1, 7, False), (2, 1, False), (1, 8, True)]
    outcome = upserts.add(table(rows), 3, 10)
    assert outcome.out_of_order.tolist() == [False, False, True, False, False, False]
    assert outcome.num_invalidated == 3
    assert valid_places(upserts.cut) == {}, "nothing is seen before it is published"
    upserts.publish()
    assert valid_places(upserts.cut) == {(3, 14): False, (3, 15): True}
    words, queryable = upserts.cut.valid(3), upserts.cut.queryable(3)
    assert words is not None
    assert queryable is not None
    assert (int(words[0]), int(queryable[0])) == (0b11 << 14, 1 << 14)
    assert upserts.cut.valid(4) is None


def test_rows_that_are_dropped_take_no_docs() -> None:
    upserts = partition(dropOutOfOrderRecord=True)
    rows: list[Row] = [(1, 5, False), (1, 4, False), (2, 5, False), (2, 9, False), (2, 8, False), (3, 1, False)]
    outcome = upserts.add(table(rows), 0, 0)
    upserts.publish()
    assert outcome.is_kept.tolist() == [True, False, True, True, False, True]
    assert outcome.rows.column("key").to_pylist() == [1, 2, 2, 3]
    assert valid_places(upserts.cut) == {(0, 0): False, (0, 2): False, (0, 3): False}
    # The index has moved with them.
    ingest(upserts, [(1, 6, False), (2, 10, False), (3, 2, False)], 1, 0)
    assert valid_places(upserts.cut) == {(1, 0): False, (1, 1): False, (1, 2): False}


def test_rows_out_of_order_are_marked() -> None:
    upserts = partition(outOfOrderRecordColumn="outOfOrder")
    outcome = upserts.add(table([(1, 5, False), (1, 4, False), (1, 6, False)]), 0, 0)
    assert outcome.rows.column("outOfOrder").to_pylist() == [False, True, False]
    assert outcome.rows.schema == table([]).schema


def test_late_rows_are_new_ones_or_are_left_out() -> None:
    rows: list[Row] = [(1, 100, False), (2, 50, False), (2, 51, False), (1, 50, False)]
    seen = partition(primaryKeyTtl="10")
    outcome = seen.add(table(rows), 0, 0)
    seen.publish()
    assert (outcome.late.tolist(), outcome.is_kept.all()) == ([False, True, True, True], True)
    assert valid_places(seen.cut) == {(0, 0): False, (0, 1): False, (0, 2): False}
    skipped = partition(primaryKeyTtl="10", skipLateEvents=True)
    assert ingest(skipped, rows, 0, 0) == 1
    assert valid_places(skipped.cut) == {(0, 0): False}
    assert skipped.stats.dropped == 3


def test_a_value_too_far_in_the_future_of_its_message_expires_nothing() -> None:
    upserts = PartitionUpserts(replace(rules(primaryKeyTtl="100", messageTimeColumn="sent"), max_future_skew_ms=1_000))
    rows: list[Row] = [(1, 500, False), (2, 90_000, False), (3, 510, False), (1, 511, False)]
    upserts.add(table(rows, [500, 510, 510, None]), 0, 0)
    upserts.publish()
    assert upserts.watermark.largest == 511
    assert valid_places(upserts.cut) == {(0, 1): False, (0, 2): False, (0, 3): False}


def test_a_key_whose_value_is_in_the_future_outlives_rotations() -> None:
    expiring = rules(primaryKeyTtl="10", pruning="ROTATION", messageTimeColumn="sent")
    upserts = PartitionUpserts(replace(expiring, max_future_skew_ms=0))
    arrivals: list[Row] = [(1, 900, False), (2, 100, False), (3, 120, False), (4, 140, False)]
    for doc, row in enumerate(arrivals):
        upserts.add(table([row], [min(row[1], 200)]), 0, doc)
        upserts.publish()
        commit(upserts)
    assert upserts.stats.keys == 2, "2 and 3 were rotated out"
    upserts.add(table([(1, 150, False), (1, 901, False)], [150, 150]), 1, 0)
    upserts.publish()
    assert valid_places(upserts.cut) == {(0, 1): False, (0, 2): False, (0, 3): False, (1, 1): False}


def test_a_deleted_key_is_forgotten_after_a_time_of_its_own() -> None:
    upserts = partition(deletedKeysTtl="10")
    ingest(upserts, [(1, 5, False), (1, 6, True), (2, 6, False)], 0, 0)
    ingest(upserts, [(1, 4, False)], 0, 3)
    assert valid_places(upserts.cut) == {(0, 1): True, (0, 2): False}, "it stays deleted"
    ingest(upserts, [(3, 20, False)], 0, 4)
    commit(upserts)
    assert upserts.stats.keys == 2
    ingest(upserts, [(1, 4, False), (2, 5, False)], 0, 5)
    assert valid_places(upserts.cut) == {(0, 1): True, (0, 2): False, (0, 4): False, (0, 5): False}


def test_a_longer_time_to_live_does_not_bring_expired_keys_back() -> None:
    upserts = partition(primaryKeyTtl="10", pruning="SCAN")
    ingest(upserts, [(1, 0, False), (2, 95, False), (3, 100, False)], 0, 0)
    upserts.set_rules(rules(primaryKeyTtl="1000", pruning="SCAN"))
    ingest(upserts, [(1, 101, False), (2, 101, False), (3, 900, False), (2, 901, False)], 1, 0)
    assert valid_places(upserts.cut) == {(0, 0): False, (1, 0): False, (1, 2): False, (1, 3): False}
    upserts.set_rules(rules(pruning="SCAN"))
    ingest(upserts, [(1, 10_000, False), (3, 20_000, False)], 2, 0)
    assert valid_places(upserts.cut) == {(0, 0): False, (1, 3): False, (2, 0): False, (2, 1): False}


def test_keys_stay_when_the_way_of_pruning_changes() -> None:
    upserts = partition(primaryKeyTtl="10")
    value = 0
    for pruning in ("ROTATION", "ROTATION", "SCAN", "ROTATION", "COMMIT"):
        value += 6
        ingest(upserts, [(key, value, False) for key in range(value // 6, 8)], value, 0)
        upserts.set_rules(rules(primaryKeyTtl="10", pruning=pruning))
        commit(upserts)
    ingest(upserts, [(key, 31, False) for key in range(8)], 100, 0)
    valid = valid_places(upserts.cut)
    # Keys 1, 2 and 3 were last seen at 6, 12 and 18, which is past the time to live of 10 by 30; key 0 never.
    assert [segment for segment, _ in sorted(valid)] == [6, 12, 18, *[100] * 8]


def test_a_removed_segment_takes_its_keys_along() -> None:
    upserts = partition()
    ingest(upserts, [(1, 5, False), (2, 5, False)], 0, 0)
    ingest(upserts, [(2, 6, False)], 1, 0)
    upserts.remove_segment(0)
    assert valid_places(upserts.cut) == {(1, 0): False}
    assert (upserts.stats.keys, upserts.stats.invalid) == (1, 0)
    ingest(upserts, [(1, 1, False), (2, 1, False)], 2, 0)
    assert valid_places(upserts.cut) == {(1, 0): False, (2, 0): False}


def test_replaced_segments_keep_their_valid_docs_under_new_numbers() -> None:
    upserts = partition()
    ingest(upserts, [(1, 5, False), (2, 5, False), (3, 5, True)], 0, 0)
    ingest(upserts, [(1, 6, False), (4, 6, False)], 1, 0)
    moved = {0: np.array([-1, 3, 2]), 1: np.array([1, 0])}
    assert upserts.replace_segments(moved, 7, 4) == 0
    assert valid_places(upserts.cut) == {(7, 3): False, (7, 2): True, (7, 1): False, (7, 0): False}
    ingest(upserts, [(1, 7, False), (2, 7, False), (3, 4, False)], 8, 0)
    assert valid_places(upserts.cut) == {(7, 2): True, (7, 0): False, (8, 0): False, (8, 1): False}
    assert upserts.replace_segments({7: np.array([0, -1, -1, -1])}, 9, 1) == 1, "a valid doc was left out"


def test_what_cannot_run_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="key columns and comparison columns"):
        partition().set_rules(rules(comparisonColumns=["key"]))
    with pytest.raises(InvalidInputError, match="segment number"):
        partition().add(table([]), 1 << 28, 0)
    with pytest.raises(InvalidInputError, match="one comparison column"):
        rules(comparisonColumns=["at", "key"], primaryKeyTtl="5")
