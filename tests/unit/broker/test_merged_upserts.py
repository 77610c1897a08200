"""Of segments of an upsert table that a minion has merged, a broker asks for all, or for the one with their rows."""

from __future__ import annotations

import pytest
from tests.unit.broker.test_strict_groups import NOW_MS, A, B, consumed, segment, snapshot_of

from merlot.cluster.consuming.merged import MERGED
from merlot.cluster.records import SegmentRecord

NUM_SEALED = 4
OLD: list[SegmentRecord] = [segment(0, number) for number in range(NUM_SEALED)]
OPEN = segment(0, NUM_SEALED, is_open=True)
MARKS = {MERGED: ",".join(one.key_text for one in OLD[:3])}
MERGED_SEGMENT = OLD[2].model_copy(
    update={"crc": 99, "total_docs": 25, "custom_map": MARKS, "refresh_time_ms": NOW_MS + 5}
)
BEFORE = [*OLD, OPEN]
BESIDE = [*OLD[:2], MERGED_SEGMENT, OLD[3], OPEN]
AFTER = [MERGED_SEGMENT, OLD[3], OPEN]
TAIL = consumed(0, NUM_SEALED)
OLD_KEYS = {one.key_text for one in OLD} | {TAIL}
NEW_KEYS = {MERGED_SEGMENT.key_text, OLD[3].key_text, TAIL}


@pytest.mark.parametrize("is_new", [False, True])
def test_the_old_ones_are_asked_for_until_somebody_answers_for_the_new_one(is_new: bool) -> None:
    """By a broker that begins meanwhile, too."""
    previous = None if is_new else snapshot_of(BEFORE, {A: OLD_KEYS, B: OLD_KEYS})
    snapshot = snapshot_of(BESIDE, {A: OLD_KEYS, B: OLD_KEYS}, previous=previous)
    assert set(snapshot.by_key) == OLD_KEYS
    assert not snapshot.unavailable


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("records", [BESIDE, AFTER])
def test_the_new_one_is_asked_for_alone_as_soon_as_somebody_does(records: list[SegmentRecord], is_new: bool) -> None:
    """Whatever the broker knew before: it may have slept through all of it."""
    previous = None if is_new else snapshot_of(BEFORE, {A: OLD_KEYS, B: OLD_KEYS})
    snapshot = snapshot_of(records, {A: OLD_KEYS | NEW_KEYS, B: OLD_KEYS}, previous=previous)
    assert set(snapshot.by_key) == NEW_KEYS
    assert not snapshot.unavailable
    assert {route.instance for routes in snapshot.turns for route in routes} == {A}
    assert snapshot.total_docs == 35


def test_it_is_told_that_rows_are_missing_when_only_a_server_that_died_had_the_new_one() -> None:
    previous = snapshot_of(BESIDE, {A: OLD_KEYS | NEW_KEYS, B: OLD_KEYS})
    snapshot = snapshot_of(BESIDE, {B: OLD_KEYS}, previous=previous)
    assert snapshot.unavailable == (MERGED_SEGMENT.key_text,)
