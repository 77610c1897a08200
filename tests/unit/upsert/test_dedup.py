"""The first row of each key is kept, in batches as one by one, and after a reload."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.upsert.upsert_rows import rules, table

from merlot.upsert.dedup import PartitionDedup

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.just(False)), max_size=30)


@settings(max_examples=60)
@given(ROWS, st.sampled_from([None, 5, 20]), st.integers(1, 30), st.integers(0, 30))
def test_a_row_is_dropped_if_its_key_is_there_and_alive(
    rows: list[tuple[int, int, bool]], ttl: int | None, size: int, reloaded_at: int
) -> None:
    config = rules(**({} if ttl is None else {"primaryKeyTtl": str(ttl)}))
    dedup, stored, kept = PartitionDedup(config), [], []
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        if first <= reloaded_at < first + size:
            again = PartitionDedup(config)
            again.load(table(stored))
            again.resume(dedup.watermark)
            dedup = again
        flags = dedup.add(table(part)).tolist()
        kept += flags
        stored += [row for row, flag in zip(part, flags, strict=True) if flag]
        dedup.committed()
    times: dict[int, int] = {}
    largest = expected_largest = -1
    expected = []
    for key, at, _ in rows:
        dead = -1 if ttl is None or largest < 0 else largest - ttl
        expected.append(key not in times or times[key] < dead)
        if expected[-1] and at >= dead:
            times[key] = at
        largest = expected_largest = max(largest, at)
    assert kept == expected
    if rows:
        assert dedup.watermark.largest == expected_largest
    assert dedup.num_keys <= len(times)
