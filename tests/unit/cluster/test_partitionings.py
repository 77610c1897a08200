"""A table's partitioning changes: whatever is published, merged and forgotten in turn, no row of a day is in the table
twice, and none is gone."""

import contextlib
import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cluster.test_families import TABLE, Model, Row, day_rows, merge, names, push, segment, table

from merlot.cluster import paths
from merlot.cluster.records import PartitionRecord, RootRecord, SegmentRecord
from merlot.cluster.segments.coverage import UncoveredError
from merlot.cluster.segments.mutations import ForgetReplacement, PreconditionError
from merlot.cluster.segments.publish import PublishRequest, publish_request
from merlot.cluster.segments.republish import MergedBeforeError
from merlot.cluster.segments.transaction import mutate
from merlot.cluster.segments.view import load
from merlot.errors import InvalidInputError, MerlotError
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec.tasks import MERGE_LEVEL

pytestmark = pytest.mark.usefixtures("outputs_are_loaded")
__all__ = ["table"]
DAY = "t_2013-01-31"
NONE = (0, "")
"""Without partitions."""
TWO, FOUR, OTHER = (2, "Modulo"), (4, "Modulo"), (2, "Murmur")
Kind = tuple[int, str]


def divided(rows: list[Row], kind: Kind, *, day: str = DAY, suffix: str = "") -> dict[str, list[Row]]:
    """Rows by the segments that a batch makes of them."""
    count, function = kind
    found: dict[str, list[Row]] = {}
    for row in rows:
        place = (row[0] if function == "Modulo" else row[0] // 3) % count if count else 0
        found.setdefault(f"{day}_p{place}{suffix}" if count else f"{day}{suffix}", []).append(row)
    return found


def records(rows: list[Row], kind: Kind, **more: str) -> list[SegmentRecord]:
    return [recorded(name, part, kind) for name, part in divided(rows, kind, **more).items()]


def recorded(name: str, rows: list[Row], kind: Kind) -> SegmentRecord:
    count, function = kind
    found = (int(name.partition("_p")[2][:1]),) if count else ()
    declared = {"city": PartitionRecord(function_name=function, num_partitions=count, partitions=found)}
    return segment(name, rows, partitions=declared if count else {})


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations([NONE, TWO, FOUR, OTHER], 2)))
def test_a_day_under_another_partitioning_takes_the_place_of_the_day(
    before: Kind, after: Kind, table: SqliteMetastore
) -> None:
    rows = day_rows(12)
    push(table, records(rows, before), now_ms=5)
    other = [*records(rows, before, day="t_2013-02-01"), *records(rows, before, suffix="_lake")]
    push(table, other, now_ms=5)
    with pytest.raises(UncoveredError, match=f"{DAY}: 12 rows.* -> 11 rows"):
        push(table, records(rows[:11], after))
    if after != NONE:
        with pytest.raises(UncoveredError, match=DAY):
            push(table, records(rows, after)[:1])
    done = push(table, records(rows, after), now_ms=9)
    wanted = [*records(rows, after), *other]
    assert names(table) == sorted(one.name for one in wanted)
    assert done.rows.after == 36
    visible = load(table, TABLE).visible
    assert {one.push_time_ms for one in visible.values()} == {5}, "rows that were answered before are not new"
    push(table, records(rows, before))
    assert names(table) == sorted(one.name for one in [*records(rows, before), *other])


def test_fewer_rows_go_in_place_of_a_day_under_another_partitioning_if_they_shall(table: SqliteMetastore) -> None:
    push(table, records(day_rows(12), FOUR))
    request = PublishRequest(records=tuple(records(day_rows(3), TWO)), replace_rows=True)
    publish_request(table, TABLE, request)
    assert names(table) == [f"{DAY}_p0", f"{DAY}_p1"]


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations([NONE, TWO, FOUR, OTHER], 2)))
def test_a_removed_day_does_not_come_back_beside_its_rows_under_another_partitioning(
    before: Kind, after: Kind, table: SqliteMetastore
) -> None:
    rows = day_rows(12)
    push(table, records(rows, before))
    push(table, records(rows, after))
    removed = tuple(records(rows, before))
    with pytest.raises(PreconditionError, match="under another partitioning segments=t_2013-01-31"):
        publish_request(table, TABLE, PublishRequest(records=removed, removed_ms={one.name: 7 for one in removed}))
    assert names(table) == sorted(one.name for one in records(rows, after))


def test_one_request_cannot_bring_a_day_under_two_partitionings(table: SqliteMetastore) -> None:
    both = [*records(day_rows(12), NONE), *records(day_rows(12), TWO)]
    with pytest.raises(InvalidInputError, match="published twice, under two partitionings"):
        push(table, both)


@pytest.mark.parametrize("is_over", [False, True], ids=["within the grace period", "after it"])
@pytest.mark.parametrize(("before", "after"), list(itertools.permutations([NONE, TWO, FOUR, OTHER], 2)))
def test_a_merged_day_is_refused_under_another_partitioning_until_its_window_is_replaced(
    before: Kind, after: Kind, is_over: bool, table: SqliteMetastore
) -> None:
    rows = day_rows(12)
    push(table, records(rows, before))
    entry = merge(table, names(table), segment("merged", rows, custom_map={MERGE_LEVEL: "d"}))
    if is_over:
        mutate(table, TABLE, lambda _: [ForgetReplacement(entry)])
    assert len(push(table, records(rows, before)).unchanged) == len(records(rows, before))
    with pytest.raises(MergedBeforeError, match="now_in=merged"):
        push(table, records(rows, after))
    push(table, records(rows, after), replace=("merged",))
    assert names(table) == sorted(one.name for one in records(rows, after))


def test_a_partition_that_is_new_to_a_merged_day_is_taken(table: SqliteMetastore) -> None:
    rows = day_rows(12)
    first, *others = records(rows, FOUR)
    push(table, others)
    entry = merge(table, names(table), segment("merged", rows[1:], custom_map={MERGE_LEVEL: "d"}))
    mutate(table, TABLE, lambda _: [ForgetReplacement(entry)])
    assert push(table, [first]).published == (first.name,)


PUSHES = st.tuples(st.just("push"), st.integers(1, 7), st.integers(0, 3), st.integers(0, 1))
MERGES = st.tuples(st.just("merge"), st.integers(1, 127), st.integers(0, 1))
FORGETS = st.tuples(st.just("forget"))


class Partitioned(Model):
    """Each push comes under one of four partitionings. Under the one that the table has, it leaves partitions alone of
    which it has no row, as every batch does."""

    kind: Kind = NONE

    def _push(self, number: int, most: int, first: int) -> None:
        rows, kind = day_rows(number, first), (NONE, TWO, FOUR, OTHER)[most]
        made = divided(rows, kind)
        found = [recorded(name, part, kind) for name, part in made.items()]
        for one in found:
            self._rows_of[one.key_text] = made[one.name]
        with contextlib.suppress(MerlotError):
            push(self.store, found)
            before = divided(self.expected, kind) if kind == self.kind else {}
            self.expected = [row for part in {**before, **made}.values() for row in part]
            self.kind = kind


@settings(deadline=None)
@given(st.lists(PUSHES | MERGES | FORGETS, min_size=2, max_size=10))
def test_whatever_is_pushed_and_merged_in_turn_the_table_has_each_row_once(steps: list[tuple[Any, ...]]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(SqliteMetastore(Path(folder) / "meta.db")) as store,
    ):
        store.create(paths.segments_root(TABLE), RootRecord().to_bytes())
        model = Partitioned(store)
        for step in steps:
            model.take(*step)
            assert sorted(model.held()) == sorted(model.expected), steps
