"""Mode DEDUP: the first row of each key is kept, in batches as one by one, and after a replay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budget import examples
from tests.unit.upsert.upsert_rows import Row, commit, partition, rules, table, valid_places

from merlot.errors import InvalidInputError
from merlot.spec.schema import FieldSpec
from merlot.upsert.partition import PartitionUpserts
from merlot.upsert.rules import Rules

SENT_UNTIL = 40
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.just(False)), max_size=30)


def dedup(ttl: int | None = None, skew: int | None = None, **spec: object) -> Rules:
    to_live = {} if ttl is None else {"primaryKeyTtl": str(ttl)}
    found = rules(mode="DEDUP", deleteRecordColumn=None, messageTimeColumn="sent", **to_live, **spec)
    return replace(found, max_future_skew_ms=skew)


def sent(rows: list[Row]) -> list[int | None]:
    return [min(row[1], SENT_UNTIL) for row in rows]


def kept_of(rows: list[Row], ttl: int | None, skew: int | None, *, skips: bool) -> tuple[list[bool], int | None]:
    """What a dictionary comes to, and the largest value of what is kept."""
    newest: dict[int, int] = {}
    kept: list[bool] = []
    largest: int | None = None
    for key, at, _ in rows:
        dead = -1 if ttl is None or largest is None else largest - ttl
        kept.append((key not in newest or newest[key] < dead) and not (at < dead and skips))
        if kept[-1]:
            newest[key] = max(at, newest.get(key, at))
            if skew is None or at <= min(at, SENT_UNTIL) + skew:
                largest = at if largest is None else max(at, largest)
    return kept, largest


@settings(max_examples=examples(80))
@given(
    ROWS,
    st.sampled_from([None, 5, 20]),
    st.sampled_from([None, 3]),
    st.booleans(),
    st.sampled_from(["COMMIT", "SCAN", "ROTATION"]),
    st.integers(1, 30),
    st.integers(0, 30),
)
def test_a_row_is_kept_unless_one_of_its_key_is_there_and_alive(
    rows: list[Row], ttl: int | None, skew: int | None, skips: bool, pruning: str, size: int, replayed_at: int
) -> None:
    config = dedup(ttl, skew, pruning=pruning if ttl is not None else "COMMIT", skipLateEvents=skips)
    upserts, stored, kept = PartitionUpserts(config), [], []
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        if first <= replayed_at < first + size:
            before = upserts.watermark
            upserts = PartitionUpserts(config)
            upserts.replay(table(stored, sent(stored)), 0, 0)
            upserts.publish()
            assert upserts.watermark == before
        outcome = upserts.add(table(part, sent(part)), 0, len(stored))
        upserts.publish()
        kept += outcome.is_kept.tolist()
        stored += [row for row, is_kept in zip(part, outcome.is_kept, strict=True) if is_kept]
        assert outcome.rows.equals(table(part, sent(part)).filter(outcome.is_kept))
        commit(upserts)
        upserts.scan()
    expected, largest = kept_of(rows, ttl, skew, skips=skips)
    assert kept == expected
    assert valid_places(upserts.cut) == {(0, doc): False for doc in range(len(stored))}
    if largest is not None:
        assert upserts.watermark.largest == largest
    assert upserts.stats.invalid == 0


def test_duplicates_are_counted() -> None:
    upserts = PartitionUpserts(dedup())
    upserts.add(table([(1, 5, False), (1, 5, False), (2, 5, False), (1, 9, False)]), 0, 0)
    assert (upserts.stats.dropped, upserts.stats.keys) == (2, 2)


def test_a_partition_that_was_recovered_knows_its_keys() -> None:
    config = dedup(10)
    upserts = PartitionUpserts(config)
    rows: list[Row] = [(1, 5, False), (2, 50, False), (1, 51, False)]
    upserts.add(table(rows), 0, 0)
    upserts.publish()
    after = PartitionUpserts.recovered(config, upserts.checkpoint(3))
    docs = after.cut.segments[0].live.docs()
    after.load(table([rows[doc] for doc in docs.tolist()]), 0, docs)
    more: list[Row] = [(1, 52, False), (2, 52, False), (3, 52, False)]
    assert after.add(table(more), 0, 3).is_kept.tolist() == upserts.add(table(more), 0, 3).is_kept.tolist() == [0, 0, 1]


def test_keys_that_are_floats_do_not_expire_by_them() -> None:
    with pytest.raises(InvalidInputError, match="whole numbers"):
        replace(dedup(5), comparisons=(replace(rules().comparisons[0], field=_double()),))
    with pytest.raises(InvalidInputError, match="out of bounds"):
        partition(mode="DEDUP", deleteRecordColumn=None).add(table([(1, 1, False)]), 1 << 28, 0)


def _double() -> FieldSpec:
    return rules().comparisons[0].field.model_copy(update={"type": "DOUBLE", "format": None})
